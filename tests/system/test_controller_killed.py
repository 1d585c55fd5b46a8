"""A controller that is killed while a job runs: nobody notices, and the next one knows everything."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import pytest

from switchsum.controller.rpc_client import ControllerClient
from switchsum.protocol import rpc
from switchsum.protocol.errors import ControllerUnreachable, SwitchLost

from .conftest import WORKERS

Reply = TypeVar("Reply")

SWITCHSUM = [sys.executable, "-m", "switchsum"]
START_S = 40.0
TIMEOUT_S = 3.0
"""Of the job: heartbeats that nobody takes for longer must not end it."""
SIZE = 2


class Parts:
    """A switch, a controller and workers, each a process of its own."""

    def __init__(self, stack: ExitStack, scratch: Path) -> None:
        self._stack = stack
        self.scratch = scratch
        self.stop_file = scratch / "stop"
        self._link = f"shm:switchsum-test-{os.getpid()}"
        self.environment = {
            **os.environ,
            "SWITCHSUM_CONTROLLER": f"unix:{scratch}/controller",
            "SWITCHSUM_JOB": "a",
            "SWITCHSUM_LINK": self._link,
            "WORLD_SIZE": str(SIZE),
            "STOP": str(self.stop_file),
        }

    def spawn(self, *command: str, **variables: str) -> subprocess.Popen[str]:
        """Start a process that ends with the test."""
        process = subprocess.Popen(
            command,
            env=self.environment | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._stack.callback(self._end, process, " ".join(command))
        return process

    def _end(self, process: subprocess.Popen[str], name: str) -> None:
        """Kill a process and write what it said, which pytest shows when the test has failed."""
        process.kill()
        sys.stdout.write(f"{name}: {process.communicate()[0]}\n")

    def switch(self) -> None:
        listen = f"unix:{self.scratch}/p4runtime"
        self.spawn(*SWITCHSUM, "switch", "--listen", listen, "--shm", self._link.removeprefix("shm:"))

    def controller(self) -> subprocess.Popen[str]:
        socket = self.scratch / "controller"
        socket.unlink(missing_ok=True)
        switch = f"unix:{self.scratch}/p4runtime"
        return self.spawn(*SWITCHSUM, "controller", "--switch", switch, "--listen", f"unix:{socket}")

    def ask(self, call: Callable[[ControllerClient], Reply]) -> Reply:
        """Call the controller, once it answers and has its switch."""
        deadline = time.monotonic() + START_S
        while True:
            try:
                with ControllerClient(f"unix:{self.scratch}/controller") as client:
                    return call(client)
            except (ControllerUnreachable, SwitchLost):
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def show(self) -> rpc.JobInfo:
        return self.ask(lambda client: client.show_job(rpc.JobRequest(job="a")))

    def completed(self) -> int:
        """Return how many rounds the switch has completed."""
        counters = self.ask(lambda client: client.statistics().counters)
        return next(counter.packets for counter in counters if counter.reason == "completed")

    def await_progress(self) -> None:
        """Wait until rounds are completed that were not when we came."""
        before, deadline = self.completed(), time.monotonic() + START_S
        while self.completed() <= before:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    with ExitStack() as stack:
        yield Parts(stack, tmp_path)


@pytest.mark.timeout(150)
def test_a_killed_controller_is_not_missed_and_its_successor_knows_the_job(parts: Parts) -> None:
    parts.switch()
    first = parts.controller()
    create = rpc.CreateJobRequest(job="a", workers=SIZE, timeout_s=TIMEOUT_S)
    parts.ask(lambda client: client.create_job(create))
    workers = [parts.spawn(sys.executable, str(WORKERS / "endless.py"), RANK=str(rank)) for rank in range(SIZE)]
    parts.await_progress()

    first.kill()
    time.sleep(TIMEOUT_S + 1)
    assert [worker.poll() for worker in workers] == [None] * SIZE
    parts.controller()
    parts.await_progress()
    time.sleep(TIMEOUT_S + 1)
    job = parts.show()
    assert (job.state, job.epoch) == ("running", 1)
    assert all(0 <= member.last_heartbeat_s < TIMEOUT_S for member in job.members)

    parts.stop_file.touch()
    for worker in workers:
        output, _ = worker.communicate(timeout=START_S)
        assert (worker.returncode, output.endswith("right sums\n")) == (0, True), output
    job = parts.show()
    assert (job.state, job.epoch) == ("waiting", 2)

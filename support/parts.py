"""A switch, a controller and workers as processes of their own, which tests start, stop and kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from support.timing import eventually, patience
from switchsum.launch import wires
from switchsum.launch.link_options import MTU
from switchsum_protocol import rpc
from switchsum_protocol.clients.controller_client import ControllerClient
from switchsum_protocol.errors import ControllerUnreachable, SwitchLost
from switchsum_switch.bmv2.process import PROGRAM, End, command_line, free_port
from switchsum_switch.process.children import Children

Reply = TypeVar("Reply")
Process = subprocess.Popen[str]

WORKERS = Path(__file__).resolve().parents[1] / "tests" / "system" / "workers"
"""Programs of ranks."""
SWITCHSUM = [sys.executable, "-m", "switchsum"]
START_S = patience(90.0)
"""Longer than anything takes to start, with nothing compiled yet."""
JOB = "a"


class Parts:
    """The parts of one system, by links (`shm`, `udp`, `veth`) and kind of switch (`embedded`, `bmv2`)."""

    def __init__(
        self, stack: ExitStack, scratch: Path, *, size: int, links: str = "shm", kind: str = "embedded"
    ) -> None:
        self._stack = stack
        self._kind = kind
        self.scratch = scratch
        self.size = size
        self.stop_file = scratch / "stop"
        shm = f"{scratch}/links"
        self._udp = f"127.0.0.1:{free_port()}"
        self.p4runtime = f"unix:{scratch}/p4runtime"
        self.wires: list[wires.Wire] = []
        if links == "veth":
            children = stack.enter_context(Children())
            self.wires = [wires.lay(children, rank, mtu=MTU, rate=None) for rank in range(size)]
        link = {"shm": f"shm:{shm}", "udp": f"udp:{self._udp}", "veth": f"packet:{wires.WORKER_INTERFACE}"}
        self._ports = {"shm": ["--shm", shm], "udp": ["--udp", self._udp], "veth": []}[links]
        self.environment = {
            **os.environ,
            "SWITCHSUM_CONTROLLER": f"unix:{scratch}/controller",
            "SWITCHSUM_JOB": JOB,
            "SWITCHSUM_LINK": link[links],
            "WORLD_SIZE": str(size),
            "STOP": str(self.stop_file),
        }

    def spawn(self, *command: str, **variables: str) -> Process:
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

    def _end(self, process: Process, name: str) -> None:
        """Kill a process and write what it said, which pytest shows when the test has failed."""
        process.kill()
        sys.stdout.write(f"{name}: {process.communicate()[0]}\n")

    def switch(self) -> Process:
        """Start the switch."""
        Path(self.p4runtime.removeprefix("unix:")).unlink(missing_ok=True)
        ends = [End(wire.port, wire.interface) for wire in self.wires]
        if self._kind == "embedded":
            interfaces = [word for end in ends for word in ("-i", str(end))]
            return self.spawn(*SWITCHSUM, "switch", "--listen", self.p4runtime, *self._ports, *interfaces)
        return self.spawn(*command_line([PROGRAM], self.p4runtime, thrift_port=free_port(), ends=ends))

    def controller(self, *options: str) -> Process:
        """Start the controller."""
        socket = self.scratch / "controller"
        socket.unlink(missing_ok=True)
        return self.spawn(*SWITCHSUM, "controller", "--switch", self.p4runtime, "--listen", f"unix:{socket}", *options)

    def standby(self) -> Process:
        """Start another controller, which waits for the first one's end; return it once it does."""
        command = ("controller", "--switch", self.p4runtime, "--listen", f"unix:{self.scratch}/controller", "--standby")
        process = self.spawn(*SWITCHSUM, *command)
        assert process.stdout is not None
        assert "stands by" in process.stdout.readline()
        return process

    def worker(self, rank: int, program: str, **variables: str) -> Process:
        """Start a worker: a program of the folder `workers`."""
        command = [sys.executable, str(WORKERS / program)]
        if self.wires:
            command = self.wires[rank].inside(command)
        return self.spawn(*command, **{"RANK": str(rank)} | variables)

    def start(
        self, program: str, *, timeout_s: float = START_S, **variables: str
    ) -> tuple[Process, Process, list[Process]]:
        """Start everything, and wait until rounds are done; return switch, controller and workers."""
        if timeout_s < START_S:  # a rank that compiles would be missed by the others
            subprocess.run([*SWITCHSUM, "warm"], env=self.environment, capture_output=True, check=True)
        switch, controller = self.switch(), self.controller()
        create = rpc.CreateJobRequest(job=JOB, workers=self.size, timeout_s=timeout_s)
        self.ask(lambda client: client.create_job(create))
        workers = [self.worker(rank, program, **variables) for rank in range(self.size)]
        self.await_progress()
        return switch, controller, workers

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

    def show(self, job: str = JOB) -> rpc.JobInfo:
        """Return what the controller knows of a job."""
        return self.ask(lambda client: client.show_job(rpc.JobRequest(job=job)))

    def count(self, reason: str) -> int:
        """Return how many frames the switch has counted under a reason."""
        counters = self.ask(lambda client: client.statistics().counters)
        return next(counter.packets for counter in counters if counter.reason == reason)

    def await_progress(self) -> None:
        """Wait until rounds are completed that were not when we came."""
        before = self.count("completed")
        assert eventually(lambda: self.count("completed") > before, 90)

    def end_well(self, workers: list[Process]) -> None:
        """Let workers come to their end, and check that all went well for them."""
        self.stop_file.touch()
        for worker in workers:
            output, _ = worker.communicate(timeout=START_S)
            assert (worker.returncode, output.endswith("right sums\n")) == (0, True), output


def pause(process: Process, seconds: float) -> None:
    """Stop a process for a while."""
    process.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    process.send_signal(signal.SIGCONT)

"""`switchsum switch` as a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from support.timing import patience
from switchsum_switch.messages.p4runtime import METHODS
from switchsum_switch.process.ready import READY_FD

COMMAND = [sys.executable, "-m", "switchsum", "switch"]


@contextmanager
def started(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Start a switch and yield it with what it announces."""
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        env={**os.environ, READY_FD: str(writing)},
        pass_fds=[writing],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writing)
    try:
        with os.fdopen(reading) as pipe:
            yield process, json.loads(pipe.readline())
    finally:
        process.kill()
        process.communicate()


def running_p4info(address: str, device_id: int) -> Any:
    """Return the P4Info of the program that a switch runs."""
    method = METHODS["GetForwardingPipelineConfig"]
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        call = channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)
        return call(method.request(device_id=device_id), timeout=patience(10)).config.p4info


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_switch_ends_cleanly_on_a_signal(number: signal.Signals, tmp_path: Path) -> None:
    name = f"switchsum-test-{os.getpid()}"
    with started("--listen", "127.0.0.1:0", "--shm", name, "--pcap", str(tmp_path / "frames")) as (process, facts):
        assert int(facts["p4runtime"].rpartition(":")[2]) > 0
        assert not running_p4info(facts["p4runtime"], 0).tables
        process.send_signal(number)
        _, errors = process.communicate(timeout=patience(20))
        assert process.returncode == 0, errors
        assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--udp", "nowhere"], "HOST:PORT"),
        (["-i", "eth0"], "PORT@INTERFACE"),
        (["--pcap", "/nonexistent/frames", "--listen", "127.0.0.1:0"], "No such file"),
        (["--listen", "203.0.113.1:1"], "cannot listen"),
    ],
)
def test_bad_arguments_are_one_line(arguments: list[str], message: str) -> None:
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=patience(40), check=False)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr

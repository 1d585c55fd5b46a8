"""What a machine can run out of ends in an error that says so, or is done without."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from switchsum.host.links.names import open_transport
from switchsum.protocol.errors import TransportError
from switchsum.protocol.slot_rules import SWITCH_ADDRESS
from switchsum.switch.ports.base import Batch, PortTable
from switchsum.switch.ports.capture import Capture
from switchsum.switch.ports.udp import UdpPort

from ..timing import patience


@pytest.fixture
def no_files() -> Iterator[None]:
    """Let this process open no file any more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    probe = os.dup(0)
    os.close(probe)
    resource.setrlimit(resource.RLIMIT_NOFILE, (probe, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("no_files")
@pytest.mark.parametrize("link", ["shm:nobody", "udp:127.0.0.1:9"])
def test_without_file_descriptors_a_link_says_so(link: str) -> None:
    with pytest.raises(TransportError, match="Too many open files"):
        open_transport(link, rows=4, frame_bytes=1114, switch=SWITCH_ADDRESS)


@pytest.mark.usefixtures("no_files")
def test_without_file_descriptors_a_port_says_so() -> None:
    with pytest.raises(TransportError, match="Too many open files"):
        UdpPort(PortTable(), "127.0.0.1", 0, switch=SWITCH_ADDRESS)


def test_a_full_disk_ends_the_capture_and_not_the_switch(caplog: pytest.LogCaptureFixture) -> None:
    capture = Capture(Path("/dev/full"))
    frame = np.zeros(100, np.uint8)
    batch = Batch(1)
    batch.append(1, frame.ctypes.data, frame.size)
    for _ in range(3):
        capture.received(batch)
    capture.close()
    assert caplog.text.count("No space left on device; nothing more is recorded") == 1


LIMITED = """
import resource, sys, threading
from importlib import import_module
cli = import_module("switchsum.cli.app")
def command():
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used, used))
    {what}
cli.app = command
cli.main()
"""


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("threading.Thread(target=print).start()", "no thread could be started"),
        ("bytearray(1 << 30)", "there is no memory left"),
    ],
)
def test_without_memory_a_command_ends_with_one_line(what: str, words: str) -> None:
    command = [sys.executable, "-c", LIMITED.format(what=what)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(50), check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"switchsum: {words}")

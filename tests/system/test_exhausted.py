"""What a machine can run out of ends in an error that says so, or is done without."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from support.timing import patience
from switchsum.launch.daemons import daemon
from switchsum_host.links import shm, udp  # noqa: F401  (which open_transport imports: it takes a descriptor)
from switchsum_host.links.names import open_transport
from switchsum_protocol import member_rpc
from switchsum_protocol.errors import LocalError, TransportError
from switchsum_protocol.slot_rules import SWITCH_ADDRESS
from switchsum_switch.ports.base import Batch, PortTable
from switchsum_switch.ports.capture import Capture
from switchsum_switch.ports.udp import UdpPort
from switchsum_switch.process.children import Child, Children
from switchsum_switch.process.ready import READY_FD, await_ready


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
cli.application = lambda only: command
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


NO_THREAD = "switchsum: no thread could be started; limits of this process: ulimit -v, ulimit -u, or its container's"
UNBORN = """
import sys, threading
import grpc
make = grpc.server
def make_where_no_thread_starts(*arguments, **options):
    threading.Thread.start = refuse
    return make(*arguments, **options)
def refuse(thread):
    raise RuntimeError("can't start new thread")
grpc.server = make_where_no_thread_starts
from importlib import import_module
import_module("switchsum.cli.app").main()
"""


@pytest.mark.parametrize("daemon", [["switch", "--engine", "interpreter"], ["controller"]], ids=lambda words: words[0])
def test_a_daemon_whose_server_gets_no_thread_ends_with_one_line(daemon: list[str], tmp_path: Path) -> None:
    """gRPC's server would wait for that thread, which never was, when it is destroyed."""
    command = [sys.executable, "-c", UNBORN, *daemon, "--listen", f"unix:{tmp_path}/here"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(50), check=False)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, NO_THREAD)


DEAF = """
import sys, threading
from importlib import import_module
from switchsum_switch.process import ready
announce = ready.announce
def announce_and_stop(**facts):
    threading.Thread.start = start  # first: a call that came sooner would get its thread
    announce(**facts)
def start(thread):
    raise RuntimeError("can't start new thread")
ready.announce = announce_and_stop
import_module("switchsum.cli.app").main()
"""


def start_deaf(children: Children, *command: str) -> tuple[Child, dict[str, Any]]:
    """Start a daemon that has no thread to spare once it is ready; its first call needs one."""
    reading, writing = os.pipe()
    with os.fdopen(reading):
        child = children.start(
            command[0],
            [sys.executable, "-c", DEAF, *command],
            environment={**os.environ, READY_FD: str(writing)},
            prefix=True,
            pass_fds=[writing],
        )
        os.close(writing)
        return child, await_ready(child, reading, patience(50))


def lines_of(name: str, capfd: pytest.CaptureFixture[str]) -> list[str]:
    """Return what a child has printed as errors: without gRPC's client's lines, and those of what is compiled."""
    lines = capfd.readouterr().err.splitlines()
    return [line for line in lines if line.startswith(f"[{name}]") and "compiling" not in line]


@pytest.mark.parametrize("call", ["a call", "a stream"])
def test_a_switch_that_can_start_no_thread_ends_with_one_line(
    call: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Children() as children:
        switch, facts = start_deaf(
            children, "switch", "--listen", f"unix:{tmp_path}/p4runtime", "--engine", "interpreter"
        )
        with grpc.insecure_channel(facts["p4runtime"]) as channel:
            kept: Any  # or else it would be cancelled
            if call == "a call":
                method = channel.unary_unary("/p4.v1.P4Runtime/Capabilities", None, None)
                kept = method.future(b"", timeout=patience(50))
            else:
                kept = channel.stream_stream("/p4.v1.P4Runtime/StreamChannel", None, None)(iter([]))
            assert switch.process.wait(patience(50)) == 1
            assert kept.exception() is not None
    assert lines_of("switch", capfd) == [f"[switch] {NO_THREAD}"]


def test_a_controller_that_can_start_no_thread_ends_with_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Children() as children:
        switch = ["switch", "--listen", f"unix:{tmp_path}/p4runtime", "--engine", "interpreter"]
        daemon(children, "switch", switch)
        capfd.readouterr()
        command = ["controller", "--listen", f"unix:{tmp_path}/controller", "--switch", f"unix:{tmp_path}/p4runtime"]
        controller, facts = start_deaf(children, *command)
        with grpc.insecure_channel(facts["controller"]) as channel:
            kept = channel.unary_unary(member_rpc.path("ListJobs"), None, None).future(b"{}", timeout=patience(50))
            assert controller.process.wait(patience(50)) == 1
            assert kept.exception() is not None
    assert lines_of("controller", capfd) == [f"[controller] {NO_THREAD}"]


def test_a_launcher_does_not_wait_for_a_controller_whose_switch_has_ended(tmp_path: Path) -> None:
    with Children() as children:
        children.start("switch", ["false"])
        command = ["controller", "--listen", f"unix:{tmp_path}/controller", "--switch", f"unix:{tmp_path}/p4runtime"]
        with pytest.raises(LocalError, match="the switch ended with exit code 1: its lines above say why"):
            daemon(children, "controller", command)


@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", [700_000, 500_000])
def test_a_job_with_little_memory_works_or_ends(kilobytes: int, tmp_path: Path) -> None:
    script = tmp_path / "sum.py"
    script.write_text("import numpy, switchsum\nswitchsum.connect().allreduce(numpy.ones(4, numpy.float32))\n")
    command = f'ulimit -v {kilobytes} && exec "$@"'
    run = [sys.executable, "-m", "switchsum", "run", "-n", "2", "--", sys.executable, str(script)]
    done = subprocess.run(
        ["sh", "-c", command, "sh", *run], capture_output=True, text=True, timeout=patience(50), check=False
    )
    last_words = [line for line in done.stderr.splitlines() if line.startswith("switchsum: ")]
    assert done.returncode == 0 or last_words, done.stderr
    # A rank's own script may print a traceback; what it ends with is an error of ours, and not the system's.
    assert "OSError" not in done.stderr

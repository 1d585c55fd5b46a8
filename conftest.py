"""What all tests share: which of them this machine can run, and Hypothesis without a clock."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from support.quarantine import Quarantine
from support.suites import Suites
from support.timing import SLOWNESS, eventually, expect_company, patience

# gRPC's handlers of forks start its threads anew where the fork was: in a test's network namespace.  It reads this when
# it is imported; programs that tests start have it as users do.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"
import grpc

del os.environ["GRPC_ENABLE_FORK_SUPPORT"]

# No deadline and no complaint about slow examples: the first one of a property may compile native code, and a shared
# machine is slow at times.
settings.register_profile("switchsum", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("switchsum")

# A shell's background jobs ignore interrupts, and nohup's ignore hang-ups; so would the programs that tests start from
# there to end them by these.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


# Scapy keeps its cache below this directory, whatever it is: in the current one if it is empty.
if not Path(os.environ.get("XDG_CACHE_HOME", "/")).is_absolute():
    del os.environ["XDG_CACHE_HOME"]


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Take back what commands that run in this process do to our loggers."""
    ours = logging.getLogger("switchsum")
    level = ours.level
    yield
    ours.setLevel(level)


@functools.cache
def reason_without_root() -> str:
    """Say why network namespaces and raw sockets are out of reach here; empty if they are not."""
    if shutil.which("ip") is None:
        return "ip (iproute2) is not on PATH"
    command = ["unshare", "--net", "ip", "link", "add", "swsum0", "type", "veth", "peer", "name", "swsum1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(30), check=False)
    return "" if done.returncode == 0 else f"needs root: {done.stderr.strip()}"


@functools.cache
def reason_without_mininet() -> str:
    """Say why Mininet cannot run here; empty if it can.  `mininet` alone imports from a clone's root in any case."""
    for program in ("mn", "setpriv", "ethtool", "ping"):
        if shutil.which(program) is None:
            return f"{program} is not on PATH"
    command = ["/usr/bin/python3", "-c", "import mininet.net"]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=patience(30), check=False)
    return "" if done.returncode == 0 else "mininet.net is not there for the system's Python"


@pytest.fixture(scope="session")
def grpc_at_home() -> Iterator[None]:
    """Have gRPC start its threads before a test enters a network namespace.

    They stay where the thread was that started them, and serve later tests too: those started in a namespace would look
    there for a later test's TCP port.
    """
    with grpc.insecure_channel("unix:/nonexistent") as channel:
        channel.subscribe(lambda _: None, try_to_connect=True)
        yield


def _threads_elsewhere() -> list[str]:
    """Return this process's threads that are in another network namespace than this one: names, or what they do."""
    here, elsewhere = os.stat("/proc/thread-self/ns/net").st_ino, []
    ours = {thread.native_id: thread for thread in threading.enumerate()}
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended since
            if (task / "ns/net").stat().st_ino != here:
                thread = ours.get(int(task.name))
                frame = sys._current_frames().get(thread.ident or 0) if thread else None
                stack = "".join(traceback.format_stack(frame)) if frame else ""
                elsewhere.append(f"{(task / 'comm').read_text().strip()} {thread} {stack}")
    return elsewhere


@contextlib.contextmanager
def new_network_namespace() -> Iterator[None]:
    """Have this thread, and the processes that it starts, in an empty network namespace."""
    libc, clone_newnet = ctypes.CDLL(None, use_errno=True), 0x4000_0000
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        assert libc.unshare(clone_newnet) == 0, os.strerror(ctypes.get_errno())
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        yield
    finally:
        assert libc.setns(home, clone_newnet) == 0, os.strerror(ctypes.get_errno())
        os.close(home)


@pytest.fixture
def network_namespace(grpc_at_home: None) -> Iterator[None]:
    """Run the test in an empty network namespace (mark it `root`), where none of its threads stays."""
    # What other tests have left is collected here, not in the namespace: a gRPC channel may start threads as it ends.
    gc.collect()
    gc.disable()
    try:
        with new_network_namespace():
            yield
    finally:
        gc.enable()
    assert eventually(lambda: not _threads_elsewhere(), 20), f"threads stay in the namespace: {_threads_elsewhere()}"


def pytest_configure(config: pytest.Config) -> None:
    """Have tests in quarantine fail nothing, those of support/slow.txt marked, and several processes wait longer."""
    config.pluginmanager.register(Quarantine())
    config.pluginmanager.register(Suites())
    if (config.getoption("numprocesses", None) or 0) > 1 and not hasattr(config, "workerinput"):
        expect_company()


def pytest_report_header() -> str:
    """Say by how much time-outs are longer here and now."""
    return f"time-outs: {SLOWNESS:.1f} times those of a quiet machine"


LONGEST_FIRST: Final = (
    *("tests/pytorch/", "tests/checks/test_endings.py", "tests/checks/test_verify.py", "lab/tests/simulation/"),
    *("lab/tests/sweeps/test_real_cells.py", "lab/tests/sweeps/test_rivals_page.py"),
    *("tests/system/test_run.py", "tests/system/test_failures.py"),
    *("tests/system/", "tests/mininet/", "tests/host/"),
    *("tests/test_", "tests/checks/", "tests/p4/", "switch/tests/", "tests/controller/"),
)
"""Files that take long, or folders of such: begun last, one would keep a single worker of xdist busy in the end."""


@pytest.hookimpl(optionalhook=True)  # -p no:xdist, as a debugger may want it
def pytest_xdist_auto_num_workers() -> int:
    """Have half as many workers again as cores: of a test's processes only one runs at most times, or none."""
    cores = len(os.sched_getaffinity(0))
    return cores + (cores + 1) // 2


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Search for no garbage among what is collected: it stays until the end, and is more than all that tests make."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collect_directory(parent: pytest.Collector) -> Generator[None, pytest.Dir | None, pytest.Dir | None]:
    """Have each worker of xdist begin at another file of a folder.

    All of them collect all files.  What one has compiled, asserts rewritten, the others read, unless they are at the
    same file at the same moment: in a clone in which nothing has run yet that is two thirds of their time.
    """
    folder = yield
    worker = getattr(parent.config, "workerinput", None)
    if folder is None or worker is None:
        return folder
    collected, part = folder.collect, int(worker["workerid"].removeprefix("gw")) / worker["workercount"]

    def rotated() -> list[pytest.Item | pytest.Collector]:
        children = list(collected())
        first = int(part * len(children))
        return children[first:] + children[:first]

    folder.collect = rotated  # type: ignore[method-assign]
    return folder


def _place(item: pytest.Item) -> tuple[int, Path]:
    places = (place for place, start in enumerate(LONGEST_FIRST) if item.nodeid.startswith(start))
    return next(places, len(LONGEST_FIRST)), item.path


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each test longer where the machine is slow: its marker's time, or the one of pyproject.toml."""
    if hasattr(config, "workerinput"):
        items.sort(key=_place)
    default = config.getoption("timeout")
    default = patience(float(config.getini("timeout"))) if default is None else default
    for item in items:
        marker = item.get_closest_marker("timeout")
        limit_s = patience(marker.args[0]) if marker else default
        item.add_marker(pytest.mark.timeout(limit_s), append=False)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose marker names something that this machine does not have."""
    if item.get_closest_marker("root") and (reason := reason_without_root()):
        pytest.skip(reason)
    if item.get_closest_marker("mininet") and (reason := reason_without_root() or reason_without_mininet()):
        pytest.skip(reason)
    if item.get_closest_marker("bmv2") and shutil.which("simple_switch_grpc") is None:
        pytest.skip("simple_switch_grpc is not on PATH")

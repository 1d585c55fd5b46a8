"""What other users of the machine can reach of a switch and a controller: nothing, unless somebody asks for it."""

from __future__ import annotations

import json
import os
import resource
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from support.timing import patience
from switchsum_protocol.clients.controller_client import ControllerClient
from switchsum_switch.process.ready import PROGRESS, READY_FD
from switchsum_switch.process.runtime_directory import RUNTIME_VARIABLE

from .conftest import NAMESPACES, Run

pytestmark = pytest.mark.timeout(patience(120))

SWITCHSUM = (sys.executable, "-m", "switchsum")
FEW_FILES = 128
NOBODYS = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]


def children(parent: int) -> set[int]:
    """Return the children of a process; others on this machine may end while it is looked at."""
    found = set()
    for entry in Path("/proc").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            if entry.name.isdigit() and f"\nPPid:\t{parent}\n" in (entry / "status").read_text():
                found.add(int(entry.name))
    return found


def listening(pids: set[int]) -> set[str]:
    """Return what processes listen at that others could come to: TCP, and abstract names of Unix sockets."""
    inodes = set()
    for pid in pids:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                inodes.add(os.readlink(entry).removeprefix("socket:[").removesuffix("]"))
            except OSError:
                pass
    found = set()
    for kind in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.add(f"{kind} {fields[1]}")
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if len(fields) > 7 and fields[7].startswith("@") and fields[6] in inodes:
            found.add(fields[7])
    return found


@contextmanager
def daemon(environment: Mapping[str, str], *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    """Start a command that may open few files at first; yield it with what it announces once it is ready."""
    reading, writing = os.pipe()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    process = subprocess.Popen(
        ["prlimit", f"--nofile={FEW_FILES}:{hard}", *SWITCHSUM, *arguments],
        env={**environment, READY_FD: str(writing)},
        pass_fds=[writing],
        stderr=subprocess.PIPE,
    )
    os.close(writing)
    try:
        with os.fdopen(reading) as pipe:
            said = map(json.loads, pipe)  # first how far a compiler is, where one has to run
            yield process, next(facts for facts in said if PROGRESS not in facts)
    finally:
        process.kill()
        process.communicate()


def test_parts_find_each_other_without_options_and_nobody_else_finds_them(tmp_path: Path) -> None:
    environment = {**os.environ, RUNTIME_VARIABLE: str(tmp_path / "sockets")}
    environment.pop("SWITCHSUM_CONTROLLER", None)
    with ExitStack() as stack:
        switch, facts = stack.enter_context(daemon(environment, "switch", "--shm", "here", "--engine", "interpreter"))
        assert facts == {"p4runtime": f"unix:{tmp_path}/sockets/p4runtime"}
        controller, facts = stack.enter_context(daemon(environment, "controller", "--lanes", "128"))
        assert facts == {"controller": f"unix:{tmp_path}/sockets/controller"}
        for command in (["job", "create", "a", "-n", "1"], ["job", "list"]):
            done = subprocess.run(
                [*SWITCHSUM, *command, "--json"],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=patience(50),
            )
            assert done.returncode == 0, done.stderr
            assert [job["job"] for job in json.loads(done.stdout)] == ["a"]
        assert listening({switch.pid, controller.pid}) == set()
        assert stat.S_IMODE((tmp_path / "sockets").stat().st_mode) == 0o700
        for name in ("p4runtime", "controller", "shm-here"):
            assert stat.S_IMODE((tmp_path / "sockets" / name).stat().st_mode) == 0o600
        again = subprocess.run(
            [*SWITCHSUM, "switch"], env=environment, capture_output=True, text=True, check=False, timeout=patience(50)
        )
        assert (again.returncode, again.stderr.count("\n")) == (1, 1)
        assert "another process listens at" in again.stderr


@pytest.mark.root
def test_another_user_reaches_neither_switch_nor_controller() -> None:
    # Not below pytest's own directories, which keep him out already.
    place = Path(f"/tmp/switchsum-test-{os.getpid()}")
    place.mkdir()
    place.chmod(0o755)
    try:
        with daemon(dict(os.environ), "switch", "--listen", f"unix:{place}/p4runtime", "--engine", "interpreter"):
            script = f"from socket import *; socket(AF_UNIX).connect('{place}/p4runtime')"
            command = [*NOBODYS, sys.executable, "-I", "-c", script]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert "PermissionError" in done.stderr
    finally:
        (place / "p4runtime").unlink(missing_ok=True)
        place.rmdir()


def test_a_run_listens_where_nobody_else_comes(run: Run, tmp_path: Path) -> None:
    script = (
        f"import os, sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "from tests.system.test_trust import children, listening\n"
        "import switchsum\n"
        "with switchsum.connect() as communicator:\n"
        "    parent = os.getppid()\n"
        "    seen = children(parent)\n"
        "    print('listening', listening(seen | {parent}), len(seen))\n"
    )
    done = run("-n", "1", command=[sys.executable, "-c", script])
    assert done.returncode == 0, done.stderr
    found, processes = done.stdout.rsplit(" ", 1)
    assert found.endswith("listening set()")
    assert int(processes) >= 3  # switch, controller, worker


def test_silent_connections_to_tcp_keep_no_command_out(tmp_path: Path) -> None:
    environment = {**os.environ, RUNTIME_VARIABLE: str(tmp_path / "sockets")}
    with ExitStack() as stack:
        stack.enter_context(daemon(environment, "switch", "--engine", "interpreter"))
        process, facts = stack.enter_context(
            daemon(environment, "controller", "--listen", "127.0.0.1:0", "--lanes", "128")
        )
        assert listening({process.pid}) != set()
        host, _, port = facts["controller"].rpartition(":")
        for _ in range(3 * FEW_FILES):
            stack.enter_context(socket.create_connection((host, int(port)), timeout=patience(10)))
        with ControllerClient(facts["controller"], timeout_s=patience(10)) as client:
            assert client.list_jobs().jobs == []


@pytest.mark.root
@NAMESPACES
def test_two_jobs_of_two_containers_on_one_network_do_not_meet(tmp_path: Path) -> None:
    # Each launcher is process 1 or so of its own numbering.
    apart = ["unshare", "--pid", "--fork", "--mount", "--mount-proc"]
    script = (
        "import switchsum, pathlib, time\n"
        "with switchsum.connect() as communicator:\n"
        "    pathlib.Path(MINE).touch()\n"
        "    while not pathlib.Path(OTHER).exists(): time.sleep(0.02)\n"
        "    communicator.barrier()\n"
    )
    jobs = []
    for mine, other in ("ab", "ba"):
        text = f"MINE, OTHER = {str(tmp_path / mine)!r}, {str(tmp_path / other)!r}\n{script}"
        command = [*apart, *SWITCHSUM, "run", "-n", "1", "--", sys.executable, "-c", text]
        jobs.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    try:
        for job in jobs:
            output, _ = job.communicate(timeout=patience(100))
            assert job.returncode == 0, output
    finally:
        for job in jobs:
            job.kill()
            job.communicate()

"""The processes that `custom.py` starts, and their folder and ports; needs the standard library only, not Mininet."""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import select
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

STOP_S = 3.0

_folder: Path | None = None
_ports: set[int] = set()
_compilers: dict[str, subprocess.Popen[bytes]] = {}


class Daemon:
    """A switch or controller as a child process; the kernel ends it if Mininet dies."""

    def __init__(self, name: str, command: list[str], log: Path) -> None:
        self.name = name
        self.log = log
        self.said = b""
        self.heard_s = time.monotonic()
        """Time when it was started, or when it last said that it compiles."""
        self.progress = ""
        """Its last message about what it compiles."""
        self.ready, writing = os.pipe()
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[writing],
                env={**os.environ, "SWITCHSUM_READY_FD": str(writing)},
                start_new_session=True,  # Ctrl-C in Mininet's CLI must not end the switch
            )
        os.close(writing)

    def is_ready(self, wait_s: float) -> bool:
        """Return whether the daemon has said that it is ready; wait for that at most `wait_s`."""
        readable, _, _ = select.select([self.ready], [], [], wait_s)
        if readable:
            self.said += os.read(self.ready, 65536)
        *lines, self.said = self.said.split(b"\n")
        progress = [line for line in lines if b'"progress"' in line]  # switch/src/switchsum_switch/process/ready.py
        if progress:
            self.heard_s = time.monotonic()
            self.progress = str(json.loads(progress[-1])["progress"])
        return len(lines) > len(progress)

    def has_ended(self) -> bool:
        """Return whether the process has ended."""
        return self.process.poll() is not None

    def explain(self) -> str:
        """Return what is wrong with the daemon, with the last line of its log."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        state = "has ended" if self.has_ended() else "is not ready"
        return f"{self.name} {state}: {lines[-1] if lines else 'it said nothing'}"

    def stop(self) -> None:
        """End the process and wait for its end; again, it does nothing."""
        if self.ready < 0:
            return
        end_all([self.process])
        os.close(self.ready)
        self.ready = -1


def end_all(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes and wait for their end; one that does not heed SIGTERM is killed after STOP_S."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    deadline = time.monotonic() + STOP_S
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def run_folder() -> Path:
    """Return the folder for sockets and logs of this process; it is removed when the process ends.

    A process that is killed leaves its folder, but the kernel drops the lock in it.  So folders of this user that are
    not locked are removed here.
    """
    global _folder  # noqa: PLW0603
    if _folder is None:
        for lock in Path(tempfile.gettempdir()).glob("switchsum-mininet-*/lock"):
            with suppress(OSError):  # it is locked, or its process ends just now and removes it
                if lock.parent.lstat().st_uid == os.geteuid():
                    with lock.open() as file:
                        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        shutil.rmtree(lock.parent, ignore_errors=True)
        _folder = Path(tempfile.mkdtemp(prefix="switchsum-mininet-"))
        fcntl.flock(os.open(_folder / "lock", os.O_CREAT | os.O_RDWR), fcntl.LOCK_EX)  # until the process ends
        atexit.register(shutil.rmtree, _folder, ignore_errors=True)
    return _folder


def free_port() -> int:
    """Return a TCP port that is free now, and that was not returned before."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            number = int(probe.getsockname()[1])
        if number not in _ports:
            _ports.add(number)
            return number


def compile_for_hosts(command: Path, folder: Path) -> None:
    """Compile the kernels of hosts at the same time as the switches compile; called only if these have to."""
    if "hosts" not in _compilers:
        guarded = ["setpriv", "--pdeathsig", "KILL", "--", str(command), "warm", "--workers"]
        with (folder / "hosts.log").open("ab") as output:
            _compilers["hosts"] = subprocess.Popen(
                guarded, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

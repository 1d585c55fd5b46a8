"""Ends the launcher and its children: by signals that it can catch, and by SIGKILL, which it cannot.

`ended_by_signals` turns SIGINT, SIGTERM and SIGHUP into an exception, so that every `with` block ends what it has
started.  After SIGKILL no code of the launcher runs.  For this case there is a `Guard`: a small process that notices
the launcher's death, kills the process groups of its children, and removes its temporary folder.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

ENDINGS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals by which terminals, users and schedulers end a job."""
_GUARD: Final = (
    'while IFS= read -r line; do case $line in /*) folder=$line;; *) set -- "$@" "-$line";; esac; done; '
    '[ $# = 0 ] || kill -s KILL -- "$@"; [ -z "$folder" ] || rm -rf -- "$folder"'
)
"""The guard's shell script: read process groups and a folder until the pipe ends, which it does when the launcher dies;
kill the groups and remove the folder."""

_held_back: list[int] = []
"""Exit code of a signal that came while a folder was being removed, or 0."""


def shell_code(code: int) -> int:
    """Turn an exit code of subprocess into that of a shell, which is 128 + number for a signal."""
    return 128 - code if code < 0 else code


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Within the block, let each signal of ENDINGS raise SystemExit with a shell's exit code (130, 143, 129).

    Only the first signal counts: a second Ctrl-C must not interrupt the clean-up, whose time is limited.  A signal that
    is ignored already stays ignored, as `nohup` wants it.  For the main thread only.
    """

    def end(number: int, frame: FrameType | None) -> None:
        for each in changed:
            signal.signal(each, signal.SIG_IGN)
        if _held_back:
            _held_back[-1] = shell_code(-number)
            return
        raise SystemExit(shell_code(-number))

    changed = {number: handler for number in ENDINGS if (handler := signal.getsignal(number)) is not signal.SIG_IGN}
    try:
        for number in changed:
            signal.signal(number, end)
        yield
    finally:
        for number, handler in changed.items():
            signal.signal(number, handler)


@contextmanager
def scratch_folder() -> Iterator[str]:
    """Make a folder for the block, and remove it, also if a signal of `ended_by_signals` ends either half-way.

    Its name is chosen before it is made.  A signal that comes while the folder is removed waits.  A signal that comes a
    moment before raises, only once, and the folder is removed all the same.
    """
    # Short: sockets are in it, whose paths have 107 bytes at most.
    folder = os.path.join(tempfile.gettempdir(), f"switchsum-{secrets.token_hex(4)}")
    try:
        try:
            os.mkdir(folder, 0o700)
            yield folder
        finally:
            _remove(folder)
    finally:
        _remove(folder)


def _remove(folder: str) -> None:
    """Remove a folder; a signal that comes meanwhile raises SystemExit when that is done, for `rmtree` bears none."""
    _held_back.append(0)
    try:
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        code = _held_back.pop()
    if code:
        raise SystemExit(code)


class Guard:
    """Kills process groups and removes a folder if this process dies before it has called `dismiss`."""

    def __init__(self) -> None:
        # In a session of its own, and with the launcher's signals ignored, since it must outlive the launcher.
        self._process = subprocess.Popen(
            ["sh", "-c", f"trap '' HUP INT TERM; folder=; {_GUARD}", "switchsum-guard"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )

    def watch(self, group: int) -> None:
        """Add a process group to those that are killed if this process dies."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"%d\n" % group)

    def remove(self, folder: str) -> None:
        """Have a folder removed, with all that is in it, when this process dies."""
        assert self._process.stdin is not None
        assert folder.startswith("/")
        if "\n" not in folder:
            self._process.stdin.write(os.fsencode(folder) + b"\n")

    def dismiss(self) -> None:
        """End the guard; it kills nothing."""
        self._process.kill()  # before the pipe is closed, which the guard would take for the launcher's death
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()

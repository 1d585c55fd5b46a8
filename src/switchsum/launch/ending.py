"""How a launcher ends: by the signals of terminals and schedulers, and by one that no process can catch.

`ended_by_signals` turns SIGINT, SIGTERM and SIGHUP into an exception, so that every `with` block on the way out ends
what it has started.  SIGKILL leaves no time for that: a `Guard` is a small process that sees the launcher die and kills
the process groups which the launcher had told it of.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn

ENDINGS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What terminals, users and schedulers send to end a job."""
_GUARD: Final = 'while read -r group; do set -- "$@" "-$group"; done; [ $# = 0 ] || kill -s KILL -- "$@"'
"""A shell's loop: reads process groups until the pipe ends, which it does when the launcher is no more."""


def shell_code(code: int) -> int:
    """Turn subprocess's exit code into a shell's: 128 + number for a signal."""
    return 128 - code if code < 0 else code


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let each signal of ENDINGS raise SystemExit with a shell's exit code (130, 143, 129) inside the block.

    Only the first one counts: a second Ctrl-C must not interrupt the clean-up, which is bounded by itself.  A signal
    that the caller ignores stays ignored, as `nohup` wants it.  For the main thread only.
    """

    def end(number: int, frame: FrameType | None) -> NoReturn:
        for each in changed:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(shell_code(-number))

    changed = {number: handler for number in ENDINGS if (handler := signal.getsignal(number)) is not signal.SIG_IGN}
    try:
        for number in changed:
            signal.signal(number, end)
        yield
    finally:
        for number, handler in changed.items():
            signal.signal(number, handler)


class Guard:
    """Kills process groups when this process dies without having dismissed it."""

    def __init__(self) -> None:
        # A session of its own, and deaf to what ends the launcher: it must be the last one to leave.
        self._process = subprocess.Popen(
            ["sh", "-c", f"trap '' HUP INT TERM; {_GUARD}", "switchsum-guard"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )

    def watch(self, group: int) -> None:
        """Have a process group killed when this process dies."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"%d\n" % group)

    def dismiss(self) -> None:
        """End the guard; it kills nothing."""
        self._process.kill()  # before its pipe ends, which it would take for our death
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()

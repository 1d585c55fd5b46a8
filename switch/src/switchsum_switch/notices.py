"""Lines on standard error: what a process tells its user, and what a long wait waits for."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

QUIET_S: Final = 2.0
"""Seconds of waiting without a message. After that, a message says what is waited for."""


def say(text: str) -> None:
    """Write a line to standard error, if there is one."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"switchsum: {text}\n")
        sys.stderr.flush()


@contextmanager
def waiting_for(what: str | Callable[[], str]) -> Iterator[None]:
    """Say on standard error what is waited for, if it takes longer than two seconds.

    If `what` is a function, it is called at that time, on another thread.
    """
    timer = threading.Timer(QUIET_S, lambda: say(f"waiting for {what if isinstance(what, str) else what()}"))
    timer.daemon = True
    with suppress(RuntimeError):  # no thread can be started: what needs one says so
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def ranks_of(job: str, ranks: list[int]) -> str:
    """Name ranks of a job."""
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))} of job {job!r}"

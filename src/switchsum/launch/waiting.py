"""Waits of commands, which are said when they are long."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

QUIET_S: Final = 2.0
"""A command that waits for longer says what for."""


@contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Say on standard error what a command waits for, if it takes longer than two seconds."""
    timer = threading.Timer(QUIET_S, lambda: sys.stderr.write(f"switchsum: waiting for {what}\n"))
    timer.daemon = True
    with suppress(RuntimeError):  # no thread can be started: what needs one says so
        timer.start()
    try:
        yield
    finally:
        timer.cancel()

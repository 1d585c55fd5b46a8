"""The code with which the program ends: Python forgets it before it calls what `atexit` has.

The interpreter asks an exception that nobody has caught for its code.  So `sys.exit` raises one that notes who asks.
`raise SystemExit(1)` is not seen, for that type cannot be changed.

Could the others find out without it?  They conclude from what the switch waits for that a rank has left too early
(`departures`), but not across a tree's switches, and nothing of a failed rank whose last collective has ended: its job
would end well, as far as they can tell.
"""

from __future__ import annotations

import sys
import threading
from typing import NoReturn

_exit = sys.exit


class _Exit(SystemExit):
    """What `sys.exit` raises in the main thread; of other threads Python wants SystemExit itself."""

    ends_badly = False

    def __getattribute__(self, name: str) -> object:
        value = super().__getattribute__(name)
        if name == "code" and sys._getframe().f_back is None:  # no Python asks, so nobody has caught it
            _Exit.ends_badly = value is not None and value != 0
        return value


_Exit.__name__ = _Exit.__qualname__ = SystemExit.__name__


def exit_noted(status: object = None, /) -> NoReturn:
    """Do what `sys.exit` does."""
    if threading.current_thread() is threading.main_thread():
        raise _Exit(status)
    _exit(status)  # type: ignore[arg-type]


def note_exit_code() -> None:
    """Put `exit_noted` in the place of `sys.exit`, unless another function is there."""
    if sys.exit is _exit:
        sys.exit = exit_noted


def is_failing() -> bool:
    """Whether an exception is being handled in this thread, or has ended the program, or `sys.exit` as a failure."""
    return sys.exception() is not None or getattr(sys, "last_value", None) is not None or _Exit.ends_badly

"""What becomes of an exception that a signal handler raises in the midst of a collective.

Python runs signal handlers between two instructions of the main thread, and what they raise (KeyboardInterrupt, a
time-out's error) comes out of whatever line that was.  A collective cannot be left there: the other ranks wait for this
one, or count it in when this rank has gone on to the next call.  So there are three cases:

1. **The collective comes to its end first.**  What was raised is held back (`HeldBack`), the collective goes on, and
   `Handle.wait` raises it when the result is in its place.  Each step on that way may be taken twice: it finds out how
   far it was taken before.  `Engine.submitted` tells whether the operation was begun, and a handle is in `_in_flight`
   until its end was noted.
2. **It cannot wait.**  What ends programs (KeyboardInterrupt, SystemExit) waits `HOLD_BACK_S` at most, and not when it
   comes a second time.  What is raised `MOST_AGAIN` times without any progress comes from no signal handler.  Then the
   communicator is broken, and raises Interrupted from then on: nobody can tell what the other ranks have.
3. **Nobody can tell where it was.**  On a few lines, between a call's first one and those that hold back, the
   decorators here break the communicator, too.

An error of ours (SwitchsumError) that was raised before the collective was begun is the caller's at once.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from switchsum.protocol.errors import Interrupted, UsageError

_P = ParamSpec("_P")
Made = TypeVar("Made")

HOLD_BACK_S: Final = 2.0
"""How long a collective that is interrupted by what ends programs, KeyboardInterrupt or SystemExit, may still take."""
MOST_AGAIN: Final = 64
"""Something that is raised so often without any progress in between comes from no signal handler."""


class HeldBack:
    """What a signal handler has raised in the midst of a collective, until that has come to its end."""

    __slots__ = ("again", "ends_at", "error")

    def __init__(self, error: BaseException | None) -> None:
        self.error = error
        self.again = 0
        """How often something was raised since the collective went on."""
        self.ends_at = math.inf
        """When it is raised at the latest."""

    def note(self, error: BaseException, now: float) -> bool:
        """Keep what was raised last; False: it is to be raised now."""
        self.again += 1
        if self.error is None or not isinstance(error, Exception):
            self.error = error
        if isinstance(error, Exception):
            return self.again < MOST_AGAIN
        is_first, self.ends_at = self.ends_at == math.inf, min(self.ends_at, now + HOLD_BACK_S)
        return is_first


def breaks_if_interrupted(method: Callable[_P, Made]) -> Callable[_P, Made]:
    """Break the communicator where something foreign is raised between the lines of a call, and not at a good place.

    What a signal handler raises where it can be held back, is; a few lines are left, where nobody could tell whether
    other ranks wait for this one.
    """
    return _breaking(method, has_steps=False)


def breaks_between_steps(method: Callable[_P, Made]) -> Callable[_P, Made]:
    """Do the same where a call is several collectives, of which each may come to a good end."""
    return _breaking(method, has_steps=True)


def _breaking(method: Callable[_P, Made], *, has_steps: bool) -> Callable[_P, Made]:
    @wraps(method)
    def call(*arguments: _P.args, **options: _P.kwargs) -> Made:
        try:
            return method(*arguments, **options)
        except BaseException as error:
            if not _is_about_arguments(error):
                communicator: Any = arguments[0]
                if has_steps:
                    communicator._delivered = None
                communicator._broken_off(error)
            raise

    return call


def _is_about_arguments(error: BaseException) -> bool:
    """Whether a call did not come to its first line, for it does not take such arguments."""
    trace = error.__traceback__
    return isinstance(error, TypeError) and trace is not None and trace.tb_next is None


def check_process(pid: int) -> None:
    """Raise UsageError in a process that was forked from the one to which a communicator belongs."""
    if os.getpid() != pid:
        raise UsageError(f"this communicator belongs to process {pid}; connect in this one if it needs any")


def interrupted(error: BaseException) -> Interrupted:
    """Return what breaks a communicator when something was raised that could not wait."""
    kind = type(error).__name__
    return Interrupted(f"{kind} was raised in the midst of a collective, which other ranks may have ended, or wait for")

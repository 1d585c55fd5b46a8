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
import threading
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from switchsum.protocol.errors import Interrupted, SwitchsumError, UsageError

if TYPE_CHECKING:
    from ..links.driver import Driver
    from .handle import Handle
    from .steps import StepQueue

_P = ParamSpec("_P")
Made = TypeVar("Made")

LONGEST_WAIT_S: Final = 0.05
"""How soon a waiting collective notices what heartbeats have brought."""
HOLD_BACK_S: Final = 2.0
"""How long a collective that is interrupted by what ends programs, KeyboardInterrupt or SystemExit, may still take."""
MOST_AGAIN: Final = 64
"""Something that is raised so often without any progress in between comes from no signal handler."""

_WITHIN: Final = (
    "this thread is in the midst of a collective of this communicator: a signal handler or a callback cannot call "
    "another one; have it set a flag, and call it when the first one has returned"
)


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

    @wraps(method)
    def call(*arguments: _P.args, **options: _P.kwargs) -> Made:
        try:
            return method(*arguments, **options)
        except BaseException as error:
            if not _is_about_arguments(error):
                arguments[0]._broken_off(error)  # type: ignore[attr-defined]
            raise

    return call


def breaks_between_steps(method: Callable[_P, Made]) -> Callable[_P, Made]:
    """Do the same where a call is several collectives, of which each may come to a good end."""

    @wraps(method)
    def call(*arguments: _P.args, **options: _P.kwargs) -> Made:
        try:
            return method(*arguments, **options)
        except BaseException as error:
            if not _is_about_arguments(error):
                arguments[0]._delivered = None  # type: ignore[attr-defined]
                arguments[0]._broken_off(error)  # type: ignore[attr-defined]
            raise

    return call


def _is_about_arguments(error: BaseException) -> bool:
    """Whether a call did not come to its first line, for it does not take such arguments."""
    trace = error.__traceback__
    return isinstance(error, TypeError) and trace is not None and trace.tb_next is None


class Interruptible:
    """The steps of a collective, each of which may be interrupted and taken again; for `Communicator`."""

    _driver: Driver
    _steps: StepQueue | None = None
    _turn: threading.RLock
    _in_flight: dict[int, Handle]
    _waiters: set[int]
    _delivered: BaseException | None
    _early: tuple[int, BaseException] | None
    _closed: bool
    _pid: int
    _thread: threading.Thread | None
    _wanted: threading.Event
    _seconds: float

    if TYPE_CHECKING:
        # What the communicator has.
        @property
        def _is_over(self) -> bool: ...
        def _wait_for_turn(self) -> None: ...
        def _begin(self, handle: Handle, most_s: float) -> None: ...
        def _has_begun(self, handle: Handle) -> bool: ...
        def _drive(self, handle: Handle) -> None: ...
        def _step(self, most_s: float) -> None: ...
        def _check(self) -> None: ...
        def _fail(self, error: SwitchsumError) -> None: ...
        def _close_link(self) -> None: ...

    def _note_early(self, error: BaseException | None) -> None:
        self._early = None if error is None else (threading.get_ident(), error)

    def _take_early(self, handle: Handle) -> None:
        """Hold back with a collective what was raised in this thread before it was begun."""
        early = self._early
        if early is not None and early[0] == threading.get_ident():
            handle._held, self._early = handle._held or HeldBack(early[1]), None

    def _broken_off(self, error: BaseException) -> None:
        if not isinstance(error, SwitchsumError) and error is not self._delivered and not self._is_over:
            self._fail(interrupted(error))

    def _bring_on(self, handle: Handle, *, begin: bool, to_end: bool) -> None:
        """Begin a collective, unless that was done, and drive it to its end if that is wanted.

        Raises UsageError in a signal handler, or a callback, that interrupts its own thread's collective with another.
        What a handler raises in here is held back.  Each step can be taken again after that: it finds out how far it
        was taken.
        """
        if self._turn._is_owned():  # type: ignore[attr-defined]
            raise UsageError(_WITHIN)
        if begin and self._early is not None:
            self._take_early(handle)
        while True:
            try:
                if begin and self._steps is not None:
                    self._steps.wait_for_last_steps()
                if os.getpid() != self._pid:
                    check_process(self._pid)
                began = self._driver.clock()
                # No context manager of Python's own, which would take a small allreduce 3 us.
                if not self._turn.acquire(blocking=False):
                    self._wait_for_turn()
                try:
                    if self._closed:
                        raise UsageError("this communicator is closed")
                    if begin:
                        self._begin(handle, LONGEST_WAIT_S if to_end else 0.0)
                    if to_end and handle._finished is None:
                        self._drive(handle)
                finally:
                    if self._thread is not None and (self._in_flight or self._driver.engine.awaits_switch):
                        self._wanted.set()
                    self._turn.release()
                    self._seconds += self._driver.clock() - began
                return
            except BaseException as error:
                self._hold_back(handle, error)

    def _hold_back(self, handle: Handle, error: BaseException) -> None:
        """Keep what a signal handler has raised until a collective has ended; raises whatever else it is."""
        self._clean_up()
        own = isinstance(error, SwitchsumError) and not self._has_begun(handle)
        if own or self._is_over or os.getpid() != self._pid:
            held, handle._held = handle._held, None
            if held is not None and held.error is not None and held.error is not error:
                raise held.error from error
            raise error
        self._note(handle, error)

    def _note(self, handle: Handle, error: BaseException) -> None:
        """Keep what was raised, unless it cannot wait."""
        handle._held = handle._held or HeldBack(None)
        if not handle._held.note(error, self._driver.clock()):
            self._fail(interrupted(error))
            raise error

    def _clean_up(self) -> None:
        """Give back what a call of this thread has kept that was interrupted anywhere."""
        if self._turn._is_owned():  # type: ignore[attr-defined]
            self._turn.release()
        self._waiters.discard(threading.get_ident())
        if self._closed:
            self._close_link()


def check_process(pid: int) -> None:
    """Raise UsageError in a process that was forked from the one to which a communicator belongs."""
    if os.getpid() != pid:
        raise UsageError(f"this communicator belongs to process {pid}; connect in this one if it needs any")


def interrupted(error: BaseException) -> Interrupted:
    """Return what breaks a communicator when something was raised that could not wait."""
    kind = type(error).__name__
    return Interrupted(f"{kind} was raised in the midst of a collective, which other ranks may have ended, or wait for")

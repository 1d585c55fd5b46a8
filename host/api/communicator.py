"""The communicator: collectives for callers, on top of an engine, its driver and the membership."""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from collections.abc import Callable, Hashable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final

import numpy as np

from switchsum.protocol.errors import SwitchsumError, UsageError

from ..engine.operation import Operation
from ..links.driver import Driver
from .calls import CollectiveCalls
from .driving import LONGEST_WAIT_S, Member
from .exit_code import is_failing, note_exit_code

if TYPE_CHECKING:
    from .statistics import Statistics

_log: Final = logging.getLogger(__name__)
LONGEST_FAREWELL_S: Final = 0.5
"""How long `close` waits for a restarted switch to answer."""


class Communicator(CollectiveCalls):
    """One rank of a job: every rank calls the same collectives in the same order.

    Collectives may be called from several threads, one of which works at a time.  After an error other than
    UsageError, UnsupportedDtype and SumOverflow the communicator is broken and raises that error again.  A call that is
    refused on some rank still counts as one: unless it is on all of them, all raise OperationMismatch.  In a forked
    child it is inert: nothing of it works there, and neither closing it nor the child's exit touches anything.

    A collective that was begun comes to its end: what a signal handler raises meanwhile is raised after that.  Only
    what ends programs, KeyboardInterrupt and SystemExit, waits for no more than two seconds, and not when it comes a
    second time: then the communicator is broken, and raises Interrupted from then on.  So it is where a handler raises
    in a collective of several steps that somebody waits in (sparse ones, small blocks).  A signal handler may close the
    communicator, but call no collective while it interrupts one: that is a UsageError.
    """

    def __init__(
        self,
        driver: Driver,
        membership: Member,
        *,
        rank: int,
        world_size: int,
        connect_again: Callable[[int, int], Communicator] | None = None,
        about: str = "",
    ) -> None:
        """Take what `connect` has made; `connect_again` does so for another rank and world size.

        `about` is what `repr` adds: job, switch and link.
        """
        super().__init__(driver, membership, rank, world_size)
        self._about = about
        self._connect_again = connect_again
        self.supports = np.zeros(3, np.int64)
        self._known: dict[Hashable, Operation] = {}
        after_heartbeat = weakref.WeakMethod(self._after_heartbeat)
        membership.on_heartbeat = lambda: (method := after_heartbeat()) and method()
        note_exit_code()
        atexit.register(_close_at_exit, weakref.ref(self))

    def __repr__(self) -> str:
        """Say which rank of which job this is, and how it reaches the switch."""
        state = "closed" if self._closed else "broken" if self._error is not None else "open"
        about = f", {self._about}" if self._about else ""
        return f"<Communicator rank {self.rank} of {self.world_size}{about}, {self.lanes_per_frame} lanes, {state}>"

    def statistics(self) -> Statistics:
        """Return what has happened so far."""
        from .statistics import Statistics  # noqa: PLC0415

        counts = self._driver.engine.counts
        return Statistics.of(counts, self.supports, collectives=self._finished, collective_s=self._seconds)

    @property
    def begun(self) -> int:
        """Collectives that were begun, those of several steps once for each."""
        return self._driver.engine.submitted

    def close(self) -> None:
        """Leave the job; the communicator can be used no more.  Calling it again does nothing.

        Collectives that other threads wait for, or the own one where this is a signal handler, end with UsageError.
        """
        self._close(failed=False)

    def _close(self, *, failed: bool) -> None:
        """Do what `close` does; with `failed` the others hear that this rank is lost, for they may wait for it."""
        if os.getpid() != self._pid or self._closed:
            return
        if self._in_flight:  # else this would wait as long as threads that wait for them
            self._fail(UsageError("this communicator was closed in the midst of a collective"))
        self._end()
        self._membership.leave(failed=failed)
        _log.info("has left after %d collectives", self._finished)

    def __del__(self) -> None:
        """Leave the job if nobody has closed the communicator and nobody can any more."""
        if not getattr(self, "_closed", True):
            with suppress(SwitchsumError):
                self.close()

    def reform(self) -> Communicator:
        """Go on without the ranks that are lost: return a new communicator of all the others; this one is closed.

        Every rank that is not lost calls it, after WorkerLost as a rule.  The ranks are numbered anew, in their old
        order, under a new epoch: nothing that was sent before counts any more.  The new communicator has the same
        arguments as this one in all other respects; collectives that had not ended are lost.  To go on with as many
        ranks as before, close this one, have somebody take the lost rank's place, and connect again.

        Raises CollectiveTimeout with the ranks that are neither lost nor call it, or what `connect` does.
        """
        if self._connect_again is None:
            raise UsageError("this communicator was not made by connect")
        if os.getpid() != self._pid or self._closed:
            raise UsageError("this communicator is closed")
        self._end()
        try:
            rank, world_size = self._membership.reform(self._driver.engine.timeout_s)
        finally:
            self._membership.leave()
        return self._connect_again(rank, world_size)

    def _end(self) -> None:
        """Stop all work, and close the link."""
        if self._turn._is_owned():  # type: ignore[attr-defined]
            # A signal handler has interrupted a collective of its own thread, which closes the link when it ends.
            self._closed = True
            return
        with self._entered():
            self._inform_switch()
            self._closed = True
            self._call_back()
        self._close_link()

    def _inform_switch(self) -> None:
        """Tell a switch that was restarted what others may still need, as long as that makes sense."""
        end = self._driver.clock() + LONGEST_FAREWELL_S
        while self._driver.engine.awaits_switch and self._error is None and self._driver.clock() < end:
            self._step(LONGEST_WAIT_S)

    def _after_heartbeat(self) -> None:
        """See to it that a restarted switch is told at once, and again; whoever drives does it, if anybody does."""
        is_due = self._loads != self._membership.loads or self._driver.engine.is_due(self._driver.clock())
        if is_due and self._turn.acquire(blocking=False):
            try:
                if not self._closed and self._error is None:
                    self._step(0.0)
                    if self._driver.engine.awaits_switch:
                        self._have_thread()
            finally:
                self._turn.release()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(failed=value is not None)


def _close_at_exit(reference: weakref.ref[Communicator]) -> None:
    """Leave the job when the program ends without having closed its communicator."""
    communicator = reference()
    if communicator is not None:
        communicator._close(failed=is_failing())

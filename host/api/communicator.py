"""The communicator: collectives for callers, on top of an engine, its driver and the membership."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from switchsum.protocol.errors import SwitchsumError, UsageError

from ..engine.events import Failed, Outcome
from ..engine.operation import Operation
from ..links.driver import Driver
from .calls import CollectiveCalls
from .exit_code import is_failing, note_exit_code
from .handle import Handle
from .interrupts import LONGEST_WAIT_S, Interruptible, interrupted

if TYPE_CHECKING:
    from .sparse import LastStep
    from .statistics import Statistics

Array = TypeVar("Array", bound=npt.NDArray[Any])

_log: Final = logging.getLogger(__name__)
LONGEST_FAREWELL_S: Final = 0.5
"""How long `close` waits for a restarted switch to answer."""
BACKGROUND_WAIT_S: Final = 0.001
"""How soon the background thread makes way for a caller who waits."""


class Member(Protocol):
    """What keeps a rank's place in the job."""

    error: SwitchsumError | None
    """Why the place is lost, or the job broken."""
    loads: int
    """How often the switch has been given its program; when it grows, the switch was restarted."""

    on_heartbeat: Callable[[], object]
    """What to call now and then, on a thread of its own; it must not block."""

    def explain(self, error: SwitchsumError) -> SwitchsumError:
        """Return an error with what only the controller knows: why a member is refused, which rank is the odd one."""
        ...

    def leave(self, *, failed: bool = False) -> None:
        """Give the place up, with `failed` as one that is lost to the others; calling it again does nothing."""
        ...

    def reform(self, timeout_s: float) -> tuple[int, int]:
        """Give it up for one among the ranks that are not lost; return the new rank and world size."""
        ...


class Communicator(Interruptible, CollectiveCalls):
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
        self._about = about
        self.rank = rank
        self.world_size = world_size
        self.lanes_per_frame = int(driver.engine.state.core[0]["lanes_per_frame"])
        self.supports = np.zeros(3, np.int64)
        self._known: dict[Hashable, Operation] = {}
        self._driver = driver
        self._membership = membership
        self._connect_again = connect_again
        self._pid = os.getpid()
        self._turn = threading.RLock()
        self._wanted = threading.Event()
        self._holds_back = False
        self._waiters: set[int] = set()
        self._delivered: BaseException | None = None
        self._early: tuple[int, BaseException] | None = None
        self._in_flight: dict[int, Handle] = {}
        self._error: SwitchsumError | None = None
        self._loads = membership.loads
        self._closed = False
        self._is_open = True
        self._is_noted = driver.trace is not None or _log.isEnabledFor(logging.DEBUG)
        self._thread: threading.Thread | None = None
        self._finished = 0
        self._began: dict[int, tuple[float, str]] = {}
        self._seconds = 0.0
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

        From a signal handler in the midst of a collective of its thread, that collective ends with UsageError.
        """
        self._close(failed=False)

    def _close(self, *, failed: bool) -> None:
        """Do what `close` does; with `failed` the others hear that this rank is lost, for they may wait for it."""
        if os.getpid() != self._pid or self._closed:
            return
        if failed and self._in_flight:  # else who waits for this rank would hear of it when its threads time out
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

    def _close_link(self) -> None:
        """Wait until nobody works, and close the link, unless that was done; the communicator is closed."""
        if not self._is_open:
            return
        self._is_open = False
        self._call_back()
        self._wanted.set()
        if self._steps is not None:
            self._steps.close()
        # The system may have refused to start the thread, or an interrupt have come in between.
        if self._thread is not None and self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        self._driver.transport.close()
        self._membership.on_heartbeat = lambda: None  # no circle: what a closed communicator had mapped goes with it
        if self._driver.trace is not None:
            self._driver.trace.write()

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

    def _prepare(self, operation: Operation) -> Operation:
        return self._driver.engine.prepare(operation)

    def _start(self, handle: Handle, background: bool) -> Handle:
        self._bring_on(handle, begin=True, to_end=False)
        if background:
            self._have_thread()
        if handle._held is not None and not self._holds_back:
            handle.wait()  # else it would go on, and nobody had a handle
        return handle

    def _begin_steps(self, steps: Callable[[], LastStep]) -> Handle:
        from .steps import begin_steps  # noqa: PLC0415 - most jobs have no collective of several steps

        return begin_steps(self, steps)

    def _have_thread(self) -> None:
        """Start the background thread, unless it runs."""
        if self._thread is None:
            arguments = weakref.ref(self), self._turn, self._wanted
            self._thread = threading.Thread(
                target=_work, args=arguments, name=f"switchsum rank {self.rank}", daemon=True
            )
            self._thread.start()
        self._wanted.set()

    @property
    def _is_over(self) -> bool:
        return self._error is not None or self._closed

    def _call_back(self) -> None:
        """Have everybody called back whose collective will not end any more."""
        for handle in list(self._in_flight.values()):
            handle._call_back()

    @contextmanager
    def _entered(self) -> Iterator[None]:
        """Hold the lock, for which the background thread makes way; whoever waits for it may be interrupted."""
        self._wait_for_turn()
        try:
            yield
        finally:
            self._turn.release()

    def _wait_for_turn(self) -> None:
        """Take the driver, from which the background thread steps back."""
        with self._waiting():
            self._turn.acquire()

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Have the background thread make way."""
        own = threading.get_ident()
        self._waiters.add(own)
        try:
            yield
        finally:
            self._waiters.discard(own)

    def _begin(self, handle: Handle, most_s: float) -> None:
        """Hand an operation to the engine, unless that was done, and let the driver do one step."""
        engine = self._driver.engine
        if handle._serial >= 0 and self._has_begun(handle):
            return
        self._check()
        while engine.is_full:
            self._step(LONGEST_WAIT_S)
            self._check()
        serial = engine.submitted
        handle._serial, self._in_flight[serial] = serial, handle
        if self._is_noted:
            self._began[serial] = self._driver.clock(), str(handle._operation)
            _log.debug("collective %d begins: %s", serial, handle._operation)
        if self._loads != self._membership.loads:
            self._note_restart()
        self._note_events(self._driver.begin(handle._operation, handle._values, most_s))

    def _has_begun(self, handle: Handle) -> bool:
        """Whether the engine has a collective's operation, or had it."""
        serial = handle._serial
        if handle._finished is not None or serial < 0:
            return serial >= 0
        return self._in_flight.get(serial) is handle and self._driver.engine.submitted > serial

    def _drive(self, handle: Handle) -> None:
        """Drive until a collective that was begun before has finished."""
        while handle._finished is None:
            self._check()
            self._step(LONGEST_WAIT_S)
            held = handle._held
            if held is not None:
                held.again = 0
                if held.error is not None and self._driver.clock() >= held.ends_at:
                    self._fail(interrupted(held.error))
                    raise held.error

    def _check(self) -> None:
        """Raise why the communicator is broken, if it is."""
        if self._error is None and self._membership.error is not None:
            self._fail(self._membership.error)
        if self._error is not None:
            raise self._error.with_traceback(None)
        if self._closed:
            raise UsageError("this communicator was closed in the midst of a collective")

    def _step(self, most_s: float) -> None:
        """Let the driver do one step, and note what has happened."""
        if self._loads != self._membership.loads:
            self._note_restart()
        try:
            events = self._driver.step(most_s)
        except UsageError:  # a signal handler's, which was refused something
            raise
        except SwitchsumError as error:
            self._fail(error)
            return
        self._note_events(events)

    def _note_span(self, began: float, name: str) -> None:
        """Have the trace show a collective that has ended."""
        if self._driver.trace is not None:
            self._driver.trace.called(name, began, self._driver.clock())

    def _note_restart(self) -> None:
        """Let the engine know that the switch has been given its program again."""
        loads = self._membership.loads
        self._driver.engine.restarted(self._driver.clock())
        self._loads = loads

    def _note_events(self, events: deque[Outcome]) -> None:
        """Note what has happened; each event goes once it was noted, so that none is lost on the way."""
        while events:
            event = events[0]
            if isinstance(event, Failed):
                self._fail(self._membership.explain(event.error))
            elif (handle := self._in_flight.get(event.operation)) is not None:
                if self._is_noted and event.operation in self._began:
                    self._note_span(*self._began.pop(event.operation))
                handle._end(event)
                self._finished += 1
                del self._in_flight[event.operation]
            events.popleft()

    def _fail(self, error: SwitchsumError) -> None:
        """Break the communicator, if it is not broken yet."""
        if self._error is None:
            _log.info("gives up: %s", error)
        self._error = self._error or error
        self._call_back()

    def _break(self, error: SwitchsumError) -> NoReturn:
        """Break the communicator, and raise why."""
        with self._entered():
            self._fail(error)
        self._check()
        raise error

    def _work(self) -> bool:
        """Drive for a moment if operations are in flight and nobody waits; False: there will be nothing to do."""
        if self._is_over:
            return False
        if self._waiters or not (self._in_flight or self._driver.engine.awaits_switch):
            self._wanted.clear()
            return True
        if self._membership.error is not None:
            self._fail(self._membership.error)
            return False
        self._step(BACKGROUND_WAIT_S)
        return True


def _work(reference: weakref.ref[Communicator], turn: threading.RLock, wanted: threading.Event) -> None:
    """Drive a communicator in the background for as long as there is one: nobody need close it."""
    is_wanted = True
    while is_wanted:
        wanted.wait()
        with turn:
            communicator = reference()
            is_wanted = communicator is not None and communicator._work()
        del communicator  # perhaps the last reference, with which it is closed


def _close_at_exit(reference: weakref.ref[Communicator]) -> None:
    """Leave the job when the program ends without having closed its communicator."""
    communicator = reference()
    if communicator is not None:
        communicator._close(failed=is_failing())

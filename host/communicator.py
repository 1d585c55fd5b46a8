"""The communicator: collectives for callers, on top of an engine, its driver and the membership."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from switchsum.host.calls import CollectiveCalls
from switchsum.host.collectives import Again, Call
from switchsum.host.driver import Driver
from switchsum.host.events import Failed
from switchsum.host.exact import Few, put_sums
from switchsum.host.handle import Handle
from switchsum.host.prepared import Prepared
from switchsum.host.programs import Programs
from switchsum.host.statistics import Statistics
from switchsum.protocol.errors import NotAdmitted, SwitchsumError, UsageError

Array = TypeVar("Array", bound=npt.NDArray[Any])

LONGEST_WAIT_S: Final = 0.05
"""How soon a waiting collective notices what heartbeats have brought."""
LONGEST_PAY_S: Final = 0.5
"""How long `close` waits for a restarted switch to answer."""
BACKGROUND_WAIT_S: Final = 0.001
"""How soon the background thread makes way for a caller who waits."""
MOST_KNOWN: Final = 256
"""Kinds of allreduces that are kept; most programs have few."""


class Holder(Protocol):
    """What keeps a rank's place in the job."""

    error: SwitchsumError | None
    """Why the place is lost, or the job broken."""
    loads: int
    """How often the switch has been given its program; when it grows, the switch was restarted."""

    on_heartbeat: Callable[[], object]
    """What to call now and then, on a thread of its own; it must not block."""

    def explain(self, error: NotAdmitted) -> SwitchsumError:
        """Return why the switch refuses contributions, if that is known, or the refusal itself."""
        ...

    def leave(self) -> None:
        """Give the place up; calling it again does nothing."""
        ...

    def reform(self, timeout_s: float) -> tuple[int, int]:
        """Give it up for one among the ranks that are not lost; return the new rank and world size."""
        ...


class Communicator(CollectiveCalls):
    """One rank of a job: every rank calls the same collectives in the same order.

    Collectives may be called from several threads, one of which works at a time.  After an error other than
    UsageError, UnsupportedDtype and SumOverflow the communicator is broken and raises that error again.  A call that is
    refused on some rank still counts as one: unless it is on all of them, all raise OperationMismatch.  In a forked
    child it is inert: nothing of it works there, and neither closing it nor the child's exit touches anything.
    """

    def __init__(
        self,
        driver: Driver,
        membership: Holder,
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
        self.lanes = int(driver.engine.state.core[0]["lanes"])
        self.supports = np.zeros(3, np.int64)
        self._known: dict[Hashable, Prepared | Few] = {}
        self._programs = Programs(f"switchsum rank {rank} steps")
        self._driver = driver
        self._membership = membership
        self._connect_again = connect_again
        self._pid = os.getpid()
        self._turn = threading.Condition()
        self._waiters: deque[None] = deque()
        self._in_flight: dict[int, Handle] = {}
        self._error: SwitchsumError | None = None
        self._loads = membership.loads
        self._closed = False
        self._thread: threading.Thread | None = None
        self._finished = 0
        self._began: dict[int, tuple[float, str]] = {}
        self._seconds = 0.0
        membership.on_heartbeat = self._after_heartbeat
        atexit.register(_close_at_exit, weakref.ref(self))

    def __repr__(self) -> str:
        """Say which rank of which job this is, and how it reaches the switch."""
        state = "closed" if self._closed else "broken" if self._error is not None else "open"
        about = f", {self._about}" if self._about else ""
        return f"<Communicator rank {self.rank} of {self.world_size}{about}, {self.lanes} lanes, {state}>"

    def statistics(self) -> Statistics:
        """Return what has happened so far."""
        counts = self._driver.engine.counts
        return Statistics.of(counts, self.supports, collectives=self._finished, collective_s=self._seconds)

    def close(self) -> None:
        """Leave the job; the communicator can be used no more.  Calling it again does nothing."""
        if os.getpid() != self._pid or self._closed:
            return
        self._end()
        self._membership.leave()

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
        with self._entered():
            self._pay()
            self._closed = True
            self._call_back()
            self._turn.notify_all()
        self._programs.close()
        if self._thread is not None:
            self._thread.join()
        self._driver.transport.close()
        self._membership.on_heartbeat = lambda: None  # no circle: what a closed communicator had mapped goes with it
        if self._driver.trace is not None:
            self._driver.trace.write()

    def _pay(self) -> None:
        """Tell a switch that was restarted what others may still need, as long as that makes sense."""
        end = self._driver.clock() + LONGEST_PAY_S
        while self._driver.engine.owes and self._error is None and self._driver.clock() < end:
            self._step(LONGEST_WAIT_S)

    def _after_heartbeat(self) -> None:
        """See to it that a restarted switch is told at once, and again; whoever drives does it, if anybody does."""
        is_due = self._loads != self._membership.loads or self._driver.engine.is_due(self._driver.clock())
        if is_due and self._turn.acquire(blocking=False):
            try:
                if not self._closed and self._error is None:
                    self._step(0.0)
                    if self._driver.engine.owes:
                        self._have_thread()
            finally:
                self._turn.notify_all()
                self._turn.release()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, call: Call, background: bool) -> Handle:
        self._programs.settle()
        handle = Handle(self, call)
        began = self._take_turn()
        try:
            self._begin(handle, call)
            self._step(0.0)
            if background:
                self._have_thread()
        finally:
            self._end_turn(began)
        return handle

    def _keep(self, kind: Hashable, call: Call) -> None:
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        prepared = self._driver.engine.prepare(call.operation)
        self._known[kind] = prepared if call.share is None else Few.of(prepared, call.share)

    def _add_few(self, few: Few, array: npt.NDArray[np.float32]) -> bool:
        self._programs.settle()
        began = self._take_turn()
        try:
            self._check()
            if self._in_flight or self._driver.trace is not None:
                return False
            serial = self._driver.add_few(few, array, LONGEST_WAIT_S)
            if serial is None:
                self._finished += 1
                return True
            handle = Handle(self, Again(few.prepared, few.digits, False))
            self._in_flight[serial] = handle
            self._drive(handle)
        finally:
            self._end_turn(began)
        handle.wait()
        put_sums(few.digits, few.share, array.reshape(-1))
        return True

    def _run(self, call: Call | Again) -> Any:
        self._programs.settle()
        handle = Handle(self, call)
        began = self._take_turn()
        try:
            self._begin(handle, call)
            self._drive(handle)
        finally:
            self._end_turn(began)
        return handle.wait()

    def _have_thread(self) -> None:
        """Start the background thread, unless it runs."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"switchsum rank {self.rank}", daemon=True)
            self._thread.start()

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
        self._waiters.append(None)
        try:
            self._turn.acquire()
        finally:
            self._waiters.pop()
        try:
            yield
        finally:
            self._turn.release()

    def _take_turn(self) -> float:
        """Take the driver, from which the background thread steps back, until `_end_turn`; return when that was.

        No context manager of Python's own, which would take a small allreduce 3 us.
        """
        if os.getpid() != self._pid:
            raise UsageError(f"this communicator belongs to process {self._pid}; connect in this one if it needs any")
        began = self._driver.clock()
        self._waiters.append(None)
        try:
            self._turn.acquire()
        finally:
            self._waiters.pop()
        if self._closed:
            self._turn.release()
            raise UsageError("this communicator is closed")
        return began

    def _end_turn(self, began: float) -> None:
        """Give the driver back."""
        if self._thread is not None:
            self._turn.notify_all()
        self._turn.release()
        self._seconds += self._driver.clock() - began

    def _begin(self, handle: Handle, call: Call | Again) -> None:
        """Hand an operation to the engine."""
        engine = self._driver.engine
        self._check()
        while engine.is_full:
            self._step(LONGEST_WAIT_S)
            self._check()
        began = self._driver.clock()
        prepared = call.prepared if isinstance(call, Again) else engine.prepare(call.operation)
        serial = engine.begin(prepared, call.values, began)
        self._in_flight[serial] = handle
        if self._driver.trace is not None:
            self._began[serial] = began, prepared.name

    def _wait(self, handle: Handle) -> None:
        began = self._take_turn()
        try:
            self._drive(handle)
        finally:
            self._end_turn(began)

    def _drive(self, handle: Handle) -> None:
        """Drive until a collective that was begun before has finished."""
        while handle._finished is None:
            self._check()
            self._step(LONGEST_WAIT_S)

    def _check(self) -> None:
        """Raise why the communicator is broken, if it is."""
        if self._error is None and self._membership.error is not None:
            self._fail(self._membership.error)
        if self._error is not None:
            raise self._error.with_traceback(None)

    def _step(self, most_s: float) -> None:
        """Let the driver do one step, and note what has happened."""
        if self._loads != self._membership.loads:
            self._loads = self._membership.loads
            self._driver.engine.restarted(self._driver.clock())
        try:
            events = self._driver.step(most_s)
        except SwitchsumError as error:
            self._fail(error)
            return
        for event in events:
            if isinstance(event, Failed):
                why = event.error
                self._fail(self._membership.explain(why) if isinstance(why, NotAdmitted) else why)
            else:
                self._finished += 1
                if self._driver.trace is not None:
                    began, name = self._began.pop(event.operation)
                    self._driver.trace.called(name, began, self._driver.clock())
                self._in_flight.pop(event.operation)._end(event)

    def _fail(self, error: SwitchsumError) -> None:
        """Break the communicator, if it is not broken yet."""
        self._error = self._error or error
        self._call_back()

    def _work(self) -> None:
        """Drive while operations are in flight and nobody waits."""
        while True:
            with self._turn:
                self._turn.wait_for(lambda: self._is_over or self._has_work())
                if self._is_over:
                    return
                if self._membership.error is not None:
                    self._fail(self._membership.error)
                    return
                self._step(BACKGROUND_WAIT_S)

    def _has_work(self) -> bool:
        return (bool(self._in_flight) or self._driver.engine.owes) and not self._waiters


def _close_at_exit(reference: weakref.ref[Communicator]) -> None:
    """Leave the job when the program ends without having closed its communicator."""
    communicator = reference()
    if communicator is not None:
        communicator.close()

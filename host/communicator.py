"""The communicator: collectives for callers, on top of an engine, its driver and the membership."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Protocol, TypeVar

import numpy.typing as npt

from switchsum.host import collectives
from switchsum.host.driver import Driver
from switchsum.host.events import Failed, Finished
from switchsum.host.operation import Operation
from switchsum.host.statistics import Statistics
from switchsum.protocol.errors import SumOverflow, SwitchsumError, UsageError

Array = TypeVar("Array", bound=npt.NDArray[Any])

LONGEST_WAIT_S: Final = 0.05
"""How soon a waiting collective notices what heartbeats have brought."""
BACKGROUND_WAIT_S: Final = 0.001
"""How soon the background thread makes way for a caller who waits."""


class Holder(Protocol):
    """What keeps a rank's place in the job."""

    error: SwitchsumError | None
    """Why the place is lost, or the job broken."""

    def leave(self) -> None:
        """Give the place up."""
        ...


class Handle:
    """A collective that was begun; its array belongs to the communicator until `wait` returns."""

    def __init__(self, communicator: Communicator, reduction: collectives.Reduction, serial: int) -> None:
        self._communicator = communicator
        self._reduction = reduction
        self._serial = serial
        self._finished: Finished | None = None

    def wait(self) -> npt.NDArray[Any]:
        """Return the array with its result; raises what the collective failed with, each time that it is called."""
        if self._finished is None:
            self._finished = self._communicator._wait(self._serial)
            self._reduction.deliver()
        if blocks := self._finished.overflowed:
            names = ", ".join(map(str, blocks[:8])) + (", ..." if len(blocks) > 8 else "")
            raise SumOverflow(f"sums beyond int32 in block {names}", blocks)
        return self._reduction.array


class Communicator:
    """One rank of a job: every rank calls the same collectives in the same order.

    Collectives may be called from several threads, one of which works at a time.  After an error other than
    UsageError, UnsupportedDtype and SumOverflow the communicator is broken and raises that error again.  In a forked
    child it is inert: nothing of it works there, and neither closing it nor the child's exit touches anything.
    """

    def __init__(self, driver: Driver, membership: Holder, *, rank: int, world_size: int) -> None:
        self.rank = rank
        self.world_size = world_size
        self._driver = driver
        self._membership = membership
        self._pid = os.getpid()
        self._turn = threading.Condition()
        self._waiters: deque[None] = deque()
        self._results: dict[int, Finished] = {}
        self._in_flight = 0
        self._error: SwitchsumError | None = None
        self._closed = False
        self._thread: threading.Thread | None = None
        self._finished = 0
        self._seconds = 0.0
        atexit.register(_close_at_exit, weakref.ref(self))

    def allreduce(self, array: Array, op: str = "sum") -> Array:
        """Add `array` over all ranks, element by element, in place, and return it.

        float32, float16, bfloat16 (ml_dtypes) and int32, any shape and layout.  `op` is "sum", or "average" for floats.
        Every rank gets the same bits.  A float sum of n ranks is off by at most n/2 steps of its block plus the
        rounding to its dtype; see `switchsum.protocol.lanes`.  A block (as many values as the switch's program has
        lanes) with NaN or infinity on any rank comes out all NaN on every rank.  Integer sums are exact; where one
        does not fit, every rank raises SumOverflow and the element holds the nearest int32.

        Raises UnsupportedDtype or UsageError; OperationMismatch if another rank called something else;
        CollectiveTimeout, WorkerLost, SwitchLost or NotAdmitted when it cannot go on.
        """
        self.allreduce_async(array, op, background=False).wait()
        return array

    def allreduce_async(self, array: npt.NDArray[Any], op: str = "sum", *, background: bool = True) -> Handle:
        """Begin an allreduce and return at once; leave the array alone until the handle's `wait` has returned.

        Many may be in flight, and small ones share round trips.  With `background` a thread goes on with them while
        the caller computes; without, they move only while somebody waits for one.
        """
        reduction = collectives.allreduce(array, op)
        with self._timed(), self._my_turn():
            serial = self._begin(reduction.operation)
            if background and self._thread is None:
                self._thread = threading.Thread(target=self._work, name=f"switchsum rank {self.rank}", daemon=True)
                self._thread.start()
        return Handle(self, reduction, serial)

    def barrier(self) -> None:
        """Wait until every rank has called it; raises what `allreduce` does."""
        with self._timed(), self._my_turn():
            self._wait_for(self._begin(collectives.BARRIER))

    def statistics(self) -> Statistics:
        """Return what has happened so far."""
        counts = self._driver.engine.counts
        return Statistics.of(counts, collectives=self._finished, collective_s=self._seconds)

    def close(self) -> None:
        """Leave the job; the communicator can be used no more.  Calling it again does nothing."""
        if os.getpid() != self._pid or self._closed:
            return
        self._waiters.append(None)
        with self._turn:
            self._waiters.pop()
            self._closed = True
            self._turn.notify_all()
        if self._thread is not None:
            self._thread.join()
        self._membership.leave()
        self._driver.transport.close()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began = self._driver.clock()
        try:
            yield
        finally:
            self._seconds += self._driver.clock() - began

    @contextmanager
    def _my_turn(self) -> Iterator[None]:
        """Hold the driver; the background thread steps back."""
        if os.getpid() != self._pid:
            raise UsageError(f"this communicator belongs to process {self._pid}; connect in this one if it needs any")
        self._waiters.append(None)
        with self._turn:
            self._waiters.pop()
            if self._closed:
                raise UsageError("this communicator is closed")
            try:
                yield
            finally:
                self._turn.notify_all()

    def _begin(self, operation: Operation) -> int:
        """Hand an operation to the engine."""
        self._check()
        while self._driver.engine.is_full:
            self._step(LONGEST_WAIT_S)
            self._check()
        serial = self._driver.engine.submit(operation, self._driver.clock())
        self._in_flight += 1
        self._step(0.0)
        return serial

    def _wait(self, serial: int) -> Finished:
        """Wait for an operation that was begun before."""
        with self._timed(), self._my_turn():
            return self._wait_for(serial)

    def _wait_for(self, serial: int) -> Finished:
        while serial not in self._results:
            self._check()
            self._step(LONGEST_WAIT_S)
        self._finished += 1
        return self._results.pop(serial)

    def _check(self) -> None:
        """Raise why the communicator is broken, if it is."""
        if self._error is None:
            self._error = self._membership.error
        if self._error is not None:
            raise self._error.with_traceback(None)

    def _step(self, most_s: float) -> None:
        """Let the driver do one step, and note what has happened."""
        try:
            events = self._driver.step(most_s)
        except SwitchsumError as error:
            self._error = self._error or error
            return
        for event in events:
            if isinstance(event, Failed):
                self._error = self._error or event.error
            else:
                self._results[event.operation] = event
                self._in_flight -= 1

    def _work(self) -> None:
        """Drive while operations are in flight and nobody waits."""
        while True:
            with self._turn:
                self._turn.wait_for(lambda: self._closed or self._error is not None or self._has_work())
                if self._closed or self._error is not None:
                    return
                self._step(BACKGROUND_WAIT_S)

    def _has_work(self) -> bool:
        return self._in_flight > 0 and not self._waiters


def _close_at_exit(reference: weakref.ref[Communicator]) -> None:
    """Leave the job when the program ends without having closed its communicator."""
    communicator = reference()
    if communicator is not None:
        communicator.close()

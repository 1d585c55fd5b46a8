"""How collectives are begun and brought to their end: by one thread at a time, which signal handlers may interrupt.

A caller drives what it waits for; a thread in the background goes on with the rest while nobody waits.  Each step may
be interrupted and is then taken again: `interrupts.py` says what becomes of what was raised.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

import numpy.typing as npt

from switchsum.protocol.errors import SwitchsumError, UsageError, WorkerLost

from ..engine.events import Failed, Outcome
from ..engine.operation import Operation
from ..links.driver import Driver
from .handle import Handle
from .interrupts import HeldBack, check_process, interrupted
from .memory import Memory

if TYPE_CHECKING:
    from .departures import Departures
    from .sparse import LastStep
    from .steps import StepQueue

_log: Final = logging.getLogger(__name__)
LONGEST_WAIT_S: Final = 0.05
"""How soon a waiting collective notices what heartbeats have brought."""
BACKGROUND_WAIT_S: Final = 0.001
"""How soon the background thread makes way for a caller who waits."""

_WITHIN: Final = (
    "this thread is in the midst of a collective of this communicator: a signal handler or a callback cannot call "
    "another one; have it set a flag, and call it when the first one has returned"
)


class Member(Protocol):
    """What keeps a rank's place in the job."""

    error: SwitchsumError | None
    """Why the place is lost, or the job broken."""
    loads: int
    """How often the switch has been given its program; when it grows, the switch was restarted."""
    left: frozenset[int]
    """Ranks that have left in order."""

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


class Driving:
    """One rank's collectives that are in flight, on an engine and its driver."""

    rank: int
    """0 to world_size - 1."""
    world_size: int
    """Number of ranks."""
    lanes_per_frame: int
    """32-bit lanes in a frame."""
    _steps: StepQueue | None = None

    def __init__(self, driver: Driver, membership: Member, rank: int, world_size: int) -> None:
        self.rank = rank
        self.world_size = world_size
        self.lanes_per_frame = int(driver.engine.state.core[0]["lanes_per_frame"])
        self._driver = driver
        self._membership = membership
        self._pid = os.getpid()
        self._turn = threading.RLock()
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None
        self._waiters: set[int] = set()
        self._holds_back = False
        self._delivered: BaseException | None = None
        """What was raised last after a collective had come to its end."""
        self._early: tuple[int, BaseException] | None = None
        self._in_flight: dict[int, Handle] = {}
        self._memory = Memory()
        self._error: SwitchsumError | None = None
        self._loads = membership.loads
        self._first_loads = membership.loads
        self._departures: Departures | None = None
        self._closed = False
        self._is_open = True
        self._is_noted = driver.trace is not None or _log.isEnabledFor(logging.DEBUG)
        self._finished = 0
        self._began: dict[int, tuple[float, str]] = {}
        self._seconds = 0.0

    def _prepare(self, operation: Operation) -> Operation:
        """Have an operation ready to be begun; raises UsageError."""
        return self._driver.engine.prepare(operation)

    def _run(self, handle: Handle) -> Any:
        """Begin a collective, wait for it, and return its result."""
        self._bring_on(handle, begin=True, to_end=True)
        return handle.wait()

    def _wait(self, handle: Handle) -> None:
        """Drive a collective that was begun to its end."""
        self._bring_on(handle, begin=False, to_end=True)

    def _start(self, handle: Handle, background: bool) -> Handle:
        """Begin a collective, and have a thread go on with it in the background if wanted."""
        self._bring_on(handle, begin=True, to_end=False)
        if background:
            self._have_thread()
        if handle._held is not None and not self._holds_back:
            handle.wait()  # else it would go on, and nobody had a handle
        return handle

    def _begin_steps(self, steps: Callable[[], LastStep]) -> Handle:
        """Begin a collective of several steps, on a thread of their own."""
        from .steps import begin_steps  # noqa: PLC0415 - most jobs have no collective of several steps

        return begin_steps(self, steps)

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

    def _note_early(self, error: BaseException | None) -> None:
        """Keep what a signal handler has raised before a collective was begun, until that has ended."""
        self._early = None if error is None else (threading.get_ident(), error)

    def _take_early(self, handle: Handle) -> None:
        """Hold back with a collective what was raised in this thread before it was begun."""
        early = self._early
        if early is not None and early[0] == threading.get_ident():
            handle._held, self._early = handle._held or HeldBack(early[1]), None

    def _broken_off(self, error: BaseException) -> None:
        """Break the communicator if a call did not end with an error of ours, nor with one that was held back."""
        if not isinstance(error, SwitchsumError) and error is not self._delivered and not self._is_over:
            self._fail(interrupted(error))

    @contextmanager
    def _entered(self) -> Iterator[None]:
        """Hold the lock, for which the background thread makes way; a thread that waits may be interrupted."""
        self._wait_for_turn()
        try:
            yield
        finally:
            self._turn.release()

    def _wait_for_turn(self) -> None:
        """Take the driver, from which the background thread steps back."""
        own = threading.get_ident()
        self._waiters.add(own)
        try:
            self._turn.acquire()
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
        if self._memory.intervals and handle._values is not None:
            self._wait_for_memory(handle._values)
        serial = engine.submitted
        handle._serial, self._in_flight[serial] = serial, handle
        if self._is_noted:
            self._began[serial] = self._driver.clock(), str(handle._operation)
            _log.debug("collective %d begins: %s", serial, handle._operation)
        if self._loads != self._membership.loads:
            self._note_restart()
        self._note_events(self._driver.begin(handle._operation, handle._values, most_s))
        if handle._finished is None and handle._values is not None and handle._values.nbytes:
            start = handle._operation.addresses[0]
            self._memory.hold(start, start + handle._values.nbytes)
            handle._memory = start

    def _wait_for_memory(self, values: npt.NDArray[Any]) -> None:
        """Wait until no collective in flight uses an array's memory: overlapping ones are added in turn."""
        start = values.ctypes.data
        while self._memory.overlaps(start, start + values.nbytes):
            self._step(LONGEST_WAIT_S)
            self._check()

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
        if self._in_flight and (left := self._membership.left):
            self._note_departures(left)

    def _note_departures(self, left: frozenset[int]) -> None:
        """Give up if this rank waits for one of those that have left."""
        if self._departures is None:
            from .departures import Departures  # noqa: PLC0415 - most jobs end before anybody has to know

            self._departures = Departures(self._driver.engine, self._first_loads)
        try:
            self._departures.check(left, self._membership.loads, self._driver.clock())
        except WorkerLost as error:
            self._fail(error)

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
                start, handle._memory = handle._memory, None
                if start is not None:
                    self._memory.release(start)
                handle._end(event)
                self._finished += 1
                del self._in_flight[event.operation]
            events.popleft()

    def _note_span(self, began: float, name: str) -> None:
        """Have the trace show a collective that has ended."""
        if self._driver.trace is not None:
            self._driver.trace.called(name, began, self._driver.clock())

    def _fail(self, error: SwitchsumError) -> None:
        """Break the communicator, if it is not broken yet."""
        if self._error is None:
            _log.info("gives up: %s", error)
        self._error = self._error or error
        self._call_back()

    def _break(self, error: SwitchsumError) -> NoReturn:
        """Break the communicator, and raise why."""
        error = self._membership.explain(error)
        with self._entered():
            self._fail(error)
        self._check()
        raise error

    @property
    def _is_over(self) -> bool:
        """Whether nothing that is in flight will end any more."""
        return self._error is not None or self._closed

    def _call_back(self) -> None:
        """Have everybody called back whose collective will not end any more."""
        for handle in list(self._in_flight.values()):
            handle._call_back()

    def _have_thread(self) -> None:
        """Start the background thread, unless it runs."""
        if self._thread is None:
            arguments = weakref.ref(self), self._turn, self._wanted
            self._thread = threading.Thread(
                target=_work, args=arguments, name=f"switchsum rank {self.rank}", daemon=True
            )
            self._thread.start()
        self._wanted.set()

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


def _work(reference: weakref.ref[Driving], turn: threading.RLock, wanted: threading.Event) -> None:
    """Drive a communicator in the background for as long as there is one: nobody need close it."""
    is_wanted = True
    while is_wanted:
        wanted.wait()
        with turn:
            driving = reference()
            is_wanted = driving is not None and driving._work()
        del driving  # perhaps the last reference, with which it is closed

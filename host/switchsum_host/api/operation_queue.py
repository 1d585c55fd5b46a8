"""Operations under way: how they are begun and brought to their end, by one thread at a time, and callers' handles.

A caller drives what it waits for; a thread in the background goes on with the rest while nobody waits.  What the
operations are for nobody here knows.

**What becomes of exceptions that come from elsewhere.**  Python runs signal handlers between two instructions of the
main thread, and what they raise comes out of whatever line that was.  So the queue is marked as dirty before it touches
an operation, and as clean when that was done.  Whoever finds it dirty breaks it: `Interrupted` is raised from then on,
for nobody can tell what the other ranks have.  The exception itself reaches its caller unchanged.  Only Ctrl-C waits
for the end of what is driven: see `interrupts`.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import weakref
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final, NoReturn, Protocol

import numpy.typing as npt

from switchsum_protocol.errors import (
    CollectiveTimeout,
    Interrupted,
    OperationMismatch,
    SumOverflow,
    SwitchsumError,
    UsageError,
)

from ..engine.engine import Failed, Finished, Outcome
from ..engine.operation import Operation
from .awaiting import Departures
from .driver import CommunicatorDriver
from .interrupts import Interrupts

_log: Final = logging.getLogger("switchsum.host.api.operation_queue")
WIDEST: Final = ("int64", "uint64")
LONGEST_WAIT_S: Final = 0.05
"""How soon a waiting collective notices what heartbeats have brought."""
BACKGROUND_WAIT_S: Final = 0.001
"""How soon the background thread makes way for a caller who waits."""
LONGEST_FAREWELL_S: Final = 0.5
"""How long `close` waits for a restarted switch to answer."""

own_timeout_s: Final[ContextVar[float | None]] = ContextVar("own_timeout_s", default=None)
"""Time-out of the collectives that the caller begins, in place of the communicator's; None: the communicator's.

Not counted in virtual time.
"""

_WITHIN: Final = (
    "this thread is in the midst of a collective of this communicator: a signal handler or a callback cannot call "
    "another one; have it set a flag, and call it when the first one has returned"
)
_CLOSED_WITHIN: Final = "this communicator was closed in the midst of a collective"


def check_process(pid: int) -> None:
    """Raise UsageError in a process that was forked from the one to which a communicator belongs."""
    if os.getpid() != pid:
        raise UsageError(f"this communicator belongs to process {pid}: call connect in this process for one of its own")


class Handle:
    """A collective that was started.  Its array belongs to the communicator until `wait` returns.

    Example:
        >>> import numpy as np
        >>> from switchsum.testing import on_ranks
        >>> def add(comm):
        ...     handle = comm.allreduce_async(np.ones(3, np.float32))
        ...     # compute something else here
        ...     return handle.wait()
        >>> on_ranks(2, add)[0]
        array([2., 2., 2.], dtype=float32)

    """

    # Of the class until they change, for a small allreduce makes a handle each time.
    finished: Finished | None = None
    """Event of its end. None: it is under way."""
    memory: int | None = None
    """Address of the memory that it uses while it is under way."""
    saturates = False
    make_result: Callable[[], Any] | None = None
    """Puts the result where the caller wants it, and returns it. None: it is in `values`."""
    at_end: Callable[[], object] | None = None
    """Called when the switch has done its part, before its memory is let go."""
    holds: npt.NDArray[Any] | None = None
    """The array in whose memory it works while it is under way."""
    _callbacks: deque[Callable[[Handle], object]] | None = None
    _has_result = True

    def __init__(
        self,
        queue: OperationQueue,
        operation: Operation,
        values: npt.NDArray[Any] | None = None,
        finish: Callable[[], Any] | None = None,
        *,
        saturates: bool = False,
    ) -> None:
        """Describe an operation that `queue` is to begin.

        `values` is what the engine adds, in place: the caller's array itself if that can be, else a copy.  `finish`
        puts the result where the caller wants it, and returns it; None: it is in `values`.  With `saturates` the
        nearest value will do where an integer sum does not fit.
        """
        self.operation = operation
        self.values = self.holds = values
        self._queue = queue
        self._result: Any = values
        if saturates:
            self.saturates = True
        if finish is not None:
            self.make_result = finish
            self._has_result = False
            self._lock = threading.RLock()  # a signal handler may wait for what it has interrupted the end of

    @property
    def is_done(self) -> bool:
        """Whether `wait` would return, or raise, at once."""
        return self.finished is not None or self._queue.is_over

    def add_done_callback(self, callback: Callable[[Handle], object]) -> None:
        """Call a function once the collective is done.

        It runs on the thread that finds out, and must neither block nor raise.  Without a background thread that is a
        thread that waits for some collective.

        Args:
            callback: Called with this handle, exactly once: at once if the collective is done.

        """
        if self._callbacks is None:
            vars(self).setdefault("_callbacks", deque())  # one, whichever thread is first
        assert self._callbacks is not None
        self._callbacks.append(callback)
        if self.is_done:
            self.call_back()

    def wait(self) -> Any:
        """Wait for the collective's end, and return its result.  Every call returns or raises the same.

        Returns:
            What the blocking call returns: the array of an `allreduce`, this rank's part of a `reduce_scatter`.

        Raises:
            SumOverflow: An integer sum does not fit; `blocks` says where.
            SwitchsumError: What the blocking call raises.

        """
        finished = self.finished
        if finished is None:
            self._queue.wait(self)
            finished = self.finished
            assert finished is not None
        if not self._has_result:
            self._write_back()
        if finished.overflowed and not self.saturates:
            blocks = finished.overflowed
            names = ", ".join(map(str, blocks[:8])) + (", ..." if len(blocks) > 8 else "")
            raise SumOverflow(
                f"sums do not fit {self.operation.dtype_name} in block {names} of the array: give "
                f"{'smaller values' if self.operation.dtype_name in WIDEST else 'a wider dtype'}, or `saturate=True`",
                blocks,
            )
        return self._result

    def wait_for(self, seconds: float) -> bool:
        """Wait for the collective's end, but so long at most; return whether it has ended, or failed.

        Args:
            seconds: How long to wait; 0: only look.

        """
        if not self.is_done:
            self._queue.wait_for(self, seconds)
        return self.is_done

    def overdue(self, seconds: float) -> CollectiveTimeout:
        """Return what to raise where `wait_for` has waited in vain: it says who is missing.

        Args:
            seconds: How long was waited, for the text.

        """
        return self._queue.overdue(seconds)

    def _write_back(self) -> None:
        """Put the result where it belongs; where something is raised meanwhile, the next `wait` does it again."""
        with self._lock:
            if not self._has_result:
                self._result = self.make_result() if self.make_result is not None else self.values
                self._has_result = True

    def note_finished(self, finished: Finished) -> None:
        """Note that the switch has done its part; for the queue."""
        self.finished = finished
        if self._callbacks:
            self.call_back()

    def call_back(self) -> None:
        """Call back; exactly once each, whoever of two threads sees first that it is done."""
        while self._callbacks:
            try:
                callback = self._callbacks.popleft()
            except IndexError:  # the other thread
                return
            try:
                callback(self)
            except BaseException:
                self._callbacks.appendleft(callback)  # what a signal handler has raised: it is called again
                raise


class Memory:
    """Memory of operations under way: intervals of addresses, of which no two overlap."""

    def __init__(self) -> None:
        self.intervals: list[tuple[int, int]] = []

    def hold(self, start: int, end: int) -> None:
        """Note that an operation under way uses the addresses from `start` to `end`, at least one."""
        insort(self.intervals, (start, end))

    def release(self, start: int) -> None:
        """Forget the interval that begins there."""
        del self.intervals[bisect_left(self.intervals, (start,))]

    def overlaps(self, start: int, end: int) -> bool:
        """Whether any of these addresses is in use."""
        place = bisect_left(self.intervals, (end,))  # those before begin below `end`, and the last one ends last
        return start < end and place > 0 and self.intervals[place - 1][1] > start


class CommunicatorMembership(Protocol):
    """What keeps a rank's place in the job."""

    error: SwitchsumError | None
    """Why the place is lost, or the job broken."""
    loads: int
    """How often the switch has been given its program; when it grows, the switch was restarted."""
    left: frozenset[int]
    """Ranks that have left in order."""

    on_heartbeat: Callable[[], object]
    """Function to call now and then, on a thread of its own. It must not block."""

    def explain(self, error: SwitchsumError) -> SwitchsumError:
        """Return an error with what only the controller knows: why a member is refused, which rank is the odd one."""
        ...

    def leave(self, *, failed: bool = False) -> None:
        """Give the place up, with `failed` as one that is lost to the others; calling it again does nothing."""
        ...

    def reform(self, timeout_s: float) -> tuple[int, int]:
        """Give it up for one among the ranks that are not lost; return the new rank and world size."""
        ...


class FormerSteps(Protocol):
    """Collectives of several operations, each of which is begun when the one before has ended (`steps`)."""

    thread: int
    """Identifier of the thread that takes the steps; 0: it has not begun."""

    def wait_for_last_steps(self) -> None:
        """Wait until each of them has begun its last operation."""
        ...

    def close(self) -> None:
        """Wait until nothing is done any more."""
        ...


class OperationQueue:
    """One rank's operations under way, on a driver."""

    steps: FormerSteps | None = None
    """Collectives of several operations, if there ever was one."""

    def __init__(self, driver: CommunicatorDriver, membership: CommunicatorMembership, name: str) -> None:
        """`name` the threads."""
        self.name = name
        self.driver = driver
        self.membership = membership
        self.under_way: dict[int, Handle] = {}
        """Handles of the operations that have begun and not ended, by serial number."""
        self.error: SwitchsumError | None = None
        """Why nothing works any more."""
        self.is_dirty = False
        """Whether an operation is being touched, or something was raised while one was."""
        self.closed = False
        self.is_inherited = False
        """Whether this process was forked from the one to which the queue belongs."""
        self.is_open = True
        """Whether the link is."""
        self.finished = 0
        """Operations that have ended."""
        self.seconds = 0.0
        """Spent in here by callers."""
        self.pid = os.getpid()
        self.thread: threading.Thread | None = None
        """The one in the background."""
        self.interrupts = Interrupts()
        self._turn = threading.Lock()
        self._owner = 0
        self._wanted = threading.Event()
        self._waiters: set[int] = set()
        self._memory = Memory()
        self._loads = membership.loads
        self._departures = Departures(driver, membership.loads)
        self._is_noted = driver.trace is not None or _log.isEnabledFor(logging.DEBUG)
        self._began: dict[int, tuple[float, str]] = {}
        after_heartbeat = weakref.WeakMethod(self._after_heartbeat)
        membership.on_heartbeat = lambda: (method := after_heartbeat()) and method()
        _queues.add(self)

    # What callers do.

    def enqueue(self, handle: Handle, *, stays: bool = False, background: bool = False) -> None:
        """Begin an operation; with `stays` drive it to its end, with `background` have a thread go on with it.

        Operations begin in the order of these calls, and after all but the last of those of `steps`.
        """
        if self.steps is not None:
            self.steps.wait_for_last_steps()
        self._take_turn(handle, begins=True, stays=stays, background=background)

    def wait(self, handle: Handle) -> None:
        """Drive an operation that was begun to its end; raises KeyboardInterrupt if that was asked for meanwhile."""
        self._take_turn(handle, begins=False, stays=True, background=False)
        if self.interrupts.is_asked_for:
            self.interrupts.raise_now()

    def wait_for(self, handle: Handle, seconds: float) -> None:
        """Drive an operation that was begun, for so many seconds at most; it goes on if they were too few."""
        check_process(self.pid)
        own = threading.get_ident()
        if self.is_driven_by(own):
            raise UsageError(_WITHIN)
        began = self.driver.clock()
        if self.thread is not None:
            self._ask_for_turn()
        try:
            if not self._turn.acquire(timeout=min(max(seconds, 0.0), threading.TIMEOUT_MAX)):
                return
            try:
                self._owner = own
                self._waiters.discard(own)
                if handle.finished is None:
                    self._check_clean()
                    self.is_dirty = True
                    self._drive(handle, began + seconds)
                    if handle.finished is None and not self.driver.moves_alone:
                        self._have_thread()
                    self.is_dirty = False
            finally:
                self._turn.release()
        except SwitchsumError:
            if not self.is_over:  # else `Handle.wait` raises it
                raise
        finally:
            self._leave(own)
            self.seconds += self.driver.clock() - began
        if self.interrupts.is_asked_for:
            self.interrupts.raise_now()

    def overdue(self, seconds: float) -> CollectiveTimeout:
        """Return what to raise where something has not ended in so many seconds: it says who is missing."""
        return self.driver.overdue(seconds)

    def compute(self, seconds: float) -> None:
        """Let a computation take its time where that is virtual; raises what the communicator is broken by."""
        if not self.driver.moves_alone:
            return
        check_process(self.pid)
        own = threading.get_ident()
        if self.is_driven_by(own):
            raise UsageError(_WITHIN)
        with self._turn:
            self._owner = own
            self._check_clean()
            self.is_dirty = True
            try:
                self.driver.compute(seconds)
            except SwitchsumError as error:
                self._fail(error)
            finally:
                self._leave(own)
            self.is_dirty = False
            self._check()
        if self.interrupts.is_asked_for:
            self.interrupts.raise_now()

    def is_driven_by(self, thread: int) -> bool:
        """Whether this thread is in the midst of an operation."""
        return self._owner == thread and self._turn.locked()

    @property
    def holds_caller(self) -> bool:
        """Whether a caller waits in here, and not only a thread in the background."""
        background = {0, self.thread.ident if self.thread is not None else 0}
        if self.steps is not None:
            background.add(self.steps.thread)
        return self._turn.locked() and self._owner not in background

    def break_off(self, error: SwitchsumError) -> NoReturn:
        """Break the communicator, and raise why."""
        error = self.membership.explain(error)
        if not self.is_driven_by(threading.get_ident()):
            with self._turn:
                self._fail(error)
        raise self.error or error

    def interrupted(self, error: BaseException | None = None) -> None:
        """Break the communicator because a call did not come to its end, unless for an error of ours."""
        self.interrupts.is_asked_for = False  # it was raised, or is of no use any more
        if error is not None and isinstance(self.error, OperationMismatch):
            self.error = None  # the switch's answer to a call that was refused while its arguments were looked at
        if not self.is_over and not isinstance(error, SwitchsumError):
            what = "something" if error is None else type(error).__name__
            why = f"{what} was raised in the midst of a collective, which others may have ended, or wait for"
            self._fail(Interrupted(why))

    @property
    def is_over(self) -> bool:
        """Whether nothing that is under way will end any more."""
        return self.error is not None or self.closed

    def close(self) -> None:
        """Stop all work, and close the link."""
        if self.is_driven_by(threading.get_ident()):
            self.closed = True  # by a signal handler; the operation that it has interrupted closes the link
            return
        if self.under_way:  # else this would wait as long as threads that wait for them
            self._fail(UsageError(_CLOSED_WITHIN))
        self._ask_for_turn()
        with self._turn:
            self._waiters.discard(threading.get_ident())
            self._inform_switch()
            self.closed = True
            self._call_back()
        self._close_link()

    # One thread at a time.

    def _take_turn(self, handle: Handle, *, begins: bool, stays: bool, background: bool) -> None:
        if self.is_inherited:
            check_process(self.pid)
        own = threading.get_ident()
        if self._owner == own and self._turn.locked():
            raise UsageError(_WITHIN)
        began = self.driver.clock()
        try:
            if self.thread is not None:
                self._ask_for_turn()
            with self._turn:
                self._owner = own
                self._waiters.discard(own)
                if handle.finished is None:  # else another thread has driven it to its end meanwhile
                    self._check_clean()
                    self.is_dirty = True
                    if begins:
                        self._hand_over(handle, stays=stays)
                    if stays and handle.finished is None:
                        self._drive(handle)
                    if background and not self.driver.moves_alone:
                        self._have_thread()
                    self.is_dirty = False
        finally:
            self._leave(own)
            self.seconds += self.driver.clock() - began

    def _leave(self, own: int) -> None:
        if self._owner == own:
            self._owner = 0
        if self.thread is not None:
            self._waiters.discard(own)
            if self.under_way or self.driver.awaits_switch:
                self._wanted.set()
        if self.closed:
            self._close_link()

    def _check_clean(self) -> None:
        """Raise why the communicator is broken or closed, if it is."""
        if self.closed:
            raise UsageError("this communicator is closed: switchsum.connect makes another one")
        if self.is_dirty:
            self.interrupted()
        self._check()

    def _ask_for_turn(self) -> None:
        """Have the background thread make way."""
        self._waiters.add(threading.get_ident())

    def _hand_over(self, handle: Handle, *, stays: bool) -> None:
        """Hand an operation to the driver, which does one step."""
        driver = self.driver
        while self.under_way and driver.is_full:
            self._pass_time()
        values, held = handle.values, handle.holds
        if self._memory.intervals and held is not None:
            self._wait_for_memory(held)
        serial = driver.submitted
        self.under_way[serial] = handle
        if self._is_noted:
            self._began[serial] = driver.clock(), str(handle.operation)
            _log.debug("collective %d begins: %s", serial, handle.operation)
        if self._loads != self.membership.loads:
            self._note_restart()
        most_s = LONGEST_WAIT_S if stays else 0.0
        self._note_events(driver.submit(handle.operation, values, most_s, own_timeout_s.get()))
        if not stays and handle.finished is None and held is not None and held.nbytes:
            start = handle.operation.addresses[0] if held is values else held.ctypes.data
            self._memory.hold(start, start + held.nbytes)
            handle.memory = start

    def _wait_for_memory(self, values: npt.NDArray[Any]) -> None:
        """Wait until no operation under way uses an array's memory: overlapping ones are added in turn."""
        start = values.ctypes.data
        while self._memory.overlaps(start, start + values.nbytes):
            self._pass_time()

    def _pass_time(self) -> None:
        """Drive what is under way for a moment; raises if nothing of it will end any more."""
        self._step(LONGEST_WAIT_S)
        self._check()
        if self.interrupts.is_asked_for:
            self.interrupts.check()

    def _drive(self, handle: Handle, until: float = math.inf) -> None:
        """Drive until an operation that was begun has finished, or the driver's clock says `until`."""
        while handle.finished is None:
            self._check()
            left_s = until - self.driver.clock()
            if left_s <= 0:
                return
            self._step(min(LONGEST_WAIT_S, left_s))
            if self.interrupts.is_asked_for:
                self.interrupts.check()

    def _check(self) -> None:
        """Raise why the communicator is broken, if it is."""
        if self.error is None and self.membership.error is not None:
            self._fail(self.membership.error)
        if self.error is not None:
            raise self.error.with_traceback(None)
        if self.closed:
            raise UsageError(_CLOSED_WITHIN)

    def _step(self, most_s: float) -> None:
        """Let the driver do one step, and note what has happened."""
        if self._loads != self.membership.loads:
            self._note_restart()
        try:
            events = self.driver.step(most_s)
        except UsageError:  # a signal handler's, which was refused something
            raise
        except SwitchsumError as error:
            self._fail(error)
            return
        self._note_events(events)
        if self.under_way and (left := self.membership.left):
            self._note_departures(left)

    def _note_departures(self, left: frozenset[int]) -> None:
        """Give up if this rank waits for one of those that have left."""
        try:
            self._departures.check(left, self.membership.loads, self.driver.clock())
        except SwitchsumError as error:
            self._fail(error)

    def _note_restart(self) -> None:
        """Let the driver know that the switch has been given its program again."""
        loads = self.membership.loads
        self.driver.note_restart()
        self._loads = loads

    def _note_events(self, events: deque[Outcome]) -> None:
        """Note what has happened."""
        while events:
            event = events.popleft()
            if isinstance(event, Failed):
                self._fail(self.membership.explain(event.error))
                continue
            handle = self.under_way.pop(event.operation)
            if self._is_noted:
                self._note_span(*self._began.pop(event.operation))
            if handle.at_end is not None:
                handle.at_end()
            if handle.memory is not None:
                self._memory.release(handle.memory)
            self.finished += 1
            handle.note_finished(event)

    def _note_span(self, began: float, name: str) -> None:
        """Have the trace show an operation that has ended."""
        if self.driver.trace is not None:
            self.driver.trace.called(name, began, self.driver.clock())

    def _fail(self, error: SwitchsumError) -> None:
        """Break the communicator, if it is not broken yet."""
        if self.error is None:
            _log.info("gives up: %s", error)
        self.error = self.error or error
        self._call_back()

    def _call_back(self) -> None:
        """Have everybody called back whose operation will not end any more."""
        for handle in list(self.under_way.values()):
            handle.call_back()

    # The background.

    def _have_thread(self) -> None:
        """Start the background thread, unless it runs."""
        if self.thread is None:
            arguments = weakref.ref(self), self._turn, self._wanted
            self.thread = threading.Thread(target=_work, args=arguments, name=self.name, daemon=True)
            self.thread.start()
        self._wanted.set()

    def work(self) -> bool:
        """Drive for a moment if operations are under way and nobody waits; False: there will be nothing to do."""
        if self.is_dirty:
            self.interrupted()
        if self.is_over:
            return False
        if self._waiters or not (self.under_way or self.driver.awaits_switch):
            self._wanted.clear()
            return True
        if self.membership.error is not None:
            self._fail(self.membership.error)
            return False
        self._owner = threading.get_ident()
        self._step(BACKGROUND_WAIT_S)
        self._owner = 0
        return True

    def _after_heartbeat(self) -> None:
        """See to it that a restarted switch is told at once, and again; whoever drives does it, if anybody does."""
        is_due = self._loads != self.membership.loads or self.driver.owes_switch
        if is_due and self._turn.acquire(blocking=False):
            try:
                self._owner = threading.get_ident()
                if not (self.is_over or self.is_dirty):
                    self._step(0.0)
                    if self.driver.awaits_switch:
                        self._have_thread()
            finally:
                self._owner = 0
                self._turn.release()

    def _inform_switch(self) -> None:
        """Tell a switch that was restarted what others may still need, as long as that makes sense."""
        end = self.driver.clock() + LONGEST_FAREWELL_S
        while not self.is_dirty and self.driver.awaits_switch and not self.error and self.driver.clock() < end:
            self._step(LONGEST_WAIT_S)

    def _close_link(self) -> None:
        """Wait until nobody works, and close the link, unless that was done; the communicator is closed."""
        if not self.is_open:
            return
        self.is_open = False
        self.interrupts.give_back()
        self._call_back()
        self._wanted.set()
        if self.steps is not None:
            self.steps.close()
        # The system may have refused to start the thread, or an interrupt have come in between.
        if self.thread is not None and self.thread.is_alive() and self.thread is not threading.current_thread():
            self.thread.join()
        self.driver.close()
        self.membership.on_heartbeat = lambda: None  # no circle: what a closed communicator had mapped goes with it


_queues: Final[weakref.WeakSet[OperationQueue]] = weakref.WeakSet()


def _note_fork() -> None:
    """Mark the queues that a forked child has inherited: each call would else ask the system for its process."""
    for queue in _queues:
        queue.is_inherited = True


os.register_at_fork(after_in_child=_note_fork)


def _work(reference: weakref.ref[OperationQueue], turn: threading.Lock, wanted: threading.Event) -> None:
    """Drive a queue in the background for as long as there is one: nobody need close it."""
    is_wanted = True
    while is_wanted:
        wanted.wait()
        with turn:
            queue = reference()
            is_wanted = queue is not None and queue.work()
        del queue  # perhaps the last reference, with which it is closed

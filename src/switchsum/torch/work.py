"""Collectives under way, as c10d sees them: work objects, and the thread that completes their futures."""

from __future__ import annotations

import functools
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.futures import Future

from switchsum.host.api.handle import Handle
from switchsum.host.api.interrupts import MOST_AGAIN
from switchsum.protocol.errors import SwitchsumError, UsageError
from switchsum.torch.graphs import kept_out_of_graphs

NO_TIMEOUT: Final = timedelta(0)
RELIEF_S: Final = 0.05
"""How long callbacks may keep the works behind theirs from being completed."""
STOP_S: Final = 5.0
"""How long callbacks that are running may keep a group from ending."""
_NO_GRAPH_TASK: Final = -1
_callbacks_of = threading.local()
"""Its `completer`, in the threads of one."""


def in_backward() -> bool:
    """Whether the caller is part of a backward pass."""
    return torch._C._current_graph_task_id() != _NO_GRAPH_TASK


def raise_when_due(error: BaseException) -> None:
    """Raise what was held back: after the backward pass if this is part of one, for DDP could not go on else."""
    if not in_backward():
        raise error
    engine = torch.autograd.Variable._execution_engine

    def last() -> None:
        raise error

    engine.queue_callback(lambda: engine.queue_callback(last))  # behind DDP's own


def keep_order() -> None:
    """Call before a collective is begun: in a callback it waits until what must come first on all ranks has begun."""
    completer: Completer | None = getattr(_callbacks_of, "completer", None)
    if completer is not None:
        completer.keep_order()


def future_for(tensors: Sequence[torch.Tensor]) -> Future[Any]:
    """Return a future whose value, and those of what is chained to it, may have tensors of these ones' devices.

    One that does not know of a GPU refuses a value with tensors of it.
    """
    devices = {tensor.device for tensor in tensors if tensor.device.type != "cpu"}
    return Future(devices=sorted(devices, key=str)) if devices else Future()


@kept_out_of_graphs
class SwitchWork(dist.Work):
    """Collectives that were begun together; c10d waits for it, or for its future.

    The group's time-out decides when a collective has failed, so that all ranks agree on it; `wait` knows no other.
    """

    def __init__(self, handles: Sequence[Handle], tensors: list[torch.Tensor], finish: Callable[[], object]) -> None:
        super().__init__()
        self._handles = handles
        self._tensors = tensors
        self._finish = finish
        self._lock = threading.RLock()
        self._done = False
        self._error: BaseException | None = None
        self._held: BaseException | None = None
        self.completer: Completer | None = None
        """Who completes it when nobody waits."""
        self.has_ended = False
        """Whether its collectives have ended; the completer's."""
        self._ended: Future[None] | None = None
        self._future: Future[list[torch.Tensor]] | None = None
        self._at_end: Callable[[BaseException | None], object] | None = None
        self.waiting: Callable[[], AbstractContextManager[object]] = nullcontext
        """What `wait` does its waiting in."""
        self._told: threading.Event | None = None
        """Set when the future has its value; None outside of backward passes."""
        self.backward_is_over = threading.Event()
        """Set when no collective of the backward pass is to come that its future was asked for in."""
        self.backward_is_over.set()
        self.is_chained = threading.Event()
        """Set when the caller that asked for the future in a backward pass has chained its callbacks."""
        self.is_chained.set()
        self._relief_at = 0.0
        """When the future is told though that is not known."""
        self.number = 0
        """How many works of the group were begun before it; the completer's."""

    def complete(self, is_patient: Callable[[], bool] = lambda: True) -> None:
        """Wait for the results and put them where they belong; once, whichever thread comes first.

        Another thread that is about it is waited for as long as `is_patient()`.  What a signal handler raises meanwhile
        is kept until `wait`, so that nobody writes to tensors whose owner has gone on.
        """
        if self._is_interrupted():
            raise UsageError("a signal handler cannot wait for what its own thread is just waiting for")
        for again in itertools.count():
            try:
                if self._done or not self._acquire(is_patient):
                    break
                try:
                    self._bring_on()
                finally:
                    self._lock.release()
            except BaseException as error:
                if self._is_interrupted():
                    self._lock.release()
                self.hold_back(error)
                if again >= MOST_AGAIN:
                    self._error, self._done = error, True
        if self._done and (self.completer is None or self.completer.is_stopped):
            self.is_chained.set()
            self.tell()

    def _is_interrupted(self) -> bool:
        """Whether the caller's thread is in the midst of completing it, so that this is a signal handler."""
        return self._lock._is_owned()  # type: ignore[attr-defined]

    def _acquire(self, is_patient: Callable[[], bool]) -> bool:
        """Wait for the lock."""
        taken = self._lock.acquire(blocking=False)
        while not taken and is_patient():
            taken = self._lock.acquire(timeout=RELIEF_S)
        return taken

    def _bring_on(self) -> None:
        if self._done:
            return
        try:
            for handle in self._handles:
                handle._complete()
            self._finish()
        except SwitchsumError as error:
            self._error = error
        self._done = True
        if self._at_end is not None:
            self._at_end(self._error)

    def call_at_end(self, what: Callable[[BaseException | None], object]) -> None:
        """Have `what` called, once or twice, with what the collectives failed with, or None; waits for no lock."""
        self._at_end = what
        if self._done:
            what(self._error)

    def tell(self) -> None:
        """Let the future have its value, which runs the callbacks: the completer's, for it keeps their order.

        Not while a backward pass has yet to chain them: then they would run in its midst, and on some ranks only.
        """
        with self._lock:
            if not self.is_chained.is_set() and time.monotonic() < self._relief_at:
                return
            ended, self._ended = self._ended, None
        if ended is not None:
            ended.set_result(None)
            if self._told is not None:
                self._told.set()

    def hold_back(self, error: BaseException) -> None:
        """Keep what a signal handler has raised until the results are there."""
        if self._held is None or not isinstance(error, Exception):
            self._held = error

    def held_back(self) -> BaseException | None:
        """Return, and forget, what was held back, here or while the collectives were begun."""
        held, self._held = self._held, None
        for handle in self._handles:
            if handle._held is not None:
                held, handle._held = held or handle._held.error, None
        return held

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Return True once the results are there; raises what the collective failed with, every time."""
        with self.waiting():
            self.complete()
        held = self.held_back()
        if held is not None:
            raise_when_due(held)
        if self._error is not None:
            raise self._error.with_traceback(None)
        return True

    def get_future(self) -> Future[list[torch.Tensor]]:
        """Return a future of the tensors with the results.

        In a callback of another future it is complete already: the callback is likely to wait for it, on the very
        thread that completes futures, and C++ gives no notice of that.
        """
        if self.completer is not None and self.completer.is_own_thread():
            self.complete()
        for _ in range(MOST_AGAIN):
            try:
                return self._make_future()
            except Exception as error:  # a signal handler's, which would stay in C++
                self.hold_back(error)
        return self._make_future()

    def _make_future(self) -> Future[list[torch.Tensor]]:
        with self._lock:
            if self._future is None:
                if in_backward():
                    self._told = threading.Event()
                    self.backward_is_over.clear()
                    self.is_chained.clear()
                    self._relief_at = time.monotonic() + RELIEF_S
                self._ended = future_for(self._tensors)
                # An exception that is set on a future is a mere value to C++; one that a callback raises is an error.
                self._future = self._ended.then(self._outcome)
                if self._told is not None:
                    # DDP waits for the future when the backward pass is over, in C++, and cannot go on after what a
                    # signal handler raises there: so this waits before it.
                    torch.autograd.Variable._execution_engine.queue_callback(self._end_backward)
                if self._done and self.completer is not None and self.completer.keeps_turn(self):
                    self.completer.tell_in_turn(self)
                elif self._done:
                    self.tell()  # nothing is chained to it yet
            return self._future

    def _end_backward(self) -> None:
        """Wait until the completer, which keeps the order of callbacks, has told the future."""
        self.backward_is_over.set()
        self.is_chained.set()
        for _ in range(MOST_AGAIN):
            try:
                self._wait_for_completer()
                break
            except BaseException as error:
                self.hold_back(error)
        held = self.held_back()
        if held is not None:
            raise_when_due(held)

    def _wait_for_completer(self) -> None:
        try:
            for handle in self._handles:
                handle._complete()
        except SwitchsumError:
            pass  # the future has it
        while self._told is not None and not self._told.wait(RELIEF_S):
            if self.completer is None or self.completer.is_stopped:
                self.complete()

    def _outcome(self, _: Any) -> list[torch.Tensor]:
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self._tensors

    def is_completed(self) -> bool:
        """Whether the tensors hold the results, or the collective has failed."""
        if not self._done and not self._is_interrupted() and all(handle.is_done for handle in self._handles):
            self.complete()
        return self._done

    @property
    def is_done(self) -> bool:
        """Whether the results are where they belong, or the collective has failed."""
        return self._done

    @property
    def is_told(self) -> bool:
        """Whether there is no future that waits for its value."""
        return self._ended is None

    @property
    def is_asked(self) -> bool:
        """Whether there is a future."""
        return self._future is not None

    @property
    def has_future(self) -> bool:
        """Whether callbacks may run when it is completed."""
        return self._ended is not None

    def is_success(self) -> bool:
        """Whether the results are there."""
        return self._done and self._error is None

    def exception(self) -> BaseException | None:
        """Return what the collective failed with."""
        return self._error

    def result(self) -> list[torch.Tensor]:
        """Return the tensors with the results."""
        self.wait()
        return self._tensors

    def synchronize(self) -> None:
        """Wait, as `wait` does."""
        self.wait()


class Completer:
    """Completes works whose collectives have ended, so that futures need no thread that waits for them.

    Works are completed in the order in which they were begun, one by one: what is chained to a future may begin
    further collectives, and these must come in the same order on all ranks, for ranks' collectives are matched by it.
    A callback that waits for what comes after it would wait for ever; so another thread goes on when one has not come
    back from its callbacks for RELIEF_S.  Whether that one waits or only sleeps for want of a processor is not to be
    known.  So callbacks on the other thread may do all but begin collectives: `keep_order` lets them wait until the
    earlier callbacks have come back.  For the same reason those of a backward pass wait for its end, in which the last
    of its own collectives has been begun.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._turn = threading.Condition()
        self._works: deque[SwitchWork] = deque()
        self._begun = 0
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._running: dict[threading.Thread, SwitchWork] = {}
        """Works whose callbacks have not come back, in the order of the works."""
        self._latest_since = 0.0
        """When the last of them was taken."""
        self.is_stopped = False
        self._spawn()

    def watch(self, work: SwitchWork, last: Handle) -> None:
        """Complete `work` when its last collective has ended."""
        with self._turn:
            if work.completer is None:  # else a signal handler has interrupted this, and it is called again
                self._works.append(work)
                work.completer, work.number = self, self._begun
                self._begun += 1
                if not self.is_own_thread():
                    for earlier in (*self._works, *self._running.values()):
                        earlier.is_chained.set()
        last.add_done_callback(lambda _: self._notify(work))

    def keeps_turn(self, work: SwitchWork) -> bool:
        """Whether callbacks of a work that is done must wait for a backward pass or for callbacks of earlier works."""
        if not work.is_chained.is_set():
            return True
        with self._turn:
            return not self.is_own_thread() and self._has_earlier(work, lambda one: one.is_asked)

    def tell_in_turn(self, work: SwitchWork) -> None:
        """Tell a work's future, which was asked for when the work was done already."""
        with self._turn:
            if work not in self._works and work not in self._running.values():
                self._works.append(work)
                self._works = deque(sorted(self._works, key=lambda one: one.number))
                self._turn.notify_all()

    def keep_order(self) -> None:
        """Wait, in a callback that is about to begin a collective, until those that must come before it have begun."""
        with self._turn:
            work = self._running.get(threading.current_thread())
        if work is None:
            return
        while not self.is_stopped and not work.backward_is_over.wait(RELIEF_S):
            pass
        with self._turn:
            while not self.is_stopped and self._has_earlier(work):
                self._turn.wait()

    def _has_earlier(self, work: SwitchWork, counts: Callable[[SwitchWork], bool] = lambda _: True) -> bool:
        return any(one.number < work.number and counts(one) for one in (*self._running.values(), *self._works))

    def is_own_thread(self) -> bool:
        """Whether the caller is a callback of a future that this completer has completed."""
        return getattr(_callbacks_of, "completer", None) is self

    def stop(self) -> None:
        """Complete what has ended, and end the threads."""
        with self._turn:
            self.is_stopped = True
            self._turn.notify_all()
            threads = [thread for thread in self._threads if thread is not threading.current_thread()]
        deadline = time.monotonic() + STOP_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _notify(self, work: SwitchWork) -> None:
        with self._turn:
            work.has_ended = True
            self._turn.notify_all()

    def _spawn(self) -> None:
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._threads.add(thread)
        thread.start()

    def _run(self) -> None:
        _callbacks_of.completer = self
        while (work := self._take()) is not None:
            work.complete(functools.partial(self._waits_for, work))
            while True:
                with self._turn:
                    if self._idle == 0 and work.has_future:
                        self._spawn()  # there must be one to go on if this work's callbacks do not come back
                if work.is_done:  # else a signal handler waits for what comes after it
                    work.is_chained.wait(RELIEF_S)
                    work.tell()
                with self._turn:
                    if work.is_told or not work.is_done:  # else its future was asked for just now
                        del self._running[threading.current_thread()]
                        self._turn.notify_all()
                        break
            del work  # its tensors are not kept while there is nothing to do
        self._threads.discard(threading.current_thread())

    def _waits_for(self, work: SwitchWork) -> bool:
        """Whether to wait for another thread that completes a work: only callbacks must be kept in order.

        That thread may be in a signal handler which waits for what comes after it, or which stops this.
        """
        return work.has_future and not self.is_stopped

    def _take(self) -> SwitchWork | None:
        """Wait for a turn; return the work that has ended, or None when there will be no more."""
        with self._turn:
            self._idle += 1
            try:
                while (patience_s := self._patience_s()) != 0:
                    if self.is_stopped and not (self._works and self._works[0].has_ended):
                        return None
                    self._turn.wait(patience_s)
                work = self._works.popleft()
                self._running[threading.current_thread()], self._latest_since = work, time.monotonic()
            finally:
                self._idle -= 1
            return work

    def _patience_s(self) -> float | None:
        """Return for how long the first work must wait for its turn, 0 if not at all, None if it has not ended."""
        if not self._works or not self._works[0].has_ended:
            return None
        if not self._running:
            return 0
        return max(0.0, self._latest_since + RELIEF_S - time.monotonic())

"""Collectives under way, as c10d sees them: work objects."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any, Final, TypeVar

import torch
import torch.distributed as dist
from torch.futures import Future

from switchsum.torch.completer import RELIEF_S, Completer
from switchsum.torch.gradients import in_backward, in_last_callbacks
from switchsum.torch.graphs import kept_out_of_graphs
from switchsum.torch.typed_futures import is_for_cpp, typed
from switchsum_host.api.operation_queue import Handle
from switchsum_protocol.errors import SwitchsumError, UsageError

NO_TIMEOUT: Final = timedelta(0)
Made = TypeVar("Made")


def raise_when_due(error: BaseException) -> None:
    """Raise what was held back: after the backward pass if this is part of one, for DDP could not go on else."""
    if not in_backward():
        raise error
    engine = torch.autograd.Variable._execution_engine

    def last() -> None:
        raise error

    engine.queue_callback(lambda: engine.queue_callback(last))  # behind DDP's own


def future_for(tensors: Sequence[torch.Tensor]) -> Future[Any]:
    """Return a future whose value, and those of what is chained to it, may have tensors of these ones' devices.

    One that does not know of a GPU refuses a value with tensors of it.
    """
    devices = {tensor.device for tensor in tensors if tensor.device.type != "cpu"}
    return Future(devices=sorted(devices, key=str)) if devices else Future()


def _nothing() -> None:
    """Put no results anywhere: they are there."""


@kept_out_of_graphs
class SwitchWork(dist.Work):
    """Collectives that were begun together; c10d waits for it, or for its future.

    The group's time-out, or the call's own one, decides when a collective has failed.  The time-out of `wait` ends the
    waiting alone: the collective goes on, and may be waited for again.
    """

    def __init__(self, handles: Sequence[Handle], tensors: list[torch.Tensor], finish: Callable[[], object]) -> None:
        super().__init__()
        self.handles = handles
        self._tensors = tensors
        self._finish = finish
        self._lock = threading.RLock()
        self._done = False
        self._is_waited_for = False
        """True: the owner knows that the work has ended. A future is then set at once, on which C++ relies."""
        self._error: BaseException | None = None
        self._held: BaseException | None = None
        self.completer: Completer | None = None
        """The completer, which completes the work if nobody waits."""
        self.has_ended = False
        """True: its collectives have ended. The completer sets it."""
        self._ended: Future[None] | None = None
        self._future: Future[list[torch.Tensor]] | None = None
        self._at_end: Callable[[BaseException | None], object] | None = None
        self.waiting: Callable[[], AbstractContextManager[object]] = nullcontext
        """Context in which `wait` waits."""
        self._given: threading.Event | None = None
        """Set when the future has its value; None outside of backward passes."""
        self.backward_is_over = threading.Event()
        """Set when no collective of the backward pass is to come that its future was asked for in."""
        self.backward_is_over.set()
        self.is_chained = threading.Event()
        """Set when the caller that asked for the future in a backward pass has chained its callbacks."""
        self.is_chained.set()
        self._relief_at = 0.0
        """Time at which the future is set although the owner may not know of the end."""
        self.number = 0
        """Number of works of the group that were begun before it. The completer uses it."""

    def complete(self, is_patient: Callable[[], bool] = lambda: True) -> None:
        """Wait for the results and put them where they belong; once, whichever thread comes first.

        Another thread that is about it is waited for as long as `is_patient()`.  What is raised meanwhile is the
        work's error, which `wait` raises; KeyboardInterrupt and the like are raised at once.
        """
        if self._is_interrupted():
            raise UsageError("a signal handler cannot wait for a collective that its own thread is waiting for")
        try:
            if not self._done and self._acquire(is_patient):
                self._bring_on()
        finally:
            if self._is_interrupted():
                self._lock.release()
        if self._done and (self.completer is None or self.completer.is_stopped):
            self.is_chained.set()
            self.tell()

    def _is_interrupted(self) -> bool:
        """Return whether the caller's thread is in the midst of completing it, so that this is a signal handler."""
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
            for handle in self.handles:
                handle.wait()
            self._finish()
        except Exception as error:  # of a collective, of what writes results, or of a signal handler
            self._error = error
        # Whoever keeps the work, or a cycle of references, does not keep pinned memory with it: to pin the next call's
        # anew takes longer than to add it.
        self.handles, self._finish = (), _nothing
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
            if self._given is not None:
                self._given.set()

    def hold_back(self, error: BaseException) -> None:
        """Keep what a signal handler has raised until the results are there."""
        if self._held is None or not isinstance(error, Exception):
            self._held = error

    def held_back(self) -> BaseException | None:
        """Return, and forget, what was held back."""
        held, self._held = self._held, None
        return held

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Return True once the results are there; raises what the collective failed with, every time.

        Raises CollectiveTimeout with the ranks that are missing, where the results are not there within `timeout`; zero
        and less mean no limit, as in torch.
        """
        with self.waiting():
            if timeout > NO_TIMEOUT and not self._done:
                self._wait_for(timeout.total_seconds())
            self.complete()
        self._is_waited_for = True
        held = self.held_back()
        if held is not None:
            raise_when_due(held)
        if self._error is not None:
            raise self._error.with_traceback(None)
        return True

    def _wait_for(self, seconds: float) -> None:
        """Wait until all has ended that it consists of; raises CollectiveTimeout."""
        end = time.monotonic() + seconds
        for handle in self.handles:
            if not handle.wait_for(end - time.monotonic()):
                raise handle.overdue(seconds)

    def get_future(self) -> Future[list[torch.Tensor]]:
        """Return a future of the tensors with the results.

        In a callback of another future, the returned future is complete already.  The callback is likely to wait for
        it, on the very thread that completes futures, and C++ does not tell that it waits.  The same holds in a
        backward pass's last callbacks, where DDP waits for futures of a static graph's first step.
        """
        if self.completer is not None and (self.completer.is_own_thread() or in_last_callbacks()):
            self.complete()
        return self._again_if_raised(self._make_future, Exception)

    def _again_if_raised(self, what: Callable[[], Made], kind: type[BaseException]) -> Made:
        """Do what C++ has called for, once more if a signal handler raises in its midst; the second time it is raised.

        In C++ the exception would be lost, or DDP could not go on.  The first one is held back until the results are
        there.
        """
        try:
            return what()
        except kind as error:
            self.hold_back(error)
        return what()

    def _make_future(self) -> Future[list[torch.Tensor]]:
        with self._lock:
            if self._future is None:
                completer = None if self._is_waited_for or in_last_callbacks() else self.completer
                if in_backward() and not self._is_waited_for:
                    self._given = threading.Event()
                    if completer is not None:  # else nobody would tell the future when its callbacks are chained
                        self.backward_is_over.clear()
                        self.is_chained.clear()
                        self._relief_at = time.monotonic() + RELIEF_S
                self._ended = future_for(self._tensors)
                # An exception that is set on a future is a mere value to C++; one that a callback raises is an error.
                future = self._ended.then(self._outcome)
                if self._given is not None:
                    # At the end of the backward pass DDP waits for the future in C++.  If a signal handler raised
                    # there, DDP could not go on.  So this waits before DDP does.
                    torch.autograd.Variable._execution_engine.queue_callback(self._end_backward)
                if is_for_cpp(self._tensors):
                    future = typed(future, self._tensors)
                if completer is not None and (not self._done or completer.keeps_turn(self)):
                    completer.tell_in_turn(self)
                elif self._done:
                    self.tell()  # nothing is chained to it yet
                self._future = future
            return self._future

    def _end_backward(self) -> None:
        """Wait until the completer, which keeps the order of callbacks, has told the future."""
        self.backward_is_over.set()
        self.is_chained.set()
        self._again_if_raised(self._wait_for_completer, BaseException)
        held = self.held_back()
        if held is not None:
            raise_when_due(held)

    def _wait_for_completer(self) -> None:
        try:
            for handle in self.handles:
                handle.wait()
        except SwitchsumError:
            pass  # the future has it
        while self._given is not None and not self._given.wait(RELIEF_S):
            if self.completer is None or self.completer.is_stopped:
                self.complete()

    def _outcome(self, _: Any) -> list[torch.Tensor]:
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self._tensors

    def is_completed(self) -> bool:
        """Return whether the tensors hold the results, or the collective has failed."""
        if not self._done and not self._is_interrupted() and all(handle.is_done for handle in self.handles):
            self.complete()
        return self._done

    @property
    def is_done(self) -> bool:
        """Whether the results are where they belong, or the collective has failed."""
        return self._done

    @property
    def is_of_one_value(self) -> bool:
        """Whether it is of one tensor with one value, so that keeping it costs nothing."""
        return len(self._tensors) == 1 and self._tensors[0].numel() == 1

    @property
    def future_has_value(self) -> bool:
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
        """Return whether the results are there."""
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

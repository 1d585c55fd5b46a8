"""Collectives of several steps in the background.

The switch knows single allreduces, numbered alike on all ranks.  So while a collective of several steps has not begun
the last of them, others wait with beginning their first.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for_futures
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

from switchsum_protocol.errors import SumOverflow, SwitchsumError, UsageError

from .operation_queue import Handle, OperationQueue, check_process


@dataclass(frozen=True, slots=True, kw_only=True)
class LastStep:
    """What is still under way, and what makes the result of it."""

    handle: Handle
    finish: Callable[[], Any]

    def result(self) -> Any:
        """Wait, and return the result; raises what the last step failed with."""
        try:
            self.handle.wait()
        except SumOverflow:
            self.finish()
            raise
        return self.finish()


def begin_steps(queue: OperationQueue, steps: Callable[[], LastStep], *, stays: bool = False) -> Handle:
    """Begin several operations, all but the last of which `steps` begins and waits for, on a thread for them.

    With `stays` the caller's thread takes the steps.  What is raised in their midst breaks the communicator.
    """
    check_process(queue.pid)
    if queue.closed:
        raise UsageError("this communicator is closed: switchsum.connect makes another one")
    if stays:
        return TakenSteps(queue, steps)
    if queue.driver.moves_alone:
        return SteppedHandle(_begin_here(queue, steps), queue)
    if queue.steps is None:
        vars(queue).setdefault("steps", StepQueue(queue))  # one, whoever is first
    assert isinstance(queue.steps, StepQueue)
    return queue.steps.begin(lambda: _all_but_last(queue, steps))


def _begin_here(queue: OperationQueue, steps: Callable[[], LastStep]) -> Future[LastStep]:
    """Take the steps on the caller's thread; in virtual time another thread would not hold up its process."""
    begun: Future[LastStep] = Future()
    try:
        begun.set_result(_all_but_last(queue, steps))
    except SwitchsumError as error:  # which `wait` raises
        begun.set_exception(error)
    return begun


def _all_but_last(queue: OperationQueue, steps: Callable[[], LastStep]) -> LastStep:
    try:
        return steps()
    except SwitchsumError:
        raise
    except BaseException as error:
        queue.interrupted(error)
        raise


class StepQueue:
    """One communicator's collectives of several steps: one after the other, in the order in which they were begun."""

    def __init__(self, queue: OperationQueue) -> None:
        self._pid = queue.pid
        self._queue = weakref.ref(queue)
        name = f"{queue.name} steps"
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name, initializer=self._note_thread)
        self._is_closed = False
        self.thread = 0
        """Identifier of its thread; 0: it has not begun."""
        self._last: threading.Event | None = None
        """Set when the latest of them has begun its last step; not its future, which keeps the memory of its result."""

    def begin(self, steps: Callable[[], LastStep]) -> SteppedHandle:
        """Do all steps but the last on a thread of their own; raises UsageError once the communicator is closed.

        What a step begins takes its first steps at once: behind others that wait for the thread, ranks might differ.
        """
        if threading.get_ident() == self.thread:
            within: Future[LastStep] = Future()
            within.set_result(steps())
            return self._handle(within)
        try:
            begun = self._executor.submit(copy_context().run, steps)
        except RuntimeError as error:
            if self._is_closed:
                raise UsageError("this communicator is closed: switchsum.connect makes another one") from error
            raise
        last = self._last = threading.Event()
        begun.add_done_callback(lambda _: last.set())  # also where it fails, or is cancelled
        return self._handle(begun)

    def _handle(self, begun: Future[LastStep]) -> SteppedHandle:
        queue = self._queue()
        assert queue is not None  # its communicator has called this
        return SteppedHandle(begun, queue)

    def wait_for_last_steps(self) -> None:
        """Wait until each of them has begun its last step, or failed; their own thread need not wait."""
        last = self._last  # which another thread may close meanwhile
        if last is not None and threading.get_ident() != self.thread:
            check_process(self._pid)
            last.wait()

    def close(self) -> None:
        """Wait until the thread has ended, which the communicator has given nothing more to do."""
        self._is_closed = True
        self._executor.shutdown(cancel_futures=True)
        self._last = None

    def _note_thread(self) -> None:
        self.thread = threading.get_ident()


class SteppedHandle(Handle):
    """A collective of several steps that was begun."""

    def __init__(self, begun: Future[LastStep], queue: OperationQueue) -> None:
        self._queue = queue
        self._begun: Future[LastStep] | None = begun
        """None once the result is here: a future keeps its callbacks, and so this handle, in a cycle of references."""
        self._lock = threading.RLock()
        self._result: Any = None

    @property
    def is_done(self) -> bool:
        """Whether `wait` would return, or raise, at once."""
        begun = self._begun
        return begun is None or (begun.done() and (_failed(begun) or begun.result().handle.is_done))

    def add_done_callback(self, callback: Callable[[Handle], object]) -> None:
        """See `Handle`."""

        def call_when_done(begun: Future[LastStep]) -> None:
            if _failed(begun):
                callback(self)
            else:
                begun.result().handle.add_done_callback(lambda _: callback(self))

        begun = self._begun
        if begun is None:
            callback(self)
        else:
            begun.add_done_callback(call_when_done)

    def wait(self) -> Any:
        """Return the result, once it is there; raises what the collective failed with, each time that it is called."""
        check_process(self._queue.pid)
        begun = self._begun
        if begun is None:
            return self._result
        try:
            last = begun.result()
        except CancelledError:
            raise UsageError("this communicator was closed before the collective's first step") from None
        with self._lock:
            if self._begun is not None:
                self._result = last.result()
                last.handle.wait()
                self._begun = None
        return self._result

    def wait_for(self, seconds: float) -> bool:
        """See `Handle`."""
        check_process(self._queue.pid)
        end, begun = time.monotonic() + seconds, self._begun
        if begun is None:
            return True
        wait_for_futures([begun], max(0.0, seconds))
        if not begun.done() or _failed(begun):
            return begun.done()
        return begun.result().handle.wait_for(end - time.monotonic())


class TakenSteps(Handle):
    """A collective of several steps of which the caller's thread has taken all but the last."""

    def __init__(self, queue: OperationQueue, steps: Callable[[], LastStep]) -> None:
        self._queue = queue
        self._last: LastStep | None = None
        self._error: SwitchsumError | None = None
        self._taken: Any = None
        try:
            self._last = _all_but_last(queue, steps)
        except SwitchsumError as error:  # which `wait` raises
            self._error = error

    @property
    def is_done(self) -> bool:
        """Whether `wait` would return, or raise, at once."""
        return self._last is None or self._last.handle.is_done

    def add_done_callback(self, callback: Callable[[Handle], object]) -> None:
        """See `Handle`."""
        if self._last is None:
            callback(self)
        else:
            self._last.handle.add_done_callback(lambda _: callback(self))

    def wait(self) -> Any:
        """Return the result; raises what the collective failed with, each time that it is called."""
        if self._error is not None:
            raise self._error
        if self._last is not None:
            self._taken = self._last.result()
            self._last.handle.wait()
            self._last = None
        return self._taken

    def wait_for(self, seconds: float) -> bool:
        """See `Handle`."""
        return self._last is None or self._last.handle.wait_for(seconds)


def _failed(begun: Future[LastStep]) -> bool:
    return begun.cancelled() or begun.exception() is not None

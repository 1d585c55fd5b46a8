"""A collective under way: what its caller waits for."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from switchsum.protocol.errors import SumOverflow

from ..engine.events import Finished
from ..engine.operation import Operation
from .interrupts import HeldBack

if TYPE_CHECKING:
    from .driving import Driving

Array = npt.NDArray[Any]


class Handle:
    """A collective that was begun; its arrays belong to the communicator until `wait` returns."""

    # Of the class until they change, for a small allreduce makes a handle each time.
    _serial = -1
    _held: HeldBack | None = None
    _finished: Finished | None = None
    _saturates = False
    _memory: int | None = None
    """Where the memory begins that it uses while it is in flight."""

    def __init__(
        self,
        communicator: Driving,
        operation: Operation,
        values: Array | None = None,
        finish: Callable[[], Any] | None = None,
        *,
        saturates: bool = False,
    ) -> None:
        """Describe a collective that is to be begun.

        `values` is what the engine adds, in place: the caller's array itself if that can be, else a copy.  `finish`
        puts the result where the caller wants it, and returns it; None: it is in `values`.  With `saturates` the
        nearest value will do where an integer sum does not fit.
        """
        self._communicator = communicator
        self._operation = operation
        self._values = values
        self._make_result = finish
        if saturates:
            self._saturates = True
        self._callbacks: deque[Callable[[Handle], object]] = deque()
        if finish is not None:
            self._lock = threading.RLock()  # a signal handler may wait for what it has interrupted the end of
        self._has_result = finish is None
        self._result: Any = values

    @property
    def is_done(self) -> bool:
        """Whether `wait` would return, or raise, at once."""
        return self._finished is not None or self._communicator._is_over

    def add_done_callback(self, callback: Callable[[Handle], object]) -> None:
        """Call `callback(self)` once `is_done`, from the thread that finds out, which it must neither block nor fail.

        Without a background thread that is a thread that waits for something.
        """
        self._callbacks.append(callback)
        if self.is_done:
            self._call_back()

    def wait(self) -> Any:
        """Return the collective's result, once it is there; raises what it failed with, each time that it is called.

        What a signal handler raises meanwhile is raised when the collective has ended, and its result is there; see
        `Communicator`.
        """
        finished = self._finished
        if finished is not None and self._has_result and self._held is None and not finished.overflowed:
            return self._result
        try:
            result = self._complete()
        except SumOverflow as error:
            self._deliver(error)
            raise
        if self._held is not None:
            self._deliver(None)
        return result

    def _deliver(self, cause: SumOverflow | None) -> None:
        """Raise what was held back, if anything was."""
        held, self._held = self._held, None
        if held is not None and held.error is not None:
            self._communicator._delivered = held.error
            raise held.error from cause

    def _complete(self) -> Any:
        """Do what `wait` does, but leave alone what was held back."""
        if self._finished is None:
            self._communicator._wait(self)
        assert self._finished is not None
        if not self._has_result:
            self._finish()
        blocks = self._overflowed
        if blocks:
            names = ", ".join(map(str, blocks[:8])) + (", ..." if len(blocks) > 8 else "")
            raise SumOverflow(f"sums beyond {self._operation.dtype_name} in block {names}", blocks)
        return self._result

    @property
    def _overflowed(self) -> tuple[int, ...]:
        """Blocks of integers that did not fit, unless the nearest value will do."""
        return () if self._finished is None or self._saturates else self._finished.overflowed

    def _finish(self) -> None:
        """Put the result where it belongs, which may be done again: once more where something raises meanwhile."""
        for last in (False, True):
            try:
                with self._lock:
                    if not self._has_result:
                        self._result = self._make_result() if self._make_result is not None else self._values
                        self._has_result = True
                return
            except BaseException as error:
                if last:
                    raise
                self._held = self._held or HeldBack(error)

    def _end(self, finished: Finished) -> None:
        """Note that the switch has done its part."""
        self._finished = finished
        if self._callbacks:
            self._call_back()

    def _call_back(self) -> None:
        """Call back; exactly once each, whoever of two threads sees first that it is done."""
        while self._callbacks:
            try:
                callback = self._callbacks.popleft()
            except IndexError:  # the other thread
                return
            try:
                callback(self)
            except BaseException:
                self._callbacks.appendleft(callback)  # a signal handler's; the collective is gone on with
                raise

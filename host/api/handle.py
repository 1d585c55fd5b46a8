"""A collective under way: what its caller waits for."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import numpy.typing as npt

from switchsum.protocol.errors import SumOverflow, UsageError

from ..engine.events import Finished
from ..engine.operation import Operation

Array = npt.NDArray[Any]


def check_process(pid: int) -> None:
    """Raise UsageError in a process that was forked from the one to which a communicator belongs."""
    if os.getpid() != pid:
        raise UsageError(f"this communicator belongs to process {pid}; connect in this one if it needs any")


class Drives(Protocol):
    """What brings operations to their end."""

    @property
    def is_over(self) -> bool:
        """Whether nothing that is in flight will end any more."""
        ...

    def wait(self, handle: Handle) -> None:
        """Return when an operation has ended; raises why it never will."""
        ...


class Handle:
    """A collective that was begun; its arrays belong to the communicator until `wait` returns."""

    # Of the class until they change, for a small allreduce makes a handle each time.
    finished: Finished | None = None
    """What the engine has said of its end; None: it is in flight."""
    memory: int | None = None
    """Where the memory begins that it uses while it is in flight."""
    saturates = False

    def __init__(
        self,
        queue: Drives,
        operation: Operation,
        values: Array | None = None,
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
        self.values = values
        self._queue = queue
        self._make_result = finish
        if saturates:
            self.saturates = True
        self._callbacks: deque[Callable[[Handle], object]] = deque()
        if finish is not None:
            self._lock = threading.RLock()  # a signal handler may wait for what it has interrupted the end of
        self._has_result = finish is None
        self._result: Any = values

    @property
    def is_done(self) -> bool:
        """Whether `wait` would return, or raise, at once."""
        return self.finished is not None or self._queue.is_over

    def add_done_callback(self, callback: Callable[[Handle], object]) -> None:
        """Call `callback(self)` once `is_done`, from the thread that finds out, which it must neither block nor fail.

        Without a background thread that is a thread that waits for something.
        """
        self._callbacks.append(callback)
        if self.is_done:
            self.call_back()

    def wait(self) -> Any:
        """Return the collective's result, once it is there; raises what it failed with, each time that it is called."""
        finished = self.finished
        if finished is None:
            self._queue.wait(self)
            finished = self.finished
            assert finished is not None
        if not self._has_result:
            self._finish()
        if finished.overflowed and not self.saturates:
            blocks = finished.overflowed
            names = ", ".join(map(str, blocks[:8])) + (", ..." if len(blocks) > 8 else "")
            raise SumOverflow(f"sums beyond {self.operation.dtype_name} in block {names}", blocks)
        return self._result

    def _finish(self) -> None:
        """Put the result where it belongs; where something is raised meanwhile, the next `wait` does it again."""
        with self._lock:
            if not self._has_result:
                self._result = self._make_result() if self._make_result is not None else self.values
                self._has_result = True

    def end(self, finished: Finished) -> None:
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

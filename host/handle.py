"""What a collective that was begun is to its caller."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from switchsum.host.collectives import Again, Call
from switchsum.host.events import Finished
from switchsum.protocol.errors import SumOverflow


class Waits(Protocol):
    """What a handle needs of its communicator."""

    @property
    def _is_over(self) -> bool: ...

    def _wait(self, handle: Handle) -> None: ...


class Handle:
    """A collective that was begun; its arrays belong to the communicator until `wait` returns."""

    def __init__(self, communicator: Waits, call: Call | Again) -> None:
        self._communicator = communicator
        self._call = call
        self._callbacks: deque[Callable[[Handle], object]] = deque()
        self._lock = threading.Lock()
        self._finished: Finished | None = None
        self._has_result = False
        self._result: Any = None

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
        """Return the collective's result, once it is there; raises what it failed with, each time that it is called."""
        if self._finished is None:
            self._communicator._wait(self)
        assert self._finished is not None
        with self._lock:
            if not self._has_result:
                self._result = self._call.finish()
                self._has_result = True
        blocks = self._finished.overflowed
        if blocks and not self._call.saturates:
            names = ", ".join(map(str, blocks[:8])) + (", ..." if len(blocks) > 8 else "")
            raise SumOverflow(f"sums beyond {self._call.dtype_name} in block {names}", blocks)
        return self._result

    def _end(self, finished: Finished) -> None:
        """Note that the switch has done its part."""
        self._finished = finished
        self._call_back()

    def _call_back(self) -> None:
        """Call back; exactly once each, whoever of two threads sees first that it is done."""
        while self._callbacks:
            try:
                callback = self._callbacks.popleft()
            except IndexError:  # the other thread
                return
            callback(self)

"""What a collective that was begun is to its caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from switchsum.host.collectives import Call
from switchsum.host.events import Finished
from switchsum.protocol.errors import SumOverflow


class Waits(Protocol):
    """What a handle needs of its communicator."""

    def _has_ended(self, serial: int) -> bool: ...

    def _when_ended(self, serial: int, callback: Callable[[], object]) -> None: ...

    def _wait(self, serial: int) -> Finished: ...


class Handle:
    """A collective that was begun; its arrays belong to the communicator until `wait` returns."""

    def __init__(self, communicator: Waits, call: Call, serial: int) -> None:
        self._communicator = communicator
        self._call = call
        self._serial = serial
        self._finished: Finished | None = None
        self._result: Any = None

    @property
    def is_done(self) -> bool:
        """Whether `wait` would return, or raise, at once."""
        return self._finished is not None or self._communicator._has_ended(self._serial)

    def add_done_callback(self, callback: Callable[[Handle], object]) -> None:
        """Call `callback(self)` once `is_done`, from the thread that finds out, which it must neither block nor fail.

        Without a background thread that is a thread that waits for something.
        """
        self._communicator._when_ended(self._serial, lambda: callback(self))

    def wait(self) -> Any:
        """Return the collective's result, once it is there; raises what it failed with, each time that it is called."""
        if self._finished is None:
            self._finished = self._communicator._wait(self._serial)
            self._result = self._call.finish()
        blocks = self._finished.overflowed
        if blocks and not self._call.saturates:
            names = ", ".join(map(str, blocks[:8])) + (", ..." if len(blocks) > 8 else "")
            raise SumOverflow(f"sums beyond {self._call.operation.dtype_name} in block {names}", blocks)
        return self._result

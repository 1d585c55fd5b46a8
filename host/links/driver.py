"""The driver: one engine's loop on one link, from opening the link to opening it again."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from ..engine.events import Outcome
from ..engine.loop import Loop
from ..engine.operation import Operation
from ..engine.worker import Engine
from .base import Transport

if TYPE_CHECKING:
    from switchsum.native.process.trace import Trace


class Driver:
    """One engine on one transport; one thread at a time drives it."""

    def __init__(self, engine: Engine, transport: Transport, *, trace: Trace | None = None) -> None:
        """Note in `trace`, if there is one, what the loop does."""
        self.engine = engine
        self.transport = transport
        self.clock = transport.now
        self.trace = trace
        self._reopened = transport.reopened
        self._is_open = True
        self._loop = self._make_loop()

    def _make_loop(self) -> Loop:
        spans = None if self.trace is None else self.trace.spans
        return Loop(self.engine.state, self.engine.pushed_before, self.transport.operations(), spans)

    def step(self, most_s: float) -> deque[Outcome]:
        """Move frames until something has happened or `most_s` is over; return what has happened.

        The caller takes each event away once it is done with it.  Raises SwitchLost when the link is broken for good.
        """
        engine = self.engine
        if self.transport.reopened != self._reopened:
            self._relink()
        if self._is_open:
            self._is_open = self._loop.run(self.clock() + most_s)
        else:  # time passes for the engine all the same
            self._loop.run(self.clock())
            self.transport.wait(most_s)
        engine.note(self.clock())
        return engine.events()

    def _relink(self) -> None:
        """Go on with a link that was opened again."""
        transport = self.transport
        self.engine.relink(transport.tx_frames, transport.pushed)
        self._loop = self._make_loop()
        self._reopened, self._is_open = transport.reopened, True

    def begin(self, operation: Operation, values: npt.NDArray[Any] | None, most_s: float) -> deque[Outcome]:
        """Submit a prepared operation on an array, and move frames as `step` does; return what has ended.

        What else has happened, to the link or because nothing came, the next `step` says.  Raises UsageError.
        """
        if self.transport.reopened != self._reopened:
            self._relink()  # or contributions would be packed into rows that nobody reads any more
        now = self.clock()
        self.engine.adopt(operation, values, now)
        self._loop.begin(operation.address, now + most_s)
        return self.engine.events()

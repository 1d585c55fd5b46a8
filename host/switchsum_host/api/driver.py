"""What a communicator asks of the driver below it: whoever moves its operations, in real time or in virtual time.

`engine.loop.Driver` runs the engine's loop on a link in this process.  `links.virtual.VirtualDriver` hands operations
to the process that simulates the network.  The communicator and its queue know nothing else of either.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from switchsum_protocol.errors import CollectiveTimeout

from ..engine.engine import Outcome
from ..engine.operation import Operation

if TYPE_CHECKING:
    from switchsum_switch.process.trace import Trace


class CommunicatorDriver(Protocol):
    """Moves the operations of one rank.  One thread at a time calls it, unless a member says otherwise."""

    # What it is.

    @property
    def lanes_per_frame(self) -> int:
        """Return the number of 32-bit lanes in a frame."""
        ...

    @property
    def timeout_s(self) -> float:
        """Return the seconds without progress after which an operation fails."""
        ...

    @property
    def moves_alone(self) -> bool:
        """Whether frames move while nobody calls it, as in virtual time; else a thread in the background has to."""
        ...

    @property
    def trace(self) -> Trace | None:
        """Return where operations are noted, if they are."""
        ...

    # How far it is.

    @property
    def submitted(self) -> int:
        """Return the serial number of the next operation, which is how many there were; any thread may ask."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether another operation must wait until the oldest has ended."""
        ...

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Return what has happened so far, by `engine.state.Count`; any thread may ask."""
        ...

    def clock(self) -> float:
        """Return the time in seconds; any thread may ask."""
        ...

    # What it does.

    def submit(
        self, operation: Operation, values: npt.NDArray[Any] | None, most_s: float, timeout_s: float | None = None
    ) -> deque[Outcome]:
        """Begin an operation on an array, and do what `step` does; return what has ended.

        `timeout_s` takes the place of the driver's own for this operation, unless time is virtual.
        """
        ...

    def step(self, most_s: float) -> deque[Outcome]:
        """Move frames until something has happened or `most_s` is over; return what has happened.

        The caller takes each event away once it is done with it.  Raises SwitchLost when nothing moves any more.
        """
        ...

    def compute(self, seconds: float) -> None:
        """Let a computation take its time, where that is virtual."""
        ...

    def overdue(self, timeout_s: float) -> CollectiveTimeout:
        """Return what to raise after a wait of so long.  It says who is missing, if that is known.

        Any thread may ask.
        """
        ...

    def close(self) -> None:
        """Close the link, and write the trace."""
        ...

    # What others have noticed.

    def note_wait(self) -> None:
        """Take note that the program has waited for all operations so far, in a way that is not seen here."""
        ...

    def note_restart(self) -> None:
        """Take note that the switch was restarted: it is told again what other ranks may still need."""
        ...

    @property
    def awaits_switch(self) -> bool:
        """Whether a restarted switch has yet to answer about rounds that are over here."""
        ...

    @property
    def owes_switch(self) -> bool:
        """Whether a restarted switch is to be told again of rounds that are over here, though an answer came."""
        ...

    def note_departure(self) -> None:
        """Take note that what the switch has said so far may be older than the news that a rank has left."""
        ...

    def held_slots(self, *, earlier: bool = True) -> list[tuple[int, int, list[int]]]:
        """Return slot, round's number and missing ranks of what the switch has said to wait for; any thread may ask.

        Without `earlier`, only what it has said since `note_departure` was called last.
        """
        ...

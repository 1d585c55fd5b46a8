"""A link as the loop sees it: a record, `LINK`, with the addresses of its six functions.

The record also has what functions found, and what they are asked for.  The loop calls them once per batch of frames::

    take  ->  receive  ->  release  ->  poll  ->  send  ->  wait, if nothing was done

Native links have compiled functions, so a whole collective takes no Python.  Links written in Python have callbacks
instead (links/callbacks.py), and run in the same loop.

Each function is called with the address of the record, and returns a number:

    take      frames that have come; sets `frames`, `stride`, `rows`, `lengths` and `bodies`, valid until `release`
    release   (no result) gives the rows of the last `take` back
    send      (no result) hands over the first of the `queued` frames, as many as there is room for, and raises `pushed`
    consumed  how many of the `pushed` frames, in order, nobody reads any more
    wait      1 if something may have come; it sleeps until `until` at most, or for `nap_s` whatever comes
    now       (no result) sets `time`

A function that wants the loop to end says why in `stop`.

Three facts about a link decide how long work goes on before the link gets something to send:

- `turn`: with so many frames queued, they are sent before more results are looked at.  Small results that came together
  may call for hundreds of contributions, and the link would be idle while all of them are made.  Then the worker lets
  others run, so that other workers' links are not idle either.
- `batch_bytes`: until so many bytes of results have been taken, more is taken before anything is sent, where results
  come one by one but leave together.
- `longest_nap_s`: with many rounds in flight, a worker that has looked at all results sleeps for a moment before it
  asks to be woken, so that it is not woken for each: the switch often has the same cores (BMv2 always).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from switchsum_switch.kernels.loading import address_of
from switchsum_switch.kernels.records import Float64, Int64, Record, Table, dtype_of, table
from switchsum_switch.process.patience import new_patience


class Stop(IntEnum):
    """Why the loop ends."""

    NONE = 0
    """It does not."""
    PAUSED = 1
    """An operation has finished or failed, or the time is over; or the link wants its caller to do something else."""
    HUNG_UP = 2
    """The switch closed the link."""
    BROKEN = 3
    """The switch wrote something on the link that makes no sense."""
    RAISED = 4
    """A function raised an exception, which is kept."""


class LinkRecord(Record):
    """What the loop knows of a link; see above."""

    # The functions' addresses.
    take: Int64
    release: Int64
    send: Int64
    consumed: Int64
    wait: Int64
    now: Int64
    # What `take` found.
    frames: Int64
    """Address of row 0; a frame starts at the engine's lead."""
    stride: Int64
    """Bytes from one row to the next."""
    rows: Int64
    """Address of the int32 rows of the frames that came."""
    lengths: Int64
    """Address of as many int32 lengths."""
    bodies: Int64
    """Address of as many int64 addresses (see receiving.receive), or 0."""
    # What to send.
    queue_rows: Int64
    """Address of int32 rows."""
    queue_lengths: Int64
    """Address of as many int32 lengths."""
    queued: Int64
    pushed: Int64
    """Frames handed over so far."""
    # How to wait; what time it is.
    until: Float64
    nap_s: Float64
    time: Float64
    stop: Int64
    """Reason to stop, a `Stop`."""
    # What kind of link it is.
    turn: Int64
    batch_bytes: Int64
    longest_nap_s: Float64
    patience: Int64
    """Address of a `Patience`; see switchsum_switch/process/patience.py."""
    own: Int64
    """Address of what only the link's own functions know."""


LINK: Final = dtype_of(LinkRecord)

NO_TURNS: Final = 1 << 40
"""Value of `turn`: all results are looked at before anything is sent."""


class LinkFunctions:
    """A link's record, and what it points to."""

    def __init__(self, *keep: object, patience: npt.NDArray[np.float64] | None = None) -> None:
        self.record: Table[LinkRecord] = table(np.zeros(1, LINK))
        """One `LINK`."""
        self.errors: list[BaseException] = []
        """Exceptions of functions that nobody has raised yet, the first one last."""
        self.keep: list[object] = [*keep]
        """Objects that must live as long as the record."""
        patience = new_patience() if patience is None else patience
        self.keep.append(patience)
        self.record["patience"] = address_of(patience)
        self.record["turn"] = NO_TURNS

    @property
    def address(self) -> int:
        """Return the address of the record."""
        return address_of(self.record.view(np.int64))


class DrivenLink(Protocol):
    """What a driver needs of a link; `switchsum_host.links.base.Transport` is all that a link must be able to do."""

    @property
    def tx_frames(self) -> npt.NDArray[np.uint8]:
        """Return the frame store."""
        ...

    @property
    def pushed(self) -> int:
        """Return how many frames have been handed over since the link was opened."""
        ...

    @property
    def reopened(self) -> int:
        """Return how often the link was opened again."""
        ...

    def functions(self) -> LinkFunctions:
        """Return what the loop calls."""
        ...

    def now(self) -> float:
        """Return the time in seconds."""
        ...

    def wait(self, timeout_s: float) -> bool:
        """Block until something may be received."""
        ...

    def close(self) -> None:
        """Close the link."""
        ...

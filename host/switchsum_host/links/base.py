"""The seam between the worker engine and the links: whole frames in fixed rows, handed over in batches.

A transport never blocks outside `wait`, and knows nothing about slots.  One thread drives it.  The engine's loop uses
its `functions` (engine/loop.py): compiled ones (native.py), or callbacks to a transport's Python methods
(callbacks.py).  Its methods are for all others: who joins a job, sends single packets, or tests the link.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from switchsum_switch.wires.headers import Address

from ..engine.link import LinkFunctions

LONGEST_WAIT_S: Final = 1e6

Frames = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Received:
    """What one call of `receive` found; valid until `release`."""

    frames: Frames
    """All rows of the receiving side, `[n, stride]` and read-only; a frame starts at column `lead` of its row."""
    rows: Indices
    """Rows of the frames that came, in order of arrival, `[count]`."""
    lengths: Indices
    """Bytes of each of these frames, from the Ethernet header on, `[count]`; at most `max_frame_bytes`."""


class Transport(Protocol):
    """A link to the switch."""

    @property
    def address(self) -> Address:
        """Return the worker's own addresses as the switch sees them: source of its frames, destination of results."""
        ...

    @property
    def lead(self) -> int:
        """Return the column where a frame starts in its row; lanes then start on a cache line."""
        ...

    @property
    def max_frame_bytes(self) -> int:
        """Return the longest frame that fits a row, from the Ethernet header on."""
        ...

    @property
    def tx_frames(self) -> Frames:
        """Return the frame store, `[rows, stride]`; the engine packs frames in place, from column `lead` on."""
        ...

    @property
    def pushed(self) -> int:
        """Return how many frames have been handed over since the link was opened."""
        ...

    @property
    def consumed(self) -> int:
        """Return how many of these, in order, nobody reads any more.

        The row of a frame that was handed over and is not consumed must not be written; it may be handed over again.
        """
        ...

    @property
    def reopened(self) -> int:
        """Return how often the link was opened again: `tx_frames` moved, rows and all, and `pushed` began anew."""
        ...

    def functions(self) -> LinkFunctions:
        """Return what the loop calls; anew each time that the link was opened again."""
        ...

    def now(self) -> float:
        """Return the time in seconds, of the clock that the loop reads."""
        ...

    def send(self, rows: Indices, lengths: Indices) -> int:
        """Hand over the frames in `rows` of `tx_frames`, in order, as many as fit; return how many."""
        ...

    def receive(self) -> Received:
        """Return the frames that have come; the next call comes after `release`."""
        ...

    def release(self) -> None:
        """Give the rows of the last `receive` back."""
        ...

    def wait(self, timeout_s: float) -> bool:
        """Block until something may be received, at most `timeout_s`; False when the time passed without.

        A link that ends with the switch is opened again in here, when the switch is back.  Raises SwitchLost when it
        is broken for good, as far as the link can tell.
        """
        ...

    def close(self) -> None:
        """Close the link; nothing but this may be called after it."""
        ...


class LinkListener(Protocol):
    """Who tells the other members, and hears from them."""

    @property
    def links_down(self) -> Collection[int]:
        """Return the links that nobody uses any more."""
        ...

    def tell_down(self, link: int, reason: str) -> None:
        """Have everybody do without a link; must not block."""
        ...


def milliseconds(timeout_s: float) -> float:
    """Return a time-out as `select.poll` takes it, where a negative one or infinity would mean something else."""
    return min(max(timeout_s, 0.0), LONGEST_WAIT_S) * 1e3


def int32_at(address: int, count: int) -> Indices:
    """Return a view of `count` numbers at an address."""
    return np.ctypeslib.as_array((ctypes.c_int32 * count).from_address(address))

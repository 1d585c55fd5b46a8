"""Packets that wait between ingress and egress, in memory that native code writes.

A packet whose port is *held* ends its ingress in a *place*: memory that has all that egress needs.  The places that are
free belong to a *pool*.  Native code takes them from there (`codegen/parking.py`), and whoever keeps the queues puts
them back after egress.  What waits where, for how long, and what is dropped is decided by the owner of the queues:
`traffic_manager.py` for a switch with rates, an event loop for a network in virtual time.

A pool is a record of 64-bit words (`PLACES` and following), and so is the start of a place (`PORT` and following).
Kernels may therefore keep pools of their own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from switchsum_switch.kernels.loading import address_of

Longs = npt.NDArray[np.int64]

PLACES, FREE, FRAME_BYTES, LOST, HELD = range(5)
"""Words of a pool: address of the array of the addresses of free places; how many there are; the longest frame that
fits into a place; packets for which there was no place; address of a byte for each port, not 0 if its packets wait.

Native code takes the last free place first: it counts `FREE` down from r to s, and the packets of the call lie, in
order, in the places number r - 1 to s.  A place is given back by writing its address to number `FREE`, and adding 1."""
POOL_WORDS: Final = 5

PORT, QUEUE, BYTES, ENQUEUED_US, ENQ_DEPTH, DEQ_DEPTH, NEXT, TAG = range(8)
"""First words of a place: egress port and queue of the packet, its bytes, and the time of the call that parked it.
Egress tells the program `ENQUEUED_US` and the two depths; who keeps the queues writes the depths, which are 0 at first.
`NEXT` and `TAG` are free for the same purpose: native code does not touch them."""
FRAME_LENGTH, CURSOR, CLONE_DEPTH, PASSED, ORIGIN = range(8, 13)
"""Further words, for native code alone: bytes of the frame that ingress had, and of them those that the parser took;
how many clones of clones the packet is behind; how often the frame has entered ingress again; the port on which it
arrived."""
PLACE_WORDS: Final = 16
"""Words before a packet's hot memory."""

_PLACES_AT_ONCE: Final = 64


@dataclass(slots=True, kw_only=True)
class Parked:
    """A packet that waits for egress, as Python sees it."""

    port: int
    queue: int
    bytes: int
    """Bytes of the packet, with the headers that are valid when ingress has ended."""
    frame_bytes: int
    """Bytes of the frame that it was made of."""
    enqueued_us: int
    enq_depth: int = 0
    """How many packets waited in its queue when it came; the program's `enq_qdepth`."""
    deq_depth: int = 0
    """How many packets remain in its queue when it goes to egress; the program's `deq_qdepth`."""
    packet: Any
    """Identity of the packet for the engine: the address of a place, or the interpreter's packet."""


class BufferPool:
    """Free places of one program, as many as are asked for."""

    def __init__(self, overhead_bytes: int, held: npt.NDArray[np.uint8]) -> None:
        """Begin without places; each has `overhead_bytes` beside its frame.  `held` says which ports' packets wait."""
        self._overhead = overhead_bytes
        self._memory: list[npt.NDArray[np.uint8]] = []
        self._free: Longs = np.zeros(0, np.int64)
        self._mine: set[int] = set()
        """Addresses of the places of the present size."""
        self._held = held
        self.words: Longs = np.zeros(POOL_WORDS, np.int64)
        """The record that native code works on."""
        self.words[HELD] = address_of(held)

    def reserve(self, packets: int, frame_bytes: int) -> None:
        """See to it that so many packets of frames of that length find a place."""
        words = self.words
        if frame_bytes > words[FRAME_BYTES]:
            # Places that are too small are not used again; packets that lie in them keep their memory.
            words[FRAME_BYTES], words[FREE] = max(frame_bytes, 2 * int(words[FRAME_BYTES])), 0
            self._mine.clear()
        missing = packets - self.free_places
        if missing > 0:
            self._add(max(missing, _PLACES_AT_ONCE))

    def taken(self, before: int) -> list[int]:
        """Return the addresses of the places that were taken since `before` places were free, in order."""
        places: list[int] = self._free[self.free_places : before][::-1].tolist()
        return places

    def give_back(self, places: Sequence[int]) -> None:
        """Free some places."""
        for place in places:
            if place in self._mine:
                self._free[self.words[FREE]] = place
                self.words[FREE] += 1

    @property
    def free_places(self) -> int:
        """How many places are free."""
        return int(self.words[FREE])

    def _add(self, count: int) -> None:
        stride = -(-(self._overhead + int(self.words[FRAME_BYTES])) // 64) * 64
        memory = np.zeros(count * stride + 64, np.uint8)
        self._memory.append(memory)
        start = address_of(memory) + -address_of(memory) % 64
        made = start + stride * np.arange(count)
        self._mine.update(made.tolist())
        free, before = np.zeros(len(self._mine), np.int64), self.free_places
        free[:before], free[before : before + count] = self._free[:before], made
        self._free = free
        self.words[PLACES], self.words[FREE] = address_of(free), before + count


def parked_at(address: int) -> Parked:
    """Return what the words of a place say."""
    words = _words_at(address)
    return Parked(
        port=words[PORT],
        queue=words[QUEUE],
        bytes=words[BYTES],
        frame_bytes=words[FRAME_LENGTH],
        enqueued_us=words[ENQUEUED_US],
        packet=address,
    )


def tell_depths(parked: Parked) -> None:
    """Write what is known of a packet's queue to its place."""
    words = _words_at(parked.packet)
    words[ENQ_DEPTH], words[DEQ_DEPTH] = parked.enq_depth, parked.deq_depth


def _words_at(address: int) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * PLACE_WORDS).from_address(address)

"""The frames of the exercises: as small as they can be.

The product's frame is in docs/wire.md.  This one has four lanes, no UDP header, no job and no cookie.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

LANES: Final = 4
"""Integers in one frame."""
WORKERS: Final = 3
"""Ranks 0, 1 and 2; rank r is behind port r + 1 of the switch."""
LARGEST: Final = 2**31 - 1
"""The greatest integer of a lane; the least is -LARGEST - 1 (exercise 5)."""
LOWEST_EXPONENT: Final = -200
"""Below what any float32 needs: the exponent of a rank that has only zeros (exercise 5)."""
UP: Final = 100
"""The port of a leaf that leads to the root (exercise 6)."""
BROADCAST: Final = 0xFF_FF_FF_FF_FF_FF
NO_BLOCK: Final = 0xFFFF
"""As `next_block`: no block follows."""
ETHERTYPE: Final = 0x88B5
"""IEEE 802 leaves this number to experiments."""
GROUP: Final = 1
"""The multicast group of a P4 switch that has all ports of ranks."""
_LAYOUT: Final = struct.Struct(f">HBBHI{LANES}i")


class Kind(IntEnum):
    """What a frame is."""

    ORDINARY = 0
    """Traffic that has nothing to do with us."""
    CONTRIBUTION = 1
    """A rank sends its lanes to the switch."""
    RESULT = 2
    """The switch sends the sum to a rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A frame; each exercise says which fields it uses."""

    kind: Kind = Kind.CONTRIBUTION
    lanes: tuple[int, ...] = ()
    """Integers, LANES of them; (): all are zero (exercise 4), or only exponents are compared (exercise 5)."""
    rank: int = 0
    """Of the sender."""
    slot: int = 0
    number: int = 1
    """Of the round, from 1 (exercise 3)."""
    block: int = 0
    """Which part of the array the lanes are (exercise 4)."""
    next_block: int = NO_BLOCK
    """The next block that is not zero at the sender (exercise 4)."""
    exponent: int = 0
    """The power of two of one unit of a lane (exercise 5)."""
    destination: int = BROADCAST
    """Ethernet address (exercise 1)."""
    source: int = 0
    """Ethernet address (exercise 1)."""


Answers = list[tuple[int, Frame]]
"""The frames that leave a switch, each with its port."""


def port_of(rank: int) -> int:
    """Return the port of the switch that a rank is behind."""
    return rank + 1


def add(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """Add lane by lane."""
    return tuple(left + right for left, right in zip(one, other, strict=True))


def encode(frame: Frame) -> bytes:
    """Return a frame as a P4 switch gets it: Ethernet, kind, rank, slot, number, lanes."""
    lanes = frame.lanes or (0,) * LANES
    addresses = frame.destination.to_bytes(6) + frame.source.to_bytes(6)
    return addresses + _LAYOUT.pack(ETHERTYPE, frame.kind, frame.rank, frame.slot, frame.number, *lanes)


def decode(data: bytes) -> Frame:
    """Read what `encode` made; raises ValueError where it is something else."""
    if len(data) != 12 + _LAYOUT.size:
        raise ValueError(f"a frame of {len(data)} bytes, not of {12 + _LAYOUT.size}")
    ethertype, kind, rank, slot, number, *lanes = _LAYOUT.unpack(data[12:])
    if ethertype != ETHERTYPE:
        raise ValueError(f"a frame with ethertype {ethertype:#06x}, not {ETHERTYPE:#06x}")
    addresses = {"destination": int.from_bytes(data[:6]), "source": int.from_bytes(data[6:12])}
    return Frame(kind=Kind(kind), rank=rank, slot=slot, number=number, lanes=tuple(lanes), **addresses)

"""Who has which block, and an order of blocks in which a frame holds blocks of the same ranks.

A rank whose blocks in a frame are all zero sends no lanes of that frame.  Of blocks smaller than a frame, side by side
in the order of the array, nearly every frame holds some block of every rank, so that each sends all of what some rank
has.  Sorted by the set of their owners, each sends little more than its own.

Sets are sorted as binary numbers in Gray's order, so that neighbours differ in few ranks.  Where there are more sets
than frames, not all frames can be of one set: those that are nearly so are taken first, and the rest is sorted again,
with those ranks first that have sent most for others so far.  That also keeps the largest upload near the mean one.

Everything is counted in integers, so that all ranks come to the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .bitmap import Indices, Words, words_for

MOST_RANKS: Final = 64
"""Sets of ranks are words."""
ROUND_TRIP_BITS: Final = 1 << 18
"""Bits that take about as long as the round trips of one more step: 32 kB."""
GAIN: Final = 2
"""Least gain: ranks save at least this many times the bits that say who has which block."""
MOST_ADDED: Final = 16
"""Limit on the way down, where the bits of owners come, too: at most one part in this many of the blocks' bits."""
LEAST_BITS: Final = 256
"""Least bits of a block. Ordering takes some 20 to 250 ns of processor time for each block."""
PASSES: Final = 12
"""Sorting the rest again makes less and less of a difference."""
ENOUGH: Final = 50
"""Divisor: no more passes if blocks that ranks send for others are at most one part in this many of what they send."""

Sets = npt.NDArray[Any]
"""Unsigned integers: bit r stands for rank r."""
_OCTET: Final = 8
_HALF_BITS: Final = 16
"""Bits of the keys that numpy sorts by their digits, in linear time."""


def pays(numbers: Sequence[int], union: int, block_bits: int) -> bool:
    """Whether it pays to order the union's blocks by owners; `numbers` says how many each rank has."""
    ranks = len(numbers)
    if ranks > MOST_RANKS or block_bits < max(LEAST_BITS, ranks * MOST_ADDED):
        return False
    return (union - max(numbers)) * block_bits >= GAIN * ranks * union + ROUND_TRIP_BITS


def table(rank: int, ranks: int, own: Words, union: Indices) -> Words:
    """Return a bitmap of the union's rows for each rank, `[ranks, words]`; only this rank's is filled in, of `own`."""
    has = np.unpackbits(own.view(np.uint8), bitorder="little")[union]
    octets = np.packbits(has, bitorder="little")
    bits = np.zeros((ranks, words_for(len(union))), np.uint64)
    bits[rank].view(np.uint8)[: len(octets)] = octets
    return bits


def sets_of(bits: Words, rows: int) -> Sets:
    """Return the set of ranks that have each of `rows` rows, of all ranks' bitmaps."""
    ranks = len(bits)
    width = next(size for size in (1, 2, 4, 8) if ranks <= _OCTET * size)
    octets = np.zeros((width, rows), np.uint8)
    for rank in range(ranks):
        has = np.unpackbits(bits[rank].view(np.uint8), count=rows, bitorder="little")
        octets[rank // _OCTET] |= has << np.uint8(rank % _OCTET)
    return np.ascontiguousarray(octets.T).view(f"<u{width}")[:, 0]


def order(sets: Sets, ranks: int, together: int) -> Indices:
    """Return an order of rows with these owners in which each `together` of them have few owners."""
    rest = np.arange(len(sets))
    total = int(np.bitwise_count(sets).sum(dtype=np.int64))
    sent_for_others = np.zeros(ranks, np.int64)
    first = np.argsort(-members(sets, ranks), kind="stable")
    chosen: list[Indices] = []
    for step in range(PASSES):
        rest = rest[_sorted(_keys(sets[rest], first))]
        groups = len(rest) // together
        inside = sets[rest[: groups * together]].reshape(groups, together)
        owners = np.bitwise_or.reduce(inside, axis=1)
        waste = np.bitwise_count(owners).astype(np.int64) * together
        waste -= np.bitwise_count(inside).sum(axis=1, dtype=np.int64)
        if step == PASSES - 1 or int(waste.sum()) * ENOUGH <= total:
            break
        last = max(0, groups // (PASSES - step) - 1)
        good = waste <= np.partition(waste, last)[last]
        sent_for_others += members(owners[good], ranks) * together - members(inside[good].reshape(-1), ranks)
        first = np.argsort(-sent_for_others, kind="stable")
        good = np.append(np.repeat(good, together), np.zeros(len(rest) - groups * together, np.bool_))
        chosen.append(rest[good])
        rest = rest[~good]
    return np.concatenate([*chosen, rest])


def members(sets: Sets, ranks: int) -> npt.NDArray[np.int64]:
    """Return in how many sets each rank is."""
    octets = sets.astype(sets.dtype.newbyteorder("<"), copy=False).view(np.uint8).reshape(len(sets), sets.itemsize)
    bits = np.unpackbits(np.arange(1 << _OCTET, dtype=np.uint8)[:, None], axis=1, bitorder="little").astype(np.int64)
    by_octet = [np.bincount(octets[:, i], minlength=1 << _OCTET) @ bits for i in range(sets.itemsize)]
    return np.concatenate(by_octet)[:ranks]


def _keys(sets: Sets, first: Indices) -> Sets:
    """Return where each set stands in Gray's order, the ranks in `first` from the highest bit on.

    The place is linear in the set's bits over the field of two elements: a table for each octet gives it.
    """
    ranks = len(first)
    values = [0] * (_OCTET * sets.itemsize)
    for place, rank in enumerate(first):
        # The bits from there downwards are toggled: what undoes Gray's code, bit by bit.
        values[rank] = (1 << (ranks - place)) - 1
    little = sets.astype(sets.dtype.newbyteorder("<"), copy=False)
    octets = little.view(np.uint8).reshape(len(sets), sets.itemsize)
    keys = np.zeros(len(sets), sets.dtype)
    for i in range(sets.itemsize):
        places = np.zeros(1 << _OCTET, sets.dtype)
        for bit in range(_OCTET):
            places[1 << bit : 2 << bit] = places[: 1 << bit] ^ sets.dtype.type(values[_OCTET * i + bit])
        keys ^= places[octets[:, i]]
    return keys


def _sorted(keys: Sets) -> Indices:
    """Return the stable order of keys; in two bytes at a time numpy sorts by digits, in linear time."""
    if keys.itemsize * _OCTET <= _HALF_BITS:
        return np.argsort(keys, kind="stable")
    indices: Indices = np.arange(len(keys))
    for shift in range(0, keys.itemsize * _OCTET, _HALF_BITS):
        digits = (keys >> keys.dtype.type(shift)).astype(np.uint16)
        indices = indices[np.argsort(digits[indices], kind="stable")]
    return indices

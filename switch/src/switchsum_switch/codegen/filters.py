"""Which tuples of a table may have a key's entry, told by a few bytes of the key.

In a table of many masks a key has entries in few tuples.  A filter looks at `CHOSEN` bytes of the key.  For each of
them, and for each value that this byte may have, it has a bit for each tuple, which is set if the byte fits some entry
of the tuple.  Only tuples whose bits are set for all of the bytes are searched (Lakshman, Stiliadis: "High-speed
Policy-based Packet Forwarding Using Efficient Multi-dimensional Range Matching", SIGCOMM 1998, has such a bit for each
rule and field).

A bit may be set without need: an entry that is removed leaves its bits.  After as many changes as there are entries the
filter is made anew, of the bytes that then leave the fewest tuples.

The memory begins with the offsets of the bytes.  Behind them are, for each byte, the words of bits of each value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from ..state.tuple_space import Tuple, TupleSpace

CHOSEN: Final = 4
"""Bytes that a filter looks at."""
VALUES: Final = 256
WORD_BITS: Final = 64
FEWEST_CHANGES: Final = 16
"""Changes that a small table has before its filter is made anew."""
MOST_ASKED: Final = 256
"""Tuples by which the bytes are chosen."""


class TupleFilter:
    """The filter of one table, in memory that native code reads."""

    def __init__(self, space: TupleSpace, key_bytes: int) -> None:
        """Begin without tuples; `key_bytes`: of the fields that are no ranges, at least 1."""
        self._space = space
        self._key_bytes = key_bytes
        self._changes_left = 0
        self._reserve(0)

    @property
    def address(self) -> int:
        """Where the filter is."""
        return int(self.memory.ctypes.data)

    @property
    def words(self) -> int:
        """How many words of bits each value of a byte has."""
        return self._bits.shape[2]

    def update(self, changed: dict[int, list[int]]) -> None:
        """Note new values of entries by the number of their tuple; a tuple without any has lost entries, or is gone."""
        self._changes_left -= sum(len(values) or 1 for values in changed.values())
        if self._changes_left < 0 or max(changed) >= WORD_BITS * self.words:
            self._make()
            return
        for number, values in changed.items():
            found = self._space.numbered(number)
            if found is None:
                self._bits[:, :, number // WORD_BITS] &= ~self._bit(number)
            elif values:
                self._add(found, values)

    def _make(self) -> None:
        """Choose the bytes anew, and set the bits of all tuples."""
        tuples = list(self._space.tuples())
        self._changes_left = max(FEWEST_CHANGES, len(self._space.ranks))
        self._reserve(1 + max((one.number for one in tuples), default=-1))
        self._chosen[:] = self._choose(tuples[:MOST_ASKED])
        for one in tuples:
            self._add(one, one.chains)

    def _reserve(self, tuples: int) -> None:
        words = 1 << (-(-tuples // WORD_BITS) - 1).bit_length() if tuples else 0
        self.memory = np.zeros(CHOSEN * (1 + VALUES * words), np.uint64)
        """The offsets, and the words of bits."""
        self._chosen = self.memory[:CHOSEN]
        self._bits = self.memory[CHOSEN:].reshape(CHOSEN, VALUES, words)

    def _choose(self, tuples: list[Tuple]) -> list[int]:
        """Return the bytes that leave the fewest tuples, the best one first."""
        every = np.arange(self._key_bytes)
        # For each tuple and byte the share of the byte's values that fit.
        shares = np.array([self._fits(one, one.chains, every).mean(axis=1) for one in tuples]).reshape(-1, len(every))
        left, chosen = np.ones(len(tuples)), list[int]()
        for _ in range(CHOSEN):
            chosen.append(int(np.argmin(left @ shares)))
            left = left * shares[:, chosen[-1]]
            shares[:, chosen[-1]] = 1  # each byte is chosen once
        return chosen

    def _add(self, one: Tuple, values: Iterable[int]) -> None:
        words = self._bits[:, :, one.number // WORD_BITS]
        words[self._fits(one, values, self._chosen.astype(np.int64))] |= self._bit(one.number)

    def _fits(self, one: Tuple, values: Iterable[int], places: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return for each place of a byte and each value whether the byte fits one of the entries."""
        rows, size = np.arange(len(places))[:, np.newaxis], self._key_bytes
        data = np.frombuffer(b"".join(value.to_bytes(size, "little") for value in values), np.uint8).reshape(-1, size)
        mask = np.frombuffer(one.mask.to_bytes(size, "little"), np.uint8)
        seen = np.zeros((len(places), VALUES), np.bool_)
        seen[rows, data[:, places].T] = True
        found: npt.NDArray[np.bool_] = seen[rows, np.arange(VALUES) & mask[places, np.newaxis]]
        return found

    @staticmethod
    def _bit(number: int) -> np.uint64:
        return np.uint64(1 << number % WORD_BITS)

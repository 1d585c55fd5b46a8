"""Sums of few rows by the ranks themselves: each gets the places and values of all others.

Few rows go along with the first step, before anybody knows how many the others have (`expected.py`).  How much of each
part has gone along follows from the number of its rows, which all ranks hear of in the first step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np

from . import places
from .bitmap import Indices, Octets
from .collectives import Array, Options
from .expected import Expected
from .operation_queue import Handle
from .ragged import Gathering
from .steps import LastStep
from .supports import Begins, Support
from .ways import has_few, part_octets

PAIRS: Final = "pairs"
"""Kind of the operation."""


class Pairs:
    """Rows of floats that each rank adds itself: all ranks have the places and values of all.

    Each sum is that of the ranks' values in their order, in float64, rounded once.  So it depends on nothing beside the
    values of its element, and an infinity or a NaN spoils no other one.
    """

    def __init__(self, comm: Begins, support: Support, rows: Array, how: Options, called: str) -> None:
        """Take this rank's rows `[k, width]`."""
        self._comm, self._support, self._rows = comm, support, rows
        self._width, self._dtype = rows.shape[1], rows.dtype
        self._divisor = float(comm.world_size if how.operator == "average" else 1)
        self._words = f"{called}, pairs"
        self._expected = Expected()
        self._early: Gathering | None = None
        self._handle: Handle | None = None

    def begin_early(self, expected: Expected, *, is_empty: bool) -> None:
        """Begin to gather what goes along with the first step.

        All ranks do so where something is expected, also those whose arguments are refused.
        """
        self._expected = expected
        if expected.octets:
            own = np.zeros(0, np.uint8) if is_empty else self._own[: self._sent(self._support.count)]
            self._early = self._gathering(own, [expected.octets] * self._comm.world_size)
            self._handle = self._comm.start(self._early.collective)

    def end_early(self) -> None:
        """Wait for what has gone along."""
        if self._handle is not None:
            self._handle.wait()

    def sent(self, counts: Sequence[int]) -> Sequence[int]:
        """Return how many bytes of each rank's part have gone along."""
        return [self._sent(count) for count in counts]

    def begin(self, counts: Sequence[int], background: bool, finish: Callable[[Indices, Array], Any]) -> LastStep:
        """Begin to gather what is left of the parts; `finish` gets the union's rows and their sums, for the result."""
        sent = self.sent(counts)
        left = [self._octets(count) - one for count, one in zip(counts, sent, strict=True)]
        rest, handle = None, self._handle
        if handle is None or any(left):
            rest = self._gathering(self._own[sent[self._comm.rank] :], left)
            handle = self._comm.start(rest.collective, stays=not background, background=background)
        self.end_early()  # nobody else drives what goes along

        def result() -> Any:
            parts = [self._whole(rank, sent[rank], rest, left[rank]) for rank in range(len(counts))]
            return finish(*self._added(parts, counts))

        return LastStep(handle=handle, finish=result)

    def _whole(self, rank: int, sent: int, rest: Gathering | None, left: int) -> Octets:
        """Return a rank's part, of which so many bytes have gone along, and others were left."""
        pieces = [one.part(rank)[:length] for one, length in ((self._early, sent), (rest, left)) if one and length]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces or [np.zeros(0, np.uint8)])

    def _sent(self, count: int) -> int:
        """Return how many bytes of a part of so many rows go along with the first step."""
        return self._expected.sent(self._octets(count)) if has_few(count, self._support.rows) else 0

    def _octets(self, count: int) -> int:
        return part_octets(count, self._support.rows, 8 * self._dtype.itemsize * self._width)

    @cached_property
    def _own(self) -> Octets:
        """Coded places of this rank's rows, and their values."""
        own = places.code(self._support.indices, self._support.rows).view(np.uint8)
        return np.concatenate([own, np.ascontiguousarray(self._rows).reshape(-1).view(np.uint8)])

    def _gathering(self, own: Octets, sizes: Sequence[int]) -> Gathering:
        return Gathering(PAIRS, own, sizes, self._comm.ranks, label="", words=self._words)

    def _added(self, octets: Sequence[Octets], counts: Sequence[int]) -> tuple[Indices, Array]:
        rows, parts = self._support.rows, list[places.Part]()
        for rank, (part, count) in enumerate(zip(octets, counts, strict=True)):
            end = places.octets_for(count, rows)
            values = np.ascontiguousarray(part[end:].view(self._dtype), np.float32)
            known = self._support.indices if rank == self._comm.rank else None
            parts.append(places.Part(part[:end].view(np.uint64), values, count, known))
        members, sums = places.add(parts, rows, self._width, self._divisor)
        self._comm.supports += np.array([self._support.count, len(members), rows])
        return members, places.narrowed(sums, self._dtype)

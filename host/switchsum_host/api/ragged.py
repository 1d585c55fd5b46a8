"""Gathering of parts that differ in length from rank to rank.

Ranks tell each other the lengths first, unless all of them know these.  Then each part has places of its own in one
array of bytes, and the other ranks contribute zeros there, which do not travel.

Whole frames of a part lie in a region of its rank, so that the switch need not send them back to this rank.  The ends
of all parts, which fill no frame, lie side by side behind the regions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import LANE_BYTES

from ..engine.operation import Operation, described
from . import collectives
from .collectives import Array, Collective, Options, Ranks, check_array, is_integer
from .operation_queue import Handle
from .steps import LastStep

Octets = npt.NDArray[np.uint8]

_ALIGNED: Final = 8
"""Parts have places for multiples of so many bytes, and others may view them as words."""
_MOST_EMPTY: Final = 4
"""All places have at most this many times the bytes of all parts, because each rank looks for zeros in all of them."""
_MOST_KEPT: Final = 256
"""Layouts that are kept."""
_EMPTY_SHARES: Final = np.arange(9)[:, None]
"""Eighths of a frame that the last frame of a region may have empty."""


class Begins(Protocol):
    """What gathering needs of a communicator."""

    @property
    def ranks(self) -> Ranks:
        """Who takes part."""
        ...

    def start(self, collective: Collective, *, stays: bool = False, background: bool = False) -> Handle:
        """Begin a collective, and drive it to its end if wanted."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where each rank's part lies."""

    region: int
    """Bytes of each rank's region; 0: there is none."""
    inside: Sequence[int]
    """How many bytes of each part lie in the region of its rank, from the region's start on."""
    ends: Sequence[int]
    """Where the rest of each part begins."""
    size: int
    """Bytes of all."""
    frames_down: int
    """Frames with bytes that come down to the rank that gets most."""


def layout(octets: Sequence[int], frame_bytes: int) -> Layout:
    """Return where parts of so many bytes lie, in frames of `frame_bytes`.

    An end that nearly fills a frame may have the last one of its rank's region. Where this begins to pay is tried.
    """
    return _layout(tuple(octets), frame_bytes)


@lru_cache(maxsize=_MOST_KEPT)
def _layout(octets: tuple[int, ...], frame_bytes: int) -> Layout:
    """Find the layout: a training asks for the same ones in each step, several times a call."""
    lengths = -(-np.array(octets, np.int64) // _ALIGNED) * _ALIGNED
    frames = (lengths + _EMPTY_SHARES * (frame_bytes - 1) // _EMPTY_SHARES[-1]) // frame_bytes
    regions = frames.max(axis=1) * frame_bytes
    frames[len(octets) * regions > _MOST_EMPTY * lengths.sum()] = 0
    inside = np.minimum(frames * frame_bytes, lengths)
    down = frames.sum(axis=1) - frames.min(axis=1) + -(-(lengths - inside).sum(axis=1) // frame_bytes)
    best = int(down.argmin())
    region = int(frames[best].max()) * frame_bytes
    ends = len(octets) * region + np.cumsum(lengths - inside[best])
    return Layout(
        region=region,
        inside=tuple(inside[best].tolist()),
        ends=tuple((ends - lengths + inside[best]).tolist()),
        size=int(ends[-1]),
        frames_down=int(down[best]),
    )


class Gathering:
    """Parts of known lengths that are gathered, as one operation."""

    def __init__(self, kind: str, own: Octets, octets: Sequence[int], ranks: Ranks, *, label: str, words: str) -> None:
        """Take this rank's part, and how many bytes each rank has; what a part lacks of these is zeros.

        All ranks must agree in `kind`, `octets` and `label`; `words` name the operation in errors.
        """
        self._octets = octets
        self._layout = layout(octets, ranks.lanes_per_frame * LANE_BYTES)
        self._all = np.zeros(self._layout.size, np.uint8)
        for place, source in self._places(ranks.rank):
            piece = own[source]
            self._all[place.start : place.start + len(piece)] = piece
        values = self._all.view(np.int8)
        region = self._layout.region
        operation = ranks.operation(
            (kind, label, words, values.size, region),
            lambda: Operation.of(values, kind, label=label, words=words, part=region, gathers=True),
        )
        self.collective = Collective(operation, values)
        """What is to be begun."""

    def part(self, rank: int) -> Octets:
        """Return the part of a rank, once the operation has ended: a view if it lies in one piece."""
        pieces = [self._all[place] for place, _ in self._places(rank) if place.stop > place.start]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces or [self._all[:0]])

    def _places(self, rank: int) -> Iterator[tuple[slice, slice]]:
        """Yield where pieces of a rank's part lie, and which bytes of the part these are."""
        first, inside, end = rank * self._layout.region, self._layout.inside[rank], self._layout.ends[rank]
        inside, length = min(inside, self._octets[rank]), self._octets[rank]
        yield slice(first, first + inside), slice(0, inside)
        yield slice(end, end + length - inside), slice(inside, length)


def check(array: Array, sizes: Sequence[int] | None, ranks: Ranks) -> None:
    """Refuse what cannot be gathered; raises UsageError or UnsupportedDtype."""
    check_array("allgatherv", array)
    if array.ndim == 0:
        raise UsageError("allgatherv joins arrays along their first axis, and this array has none: use allgather")
    if sizes is None:
        return
    if len(sizes) != ranks.world_size or not all(is_integer(size) and size >= 0 for size in sizes):
        raise UsageError(f"sizes are {ranks.world_size} lengths, one of each rank, not {list(sizes)!r}")
    if sizes[ranks.rank] != len(array):
        raise UsageError(f"sizes say that rank {ranks.rank} has {sizes[ranks.rank]} rows, and it has {len(array)}")


def allgatherv(comm: Begins, array: Array, sizes: Sequence[int] | None, label: str, background: bool) -> LastStep:
    """See `Communicator.allgatherv`; the arguments have been checked."""
    ranks, plain = comm.ranks, array.view(np.ndarray)
    row, dtype = plain.shape[1:], plain.dtype
    called = f"allgatherv of {described(dtype)}[*{''.join(f', {length}' for length in row)}]"
    if sizes is None:
        lengths = np.zeros(ranks.world_size, np.uint64)
        lengths[ranks.rank] = len(plain)
        how = Options(operator="or", label=label)
        words = f"{label}: {called}" if label else called
        comm.start(collectives.allreduce(lengths, how, ranks, kind=called, words=words), stays=True).wait()
        sizes = lengths.tolist()
    row_bytes = dtype.itemsize * int(np.prod(row, dtype=np.int64))
    own = np.ascontiguousarray(plain).reshape(-1).view(np.uint8)
    kind = f"{called} in lengths {', '.join(map(str, sizes))}"
    gathering = Gathering(kind, own, [int(size) * row_bytes for size in sizes], ranks, label=label, words="")
    handle = comm.start(gathering.collective, stays=not background, background=background)

    def finish() -> list[Any]:
        return [gathering.part(rank).copy().view(dtype).reshape(size, *row) for rank, size in enumerate(sizes)]

    return LastStep(handle=handle, finish=finish)

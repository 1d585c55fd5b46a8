"""Allreduces among hosts alone, to compare with: dense and sparse ones, written from their papers.

- ring, and recursive doubling, of whole arrays;
- SparCML (SC 2019): recursive doubling of sparse streams that turn dense when that takes fewer bytes (SSAR), and split
  and allgather, where each part turns dense likewise (SSAR and DSAR by split), and may then be quantised (QSGD);
- TopkA: every rank gets all ranks' pairs, and adds;
- gTopk (ICDCS 2019): a tree that keeps as many of the largest sums at each step as a rank has values;
- Ok-Topk (PPoPP 2022): split and reduce over a partition that is balanced by what the ranks have, a threshold for the
  largest of the sums that is found once and reused, balanced allgather of those.

A sparse stream is its indices (uint32, in order) and its values (float32), as bytes side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from switchsum_switch.kernels.decorators import kernel

Array = npt.NDArray[np.float32]
Octets = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.uint32]

PAIR_BYTES: Final = 8
VALUE_BYTES: Final = 4
QUANTISED_BITS: Final = 4
"""Bits of a value of a quantised part: a sign and seven levels."""
BUCKET: Final = 1024
"""Values that share a scale, their largest one, when a part is quantised."""
IMBALANCE: Final = 4
"""Ok-Topk evens out what its ranks have selected where one has more than so many times the mean."""


class Peers(Protocol):
    """Messages between ranks."""

    rank: int
    ranks: int

    def swap(self, outgoing: Mapping[int, Octets], sources: Sequence[int]) -> dict[int, Octets]:
        """Send a message to each of some ranks and receive one from each of some, all at once."""
        ...


@dataclass(frozen=True, slots=True)
class Stream:
    """A sparse array."""

    indices: Indices
    """In rising order."""
    values: Array

    @classmethod
    def parse(cls, octets: Octets) -> Stream:
        """Read one off the wire."""
        size = len(octets) // PAIR_BYTES
        return cls(octets[: 4 * size].view(np.uint32), octets[4 * size :].view(np.float32))

    def pack(self) -> Octets:
        """Return the bytes for the wire."""
        return np.concatenate([self.indices.view(np.uint8), self.values.view(np.uint8)])

    def part(self, first: int, last: int) -> Stream:
        """Return what lies at indices from `first` up to and without `last`."""
        low, high = np.searchsorted(self.indices, [first, last])
        return Stream(self.indices[low:high], self.values[low:high])

    def to_dense(self, first: int, last: int) -> Array:
        """Return the array from `first` up to and without `last`; all indices lie there."""
        dense = np.zeros(last - first, np.float32)
        dense[self.indices - np.uint32(first)] = self.values
        return dense

    def __add__(self, other: Stream) -> Stream:
        indices = np.empty(len(self.indices) + len(other.indices), np.uint32)
        values = np.empty(len(indices), np.float32)
        size = _merge(self.indices, self.values, other.indices, other.values, indices, values)
        return Stream(indices[:size], values[:size])


@kernel
def _merge(a: Indices, x: Array, b: Indices, y: Array, indices: Indices, values: Array) -> int:
    """Add two streams; return the size of the sum."""
    i = j = count = 0
    while i < a.size or j < b.size:
        if j == b.size or (i < a.size and a[i] < b[j]):
            indices[count], values[count] = a[i], x[i]
            i += 1
        elif i == a.size or b[j] < a[i]:
            indices[count], values[count] = b[j], y[j]
            j += 1
        else:
            indices[count], values[count] = a[i], x[i] + y[j]
            i += 1
            j += 1
        count += 1
    return count


def ring(peers: Peers, array: Array) -> None:
    """Add in place: reduce-scatter round a ring, then allgather round it."""
    ranks, rank = peers.ranks, peers.rank
    parts = np.array_split(array, ranks)
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    for step in range(2 * (ranks - 1)):
        came = peers.swap({after: parts[(rank - step) % ranks].view(np.uint8)}, [before])[before].view(np.float32)
        target = parts[(rank - step - 1) % ranks]
        if step < ranks - 1:
            target += came
        else:
            target[:] = came


def recursive_doubling(peers: Peers, array: Array) -> None:
    """Add in place, with a power of two of ranks: with the neighbour, then with the neighbouring pair, and so on."""
    for partner in _partners(peers):
        array += peers.swap({partner: array.view(np.uint8)}, [partner])[partner].view(np.float32)


def _partners(peers: Peers) -> list[int]:
    assert peers.ranks & (peers.ranks - 1) == 0, "pairs of ranks take a power of two of ranks"
    return [peers.rank ^ (1 << bit) for bit in range(peers.ranks.bit_length() - 1)]


def sparcml_doubling(peers: Peers, own: Stream, size: int) -> Stream | Array:
    """SparCML's SSAR by recursive doubling; a sum becomes dense where it takes no more bytes so.

    Of ranks beyond a power of two, each gives its stream to a neighbour first, and gets the sum last, as its code does.
    """
    total, rank = _cheaper(own, size), peers.rank
    power = 1 << (peers.ranks.bit_length() - 1)
    folded = 2 * (peers.ranks - power)
    """The first ranks, of which every second one goes through the steps for two."""

    def swap(to: int | None, source: int | None) -> Stream | Array | None:
        packed = total.pack() if isinstance(total, Stream) else total.view(np.uint8)
        came = peers.swap({} if to is None else {to: packed}, [] if source is None else [source])
        if source is None:
            return None
        octets = came[source]
        return octets.view(np.float32) if len(octets) == VALUE_BYTES * size else Stream.parse(octets)

    gives, takes = rank < folded and rank % 2 == 0, rank < folded and rank % 2 == 1
    if folded and (theirs := swap(rank + 1 if gives else None, rank - 1 if takes else None)) is not None:
        total = _added(total, theirs, size)
    place = rank // 2 if rank < folded else rank - folded // 2
    for bit in range(power.bit_length() - 1):
        other = place ^ (1 << bit)
        partner = None if gives else 2 * other + 1 if other < folded // 2 else other + folded // 2
        if (theirs := swap(partner, partner)) is not None:
            total = _added(total, theirs, size)
    if folded and (theirs := swap(rank - 1 if takes else None, rank + 1 if gives else None)) is not None:
        total = theirs
    return total


def _cheaper(stream: Stream, size: int) -> Stream | Array:
    return stream.to_dense(0, size) if len(stream.indices) * PAIR_BYTES >= size * VALUE_BYTES else stream


def _added(one: Stream | Array, other: Stream | Array, size: int) -> Stream | Array:
    if isinstance(one, Stream) and isinstance(other, Stream):
        return _cheaper(one + other, size)
    dense, rest = (other, one) if isinstance(one, Stream) else (one, other)
    assert not isinstance(dense, Stream)
    if isinstance(rest, Stream):
        dense = dense.copy()
        dense[rest.indices] += rest.values
        return dense
    return dense + rest


def sparcml_split(peers: Peers, own: Stream, size: int, *, is_quantised: bool = False) -> list[Stream | Array]:
    """SparCML's split and allgather: each rank adds up one part; returns the parts, each as it takes fewer bytes.

    If it is quantised, dense parts travel by QSGD, with `QUANTISED_BITS` for a value.
    """
    bounds = [size * part // peers.ranks for part in range(peers.ranks + 1)]
    mine = _reduce_parts(peers, own, bounds)
    first, last = bounds[peers.rank], bounds[peers.rank + 1]
    is_dense = last > first and len(mine.indices) * PAIR_BYTES >= (last - first) * VALUE_BYTES
    if is_dense:
        dense = mine.to_dense(first, last)
        packed = quantised(dense, np.random.default_rng(peers.rank)) if is_quantised else dense.view(np.uint8)
    else:
        packed = mine.pack()
    # An octet behind a message says which it is: in front of it, it would push the arrays out of alignment.
    came = _to_all(peers, np.append(packed, np.uint8(is_dense)))
    found: list[Stream | Array] = []
    for rank, message in enumerate(came):
        part, count = message[:-1], bounds[rank + 1] - bounds[rank]
        if not message[-1]:
            found.append(Stream.parse(part))
        else:
            found.append(dequantised(part, count) if is_quantised else part.view(np.float32))
    return found


def quantised(values: Array, random: np.random.Generator) -> Octets:
    """Return values by QSGD: scales, and a sign and a level of each value, rounded at random without bias."""
    padded = np.zeros(-(-len(values) // BUCKET) * BUCKET, np.float32)
    padded[: len(values)] = values
    buckets = padded.reshape(-1, BUCKET)
    scales = np.abs(buckets).max(axis=1)
    most = 2 ** (QUANTISED_BITS - 1) - 1
    levels = np.abs(buckets) / np.where(scales, scales, 1)[:, None] * most
    rounded = np.floor(levels + random.random(levels.shape, np.float32)).astype(np.uint8)
    codes = (np.minimum(rounded, most) | (buckets < 0) * np.uint8(most + 1)).reshape(-1)
    return np.concatenate([scales.astype(np.float32).view(np.uint8), codes[::2] << QUANTISED_BITS | codes[1::2]])


def dequantised(octets: Octets, count: int) -> Array:
    """Return the values of `quantised`."""
    scales = octets[: VALUE_BYTES * -(-count // BUCKET)].view(np.float32)
    pairs = octets[scales.nbytes :]
    codes = np.stack([pairs >> QUANTISED_BITS, pairs & (1 << QUANTISED_BITS) - 1], axis=1).reshape(-1, BUCKET)
    most = 2 ** (QUANTISED_BITS - 1) - 1
    signs = np.where(codes > most, np.float32(-1), np.float32(1))
    values: Array = (signs * (codes & most) * scales[:, None] / np.float32(most)).reshape(-1)[:count]
    return values.astype(np.float32)


def _reduce_parts(peers: Peers, own: Stream, bounds: Sequence[int]) -> Stream:
    """Send each rank its part of the own stream, and return the sum of what came for the own part."""
    others = _others(peers)
    came = peers.swap({rank: own.part(bounds[rank], bounds[rank + 1]).pack() for rank in others}, others)
    total = own.part(bounds[peers.rank], bounds[peers.rank + 1])
    streams = [total, *(Stream.parse(came[rank]) for rank in others)]
    while len(streams) > 1:  # pairs, so that each value is merged a logarithmic number of times
        streams = [a + b for a, b in zip(streams[::2], streams[1::2], strict=False)] + streams[len(streams) & ~1 :]
    return streams[0]


def _others(peers: Peers) -> list[int]:
    """Return all other ranks, each rank's beginning with the next one, so that nobody is sent to by all at once."""
    return [(peers.rank + step) % peers.ranks for step in range(1, peers.ranks)]


def _to_all(peers: Peers, packed: Octets) -> list[Octets]:
    """Return every rank's message."""
    others = _others(peers)
    came = peers.swap(dict.fromkeys(others, packed), others)
    came[peers.rank] = packed
    return [came[rank] for rank in range(peers.ranks)]


def topk_allgather(peers: Peers, own: Stream) -> Stream:
    """TopkA: send the own values to all ranks, and add what came."""
    streams = [Stream.parse(came) for came in _to_all(peers, own.pack())]
    total = streams[0]
    for stream in streams[1:]:
        total = total + stream
    return total


def gtopk(peers: Peers, own: Stream, k: int) -> Stream:
    """gTopk: add pairs of ranks up a tree, of which the `k` largest sums go on, and send the root's down again.

    A value that is not among the largest of a pair of ranks is lost, even if the sum of all would be large.
    """
    _partners(peers)
    total, rank = own, peers.rank
    distances = [1 << bit for bit in range(peers.ranks.bit_length() - 1)]
    for distance in distances:
        is_root, sends = rank % (2 * distance) == 0, rank % (2 * distance) == distance
        came = peers.swap({rank - distance: total.pack()} if sends else {}, [rank + distance] if is_root else [])
        if is_root:
            total = _largest(total + Stream.parse(came[rank + distance]), k)
    for distance in reversed(distances):
        is_root, gets = rank % (2 * distance) == 0, rank % (2 * distance) == distance
        came = peers.swap({rank + distance: total.pack()} if is_root else {}, [rank - distance] if gets else [])
        if gets:
            total = Stream.parse(came[rank - distance])
    return total


def _largest(stream: Stream, k: int) -> Stream:
    if len(stream.values) <= k:
        return stream
    kept = np.sort(np.argpartition(np.abs(stream.values), -k)[-k:])
    return Stream(stream.indices[kept], stream.values[kept])


class OkTopk:
    """Ok-Topk: the sums of the ranks' largest values, of which the `k` largest are kept.

    Bounds and threshold are found in the first call, and reused (section 3.1.2 and algorithm 1 there).
    """

    def __init__(self, peers: Peers, size: int, k: int) -> None:
        self._peers = peers
        self._size = size
        self._k = k
        self._bounds: list[int] | None = None
        self._threshold: float | None = None

    def allreduce(self, own: Stream) -> Stream:
        """Return the largest of the sums, and their indices."""
        if self._bounds is None:
            self._bounds = self._consensus(own)
        mine = _reduce_parts(self._peers, own, self._bounds)
        magnitudes = np.abs(mine.values)
        if self._threshold is None:
            everything = np.concatenate([part.view(np.float32) for part in _to_all(self._peers, _octets(magnitudes))])
            self._threshold = float(np.sort(everything)[-min(self._k, len(everything))])
        chosen = magnitudes >= self._threshold
        kept = self._balanced(Stream(mine.indices[chosen], mine.values[chosen]))
        parts = [Stream.parse(part) for part in _to_all(self._peers, kept.pack())]
        return Stream(np.concatenate([part.indices for part in parts]), np.concatenate([part.values for part in parts]))

    def _consensus(self, own: Stream) -> list[int]:
        """Return the average of the bounds that would cut each rank's own stream into equal parts."""
        ranks = self._peers.ranks
        cuts = own.indices[[len(own.indices) * part // ranks for part in range(1, ranks)]].astype(np.float64)
        average = np.mean([part.view(np.float64) for part in _to_all(self._peers, _octets(cuts))], axis=0)
        return [0, *(int(bound) for bound in average), self._size]

    def _balanced(self, mine: Stream) -> Stream:
        """Return an equal part of what all ranks have, in the order of ranks, where theirs differ much."""
        peers, ranks = self._peers, self._peers.ranks
        counts = np.array(
            [int(part.view(np.int64)[0]) for part in _to_all(peers, _octets(np.array([len(mine.values)])))]
        )
        if counts.max() * ranks <= IMBALANCE * counts.sum():
            return mine
        starts = np.concatenate([[0], np.cumsum(counts)])
        bounds = [int(starts[-1]) * part // ranks for part in range(ranks + 1)]
        first = int(starts[peers.rank])
        outgoing = {}
        for rank in _others(peers):
            low, high = np.clip([bounds[rank] - first, bounds[rank + 1] - first], 0, len(mine.values))
            outgoing[rank] = Stream(mine.indices[low:high], mine.values[low:high]).pack()
        came = peers.swap(outgoing, _others(peers))
        low, high = np.clip([bounds[peers.rank] - first, bounds[peers.rank + 1] - first], 0, len(mine.values))
        parts = {rank: Stream.parse(part) for rank, part in came.items()}
        parts[peers.rank] = Stream(mine.indices[low:high], mine.values[low:high])
        return Stream(
            np.concatenate([parts[rank].indices for rank in range(ranks)]),
            np.concatenate([parts[rank].values for rank in range(ranks)]),
        )


def _octets(array: npt.NDArray[Any]) -> Octets:
    return np.ascontiguousarray(array).view(np.uint8)

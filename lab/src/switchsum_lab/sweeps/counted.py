"""Sparse sums of hosts alone as protocols of a sweep: their messages are counted, and their time is a formula.

The algorithms run as they are (`sparse_hosts.py`), each rank in a thread.  An exchange takes as long as the rank with
most bytes needs on its link, with all headers and gaps of Ethernet, and the delay of two cables.  Nothing is lost, and
no congestion is modelled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import numpy as np

from switchsum_lab.simulation import sums
from switchsum_lab.simulation.conditions import ETHERNET_OVERHEAD
from switchsum_lab.simulation.scenario import Scenario
from switchsum_lab.sweeps import supports
from switchsum_lab.sweeps.axes import Cell, Impossible
from switchsum_lab.sweeps.outcome import Outcome
from switchsum_lab.sweeps.peers import TCP_HEADERS_BYTES
from switchsum_lab.sweeps.sparse_hosts import (
    Octets,
    OkTopk,
    Peers,
    Stream,
    gtopk,
    sparcml_doubling,
    sparcml_split,
    topk_allgather,
)
from switchsum_protocol.errors import LocalError

_WAIT_S: Final = 600.0
Total = Stream | supports.Array | list[Stream | supports.Array]
Way = Callable[[Peers, Stream, int], Callable[[], Total]]
"""Returns what a rank calls once to begin, and then for the figures."""


def _ok_topk(peers: Peers, own: Stream, size: int) -> Callable[[], Total]:
    ok = OkTopk(peers, size, max(1, len(own.values)))
    return lambda: ok.allreduce(own)


WAYS: Final[dict[str, Way]] = {
    "topka": lambda peers, own, _: lambda: topk_allgather(peers, own),
    "gtopk": lambda peers, own, _: lambda: gtopk(peers, own, len(own.values)),
    "oktopk": _ok_topk,
    "sparcml-doubling": lambda peers, own, size: lambda: sparcml_doubling(peers, own, size),
    "sparcml-split": lambda peers, own, size: lambda: sparcml_split(peers, own, size),
    "sparcml-split-q4": lambda peers, own, size: lambda: sparcml_split(peers, own, size, is_quantised=True),
}
"""By the name that a sweep file uses.  What a way finds out once and keeps is not counted."""
_IN_PAIRS: Final = ("gtopk",)
_KEEPS_ALL: Final = ("topka", "sparcml-doubling", "sparcml-split")
"""The ways whose sums are all sums."""
_OF_LINKS: Final = (
    *("loss", "topology", "jobs", "slots", "queue", "frame_cost", "fusion", "lanes", "uplink_mbit"),
    *("host_queue", "bucket", "late", "late_by_us", "twice", "mark", "overhead", "fail", "late_ranks", "background"),
)


def check(cell: Cell) -> None:
    """Raise Impossible if a cell cannot be counted."""
    if cell.collective != "topk":
        raise Impossible("collective", f"{cell.protocol} adds the values that are not zero: collective must be topk")
    for name in _OF_LINKS:
        if getattr(cell, name) != getattr(Cell(), name):
            raise Impossible(name, f"{cell.protocol} is counted, without frames on links: leave it out")
    if cell.protocol in _IN_PAIRS and cell.workers & (cell.workers - 1):
        raise Impossible("workers", f"{cell.protocol} needs a power of two of workers, not {cell.workers}")


def run(cell: Cell, wanted: Scenario, arrays: Sequence[supports.Array], total: supports.Array) -> Outcome:
    """Count a cell; raises LocalError if a sum is wrong."""
    meeting = _Meeting(wanted.workers, wanted.rates_bps[0], wanted.conditions.delay_s, wanted.mtu)
    size = len(total)
    if not all(array.any() for array in arrays):
        raise LocalError(f"a worker has no value that is not zero, and {cell.protocol} is counted with some on each")

    def rank(number: int) -> Total:
        indices = np.flatnonzero(arrays[number]).astype(np.uint32)
        try:
            call = WAYS[cell.protocol](_Rank(meeting, number), Stream(indices, arrays[number][indices]), size)
            call()
            meeting.begin()
            return call()
        except BaseException:
            meeting.abort()
            raise

    with ThreadPoolExecutor(wanted.workers) as threads:
        ranks = [threads.submit(rank, number) for number in range(wanted.workers)]
    found = _totals_of(ranks, cell.protocol)
    if cell.protocol in _KEEPS_ALL and not all(np.allclose(_whole(one, size), total, atol=1e-3) for one in found):
        raise LocalError("a sum was wrong")
    return Outcome.of(
        meeting.seconds,
        cell.bytes,
        sent_mb=float(meeting.sent.mean()) / 1e6,
        sum_error=max(sums.error_of(_whole(one, size), total) for one in found),
        right=True if cell.protocol in _KEEPS_ALL else None,
    )


def _totals_of(ranks: Sequence[Future[Total]], protocol: str) -> list[Total]:
    """Return what the ranks came to; raises the cause if some have failed, and LocalError if all have only waited."""
    errors = [error for one in ranks if (error := one.exception()) is not None]
    for error in errors:
        if not isinstance(error, threading.BrokenBarrierError):  # which ranks raise that waited for the failed one
            raise error
    if errors:
        raise LocalError(f"{protocol} stands still: ranks have waited {_WAIT_S:g} s for one another")
    return [one.result() for one in ranks]


def _whole(total: Total, size: int) -> supports.Array:
    """Return a result as an array."""
    if isinstance(total, Stream):
        return total.to_dense(0, size)
    if isinstance(total, np.ndarray):
        return total
    bounds = [size * part // len(total) for part in range(len(total) + 1)]
    return np.concatenate(
        [
            part.to_dense(first, last) if isinstance(part, Stream) else part
            for part, first, last in zip(total, bounds, bounds[1:], strict=False)
        ]
    )


class _Meeting:
    """Where all ranks exchange messages, one exchange after the other."""

    def __init__(self, ranks: int, rate_bps: float, delay_s: float, mtu: int) -> None:
        self.ranks = ranks
        self.seconds = 0.0
        self.sent = np.zeros(ranks)
        """Bytes that each rank has sent, headers included."""
        self._rate_bps, self._delay_s, self._payload = rate_bps, delay_s, mtu + 14 - TCP_HEADERS_BYTES
        self._outgoing: list[Mapping[int, Octets]] = [{}] * ranks
        self._full = threading.Barrier(ranks, self._count, timeout=_WAIT_S)
        self._empty = threading.Barrier(ranks, timeout=_WAIT_S)
        self._start = threading.Barrier(ranks, self._forget, timeout=_WAIT_S)

    def begin(self) -> None:
        """Count from here on."""
        self._start.wait()

    def exchange(self, rank: int, outgoing: Mapping[int, Octets], sources: Sequence[int]) -> dict[int, Octets]:
        """Give messages, and return copies of those that are for this rank."""
        self._outgoing[rank] = outgoing
        self._full.wait()
        came = {source: self._outgoing[source][rank].copy() for source in sources}
        self._empty.wait()
        return came

    def abort(self) -> None:
        """Wake ranks that wait for one that has failed."""
        for barrier in (self._full, self._empty, self._start):
            barrier.abort()

    def _count(self) -> None:
        out, into = np.zeros(self.ranks), np.zeros(self.ranks)
        """What each rank's link takes, with what is around frames."""
        for rank, outgoing in enumerate(self._outgoing):
            for target, octets in outgoing.items():
                packets = max(1, -(-len(octets) // self._payload))
                moved = len(octets) + TCP_HEADERS_BYTES * packets
                self.sent[rank] += moved
                out[rank] += moved + ETHERNET_OVERHEAD * packets
                into[target] += moved + ETHERNET_OVERHEAD * packets
        self.seconds += 8 * max(float(out.max()), float(into.max())) / self._rate_bps + 2 * self._delay_s

    def _forget(self) -> None:
        self.seconds, self.sent = 0.0, np.zeros(self.ranks)


class _Rank:
    """One rank's side."""

    def __init__(self, meeting: _Meeting, rank: int) -> None:
        self.rank, self.ranks = rank, meeting.ranks
        self._meeting = meeting

    def swap(self, outgoing: Mapping[int, Octets], sources: Sequence[int]) -> dict[int, Octets]:
        """See `sparse_hosts.Peers`."""
        return self._meeting.exchange(self.rank, outgoing, sources)

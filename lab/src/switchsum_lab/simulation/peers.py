"""Collectives of hosts alone, on the same links: rings, halving and doubling, two trees; all-to-all; what is ideal.

Each is lists of steps, which go on at the same time (`peer_kernels.py`).  Their frames go through the program's
ordinary forwarding, along shortest paths; where there are several, the destination says which one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from switchsum import topologies
from switchsum_controller.tables.entries import Entry
from switchsum_controller.tables.names import FORWARDING, STATIONS
from switchsum_protocol.errors import UsageError
from switchsum_switch.kernels.loading import address_of

from . import peer_kernels
from .arena import Arena
from .conditions import CableConditions, HostCost
from .jobs import SLOTS, Ended, attach, write
from .network import Network
from .peer_kernels import ETHERNET_BYTES, FIRST_TIMEOUT_S, PEER, PEER_BYTES, ROUND, STREAM
from .placement import host_address, rails_of, rates_bps
from .world import World

_STRIDE: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of one host."""

    to: int
    source: int
    share: float
    """Share of the whole array that is sent and received."""
    piped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Steps of one host that follow one another, beside its other streams."""

    steps: tuple[Step, ...]
    far: int = 0
    """The number of this stream on the other hosts."""
    needs: tuple[int, ...] = ()
    """Streams of this host: each frame waits for the frame of its number to come in each of them."""


def ring(rank: int, ranks: int) -> list[Step]:
    """Return the steps of a ring: N - 1 that add a part, N - 1 that hand the sums on."""
    to, source = (rank + 1) % ranks, (rank - 1) % ranks
    return [Step(to=to, source=source, share=1 / ranks, piped=step > 0) for step in range(2 * (ranks - 1))]


def halving_doubling(rank: int, ranks: int) -> list[Step]:
    """Return the steps of recursive halving, then doubling (Rabenseifner); raises UsageError unless 2, 4, 8 ..."""
    check_hosts("halving-doubling", ranks)
    halves = [Step(to=rank ^ (ranks >> at), source=rank ^ (ranks >> at), share=0.5**at) for at in _levels(ranks)]
    return [*halves, *halves[::-1]]


def recursive_doubling(rank: int, ranks: int) -> list[Step]:
    """Return the steps that all carry the whole array, as few as there may be; raises UsageError unless 2, 4, 8 ..."""
    check_hosts("recursive-doubling", ranks)
    return [Step(to=rank ^ (ranks >> at), source=rank ^ (ranks >> at), share=1.0) for at in _levels(ranks)]


def check_hosts(algorithm: str, ranks: int) -> None:
    """Raise UsageError if an algorithm cannot do with so many hosts."""
    if algorithm == DIRECT and ranks > MOST_DIRECT:
        raise UsageError(f"{DIRECT} is simulated with {MOST_DIRECT} hosts at most, not {ranks}")
    if algorithm in POWERS and ranks & (ranks - 1):
        raise UsageError(f"{algorithm} needs 2, 4, 8 or another power of two of hosts, not {ranks}")


def _levels(ranks: int) -> range:
    return range(1, ranks.bit_length())


def two_level_ring(rank: int, ranks: int) -> list[Step]:
    """Return the steps of rings in groups of neighbours, and rings across the groups in between."""
    group = max(size for size in range(1, math.isqrt(ranks) + 1) if ranks % size == 0)
    group = ranks // group if group == 1 else group
    groups, first = ranks // group, rank // group * group

    def around(count: int, there: int, back: int, share: float) -> list[Step]:
        return [Step(to=there, source=back, share=share, piped=step > 0) for step in range(count)]

    within = first + (rank - first + 1) % group, first + (rank - first - 1) % group
    across = (rank + group) % ranks, (rank - group) % ranks
    return [
        *around(group - 1, *within, 1 / group),
        *around(2 * (groups - 1), *across, 1 / ranks),
        *around(group - 1, *within, 1 / group),
    ]


def two_trees(rank: int, ranks: int) -> list[Stream]:
    """Return the streams of two binary trees, each for half of the array, whose leaves are the other's inner hosts.

    Each frame is passed on at once, up to the root and down again.  A host sends about twice the array, as in a ring
    (Sanders, Speck and Träff: Two-tree algorithms for full bandwidth broadcast, reduction and scan, 2009).
    """
    near = _neighbours(rank, ranks)
    found = []
    for tree, other, is_above in near:
        above = [number for number, one in enumerate(near) if one.tree == tree and one.is_above]
        below = [number for number, one in enumerate(near) if one.tree == tree and not one.is_above]
        found.append(
            Stream(
                steps=(Step(to=other, source=other, share=0.5),),
                far=[(one.tree, one.rank) for one in _neighbours(other, ranks)].index((tree, rank)),
                needs=tuple(below if is_above or not above else above),
            )
        )
    return found


class _Neighbour(NamedTuple):
    tree: int
    rank: int
    is_above: bool


def _neighbours(rank: int, ranks: int) -> list[_Neighbour]:
    """Return whom a host has above and below it in two trees that have their hosts in order.

    In places that count from 1, odd ones are leaves, and a place lies as high as its number ends in zeros.  In the
    second tree all hosts are moved by one place.
    """
    found = []
    for tree in range(2):
        place = (rank - tree) % ranks + 1
        low = place & -place
        above = (place ^ low) | (low << 1)
        above = above if above <= ranks else place ^ low
        places = [(above, True)] if above > 0 else []
        if low > 1:
            places.append((place - low // 2, False))
        if (right := min(low - 1, ranks - place)) > 0:
            places.append((place + (1 << (right.bit_length() - 1)), False))
        found += [_Neighbour(tree, (one - 1 + tree) % ranks, is_above) for one, is_above in places]
    return found


RING: Final = "ring"
HALF_RING: Final = "half-ring"
"""The first half of a ring, which a reduce_scatter is; an allgather takes as long."""


def half_ring(rank: int, ranks: int) -> list[Step]:
    """Return the steps of a ring that adds a part on each host, and does not hand the sums on."""
    return ring(rank, ranks)[: ranks - 1]


def pairwise(rank: int, ranks: int) -> list[Step]:
    """Return the steps of an all-to-all in which a host sends its part to one host after the other.

    In step n all hosts send to the n-th one behind them, so no link has two parts to carry at once.
    """
    return [Step(to=(rank + away) % ranks, source=(rank - away) % ranks, share=1 / ranks) for away in range(1, ranks)]


def bruck(rank: int, ranks: int) -> list[Step]:
    """Return the steps of an all-to-all by Bruck and others: log2 N of them, each with about half of the array.

    A part whose host is n places away goes as many places in each step as n has bits of that step's weight.
    """
    steps = []
    for bit in range((ranks - 1).bit_length()):
        moved = sum(away >> bit & 1 for away in range(ranks))
        steps.append(Step(to=(rank + (1 << bit)) % ranks, source=(rank - (1 << bit)) % ranks, share=moved / ranks))
    return steps


def direct(rank: int, ranks: int) -> list[Stream]:
    """Return the streams of an all-to-all in which a host sends to all others at the same time."""
    return [
        Stream(
            steps=(Step(to=(rank + away) % ranks, source=(rank + away) % ranks, share=1 / ranks),), far=ranks - away - 1
        )
        for away in range(1, ranks)
    ]


DIRECT: Final = "direct"
MOST_DIRECT: Final = 64
"""Most hosts that send to all others at once: each of them has a window's frames for each other one."""
POWERS: Final = ("halving-doubling", "recursive-doubling")
"""What only 2, 4, 8 ... hosts can do."""
DOUBLING_BYTES: Final = 64_000
"""Up to so many bytes of an array recursive doubling may be the fastest: each link carries them log2 N times."""
_STEPS: Final = {
    "ring": ring,
    "halving-doubling": halving_doubling,
    "recursive-doubling": recursive_doubling,
    "two-level-ring": two_level_ring,
}
ALGORITHMS: Final = (*_STEPS, "tree")
_EXCHANGES: Final = {"pairwise": pairwise, "bruck": bruck}
EXCHANGES: Final = (*_EXCHANGES, DIRECT)
"""Ways of an all-to-all."""
_ALL: Final = {**_STEPS, **_EXCHANGES, HALF_RING: half_ring}


def possible(ranks: int, size: int) -> tuple[str, ...]:
    """Return the algorithms that so many hosts can run, and that may be the fastest for an array of so many bytes."""
    without = {*POWERS} if ranks & (ranks - 1) else set()
    without |= {"recursive-doubling"} if size > DOUBLING_BYTES else set()
    return tuple(name for name in ALGORITHMS if name not in without)


def streams(algorithm: str, rank: int, ranks: int) -> list[Stream]:
    """Return the streams of one host; raises UsageError for an algorithm that cannot do with so many hosts."""
    if algorithm == "tree":
        return two_trees(rank, ranks)
    if algorithm == DIRECT:
        return direct(rank, ranks)
    return [Stream(steps=tuple(_ALL[algorithm](rank, ranks)))]


def ideal_ring_s(ranks: int, size: int, conditions: CableConditions, rate_bps: float, mtu: int) -> float:
    """Return what a ring takes at least, all headers counted: 2 (N - 1) / N of the array over each link."""
    return 2 * (ranks - 1) / ranks * size * _stretch(mtu, conditions) * 8 / rate_bps


def _stretch(mtu: int, conditions: CableConditions) -> float:
    """Return the bytes on a link for a byte of values."""
    return (mtu + ETHERNET_BYTES + conditions.overhead_bytes) / (mtu + ETHERNET_BYTES - PEER_BYTES)


class Peer:
    """One host of such a collective."""

    def __init__(
        self,
        rank: int,
        streams: Sequence[Stream],
        size: int,
        mtu: int,
        window: int,
        arena: Arena,
        timeout_s: float = FIRST_TIMEOUT_S,
    ) -> None:
        """`timeout_s` is its time-out before a round trip was timed."""
        self._timeout_s = timeout_s
        ring = 1 << (4 * window).bit_length()
        self.most_frames = len(streams) * ring + 64
        self._record, self._streams = arena.zeros(1, PEER), arena.zeros(len(streams), STREAM)
        self._zeros = np.zeros(mtu + ETHERNET_BYTES, np.uint8)
        self._keep: list[Any] = []
        self._streams["peer"] = address_of(self._record)
        self._streams["full_bytes"] = mtu + ETHERNET_BYTES
        self._streams["window"], self._streams["mask"] = window, ring - 1
        for place, stream in enumerate(streams):
            self._lay_out(self._streams[place : place + 1], stream, size, arena)
        for place, stream in enumerate(streams):
            needs = [self._streams["came"][need] for need in stream.needs]
            self._fill(self._streams[place : place + 1], needs=np.array([*needs, 0], np.int64))
        self._record["rank"], self._record["count"] = rank, len(streams)
        self._record["stride"], self._record["rows"] = _STRIDE, self.most_frames
        self._fill(
            self._record,
            streams=self._streams,
            store=arena.zeros((self.most_frames, _STRIDE), np.uint8),
            queue_rows=arena.zeros(self.most_frames, np.uint32),
            queue_lengths=arena.zeros(self.most_frames, np.uint32),
        )

    def _lay_out(self, record: npt.NDArray[Any], stream: Stream, size: int, arena: Arena) -> None:
        """Fill in a stream's record."""
        steps, each = stream.steps, len(self._zeros) - PEER_BYTES
        parts = [max(1, math.ceil(size * step.share)) for step in steps]
        firsts = arena.zeros(len(steps) + 1, np.int64)
        firsts[1:] = np.cumsum([-(-part // each) for part in parts])
        frames = int(firsts[-1])
        targets = sorted({step.to for step in steps})
        rounds = arena.zeros(len(targets), ROUND)
        rounds["timeout_s"] = self._timeout_s
        of_target = {target: address_of(rounds[place:]) for place, target in enumerate(targets)}
        self._keep.append(rounds)
        record["far"], record["needed"] = stream.far, len(stream.needs)
        record["steps"], record["frames"] = len(steps), frames
        record["last_bytes"] = max(PEER_BYTES + (parts[0] - 1) % each + 1, 60)
        self._fill(
            record,
            firsts=firsts,
            targets=np.array([step.to for step in steps], np.int64),
            sources=np.array([step.source for step in steps], np.int64),
            piped=np.array([step.piped for step in steps], np.int64),
            rounds=np.array([of_target[step.to] for step in steps], np.int64),
            acknowledged=arena.zeros(frames, np.uint8),
            orders=arena.zeros(int(record["mask"][0]) + 1, np.int64),
            came=arena.zeros(frames, np.uint8),
            prefixes=firsts[:-1].copy(),
        )

    def _fill(self, record: npt.NDArray[Any], **arrays: npt.NDArray[Any]) -> None:
        """Write the addresses of arrays into a record, and keep the arrays."""
        for name, array in arrays.items():
            record[name] = address_of(array)
            self._keep.append(array)

    def facts(self) -> Mapping[str, int]:
        """Return fields of its `NodeRecord`."""
        own = address_of(self._record)
        fields: Any = PEER.fields
        found = {
            "own": own,
            "receive": peer_kernels.receive.address,
            "poll": peer_kernels.poll.address,
            "sent": peer_kernels.sent.address,
            "wake": peer_kernels.tell_wake_at.address,
            "queue_count": own + int(fields["queued"][1]),
            "queue_rows": int(self._record["queue_rows"][0]),
            "queue_lengths": int(self._record["queue_lengths"][0]),
            "store": int(self._record["store"][0]),
            "stride": _STRIDE,
            "lead": 0,
            "head": PEER_BYTES,
            "body": address_of(self._zeros),
        }
        return found | {name: own + int(fields[name][1]) for name in ("consumed", "blocked", "finished", "failure")}

    def begin(self, now_s: float) -> None:
        """Begin."""
        peer_kernels.begin(address_of(self._record), now_s)

    @property
    def repeats(self) -> int:
        """Frames that it has sent again."""
        return int(self._streams["repeats"].sum())


def run(
    network: Network,
    planned: topologies.Network,
    groups: Sequence[Sequence[str]],
    conditions: CableConditions,
    *,
    algorithm: str,
    size: int,
    mtu: int = 1500,
    window: int = 64,
    cost: HostCost = HostCost(),  # noqa: B008 - frozen
    until_s: float | None = None,
    laid: Callable[[], object] = lambda: None,
) -> tuple[list[Ended], int]:
    """Let the hosts of each group add `size` bytes among themselves, all groups at the same time.

    Hosts with rails do so over each of them at the same time, with a share of the bytes that is in proportion to its
    rate.  `laid` is called when the hosts are there, before they begin.  Returns how that went for each group, and how
    many frames were repeated.  Raises UsageError for an algorithm that there is not, or that these hosts are too few or
    too many for.
    """
    if algorithm not in (*ALGORITHMS, *EXCHANGES, HALF_RING):
        raise UsageError(f"the algorithm must be one of {', '.join(ALGORITHMS)}, not {algorithm}")
    if min(map(len, groups)) < 2:
        raise UsageError("a collective needs at least two hosts")
    arena, peers = Arena(), []
    nodes: list[str] = []
    of_groups: list[list[int]] = []
    for hosts in groups:
        rails = rails_of(planned, hosts, SLOTS)
        of_groups.append([])
        for rail, (cables, rate) in enumerate(zip(rails, rates := rates_bps(rails), strict=True)):
            share, first = math.ceil(size * rate / sum(rates)), len(nodes)
            for rank, host in enumerate(hosts):
                own = [_moved(stream, first) for stream in streams(algorithm, rank, len(hosts))]
                peers.append(Peer(first + rank, own, share, mtu, window, arena, _first_timeout_s(window, mtu, rate)))
                nodes.append(host if rail == 0 else f"{host}.{rail}")
                of_groups[-1].append(network.native_host(nodes[-1], peers[-1], cost))
                [leaf] = {*cables[host].ends} - {host}
                attach(network, replace(cables[host], ends=(nodes[-1], leaf)), conditions)
    write_routes(network, nodes)
    laid()
    world, numbers = network.world, [network.number_of(name) for name in nodes]
    began = world.now_s
    world.wait_for(numbers)
    for peer, number in zip(peers, numbers, strict=True):
        peer.begin(began)
        world.wake(number)
    with suppress(KeyboardInterrupt):  # what there is of it is a result, too
        network.run(until_s)
    ended = [_ended(world, began, found, len(hosts)) for found, hosts in zip(of_groups, groups, strict=True)]
    return ended, sum(peer.repeats for peer in peers)


def _first_timeout_s(window: int, mtu: int, rate_bps: float) -> float:
    """Return the first time-out at a rate: a frame, and what acknowledges it, may wait behind a window of frames each.

    It is twice as long as that takes, as later time-outs are.
    """
    return max(FIRST_TIMEOUT_S, 4 * window * (mtu + ETHERNET_BYTES) * 8 / rate_bps)


def _moved(stream: Stream, first: int) -> Stream:
    """Return a stream among ranks that are counted from `first` on."""
    return replace(
        stream, steps=tuple(replace(step, to=first + step.to, source=first + step.source) for step in stream.steps)
    )


def _ended(world: World, began: float, numbers: list[int], hosts: int) -> Ended:
    left = world.awaited(numbers)
    end_s = world.now_s if left else world.finished_s(numbers)
    return Ended(seconds=end_s - began, is_complete=left == 0, finished=(len(numbers) - left) * hosts // len(numbers))


def write_routes(network: Network, stations: Sequence[str], first: int = 0) -> None:
    """Let every switch forward to every host along a shortest path; `first` is the number of the first host.

    Of several such paths to the hosts of a leaf each has its turn.  The turns move on by one after each round, or jobs
    whose rings come to every second host of a leaf would all take the same half of the paths.
    """
    near = {name: network.ports(name) for name in network.switches}
    behind: dict[str, int] = {}
    for number, host in enumerate(stations, first):
        [leaf] = network.ports(host).values()
        place = first + behind.setdefault(leaf, 0)
        behind[leaf] += 1
        leaves = [*behind].index(leaf)
        away = _distances(network, leaf)
        for name in network.switches:
            if name not in away:  # of another rail
                continue
            ports = [port for port, far in near[name].items() if away.get(far, math.inf) < away[name]]
            turn = (place + place // max(1, len(ports)) + leaves) % max(1, len(ports))
            port = network.port_to(name, host) if name == leaf else ports[turn]
            match = {"mac": host_address(number).mac}
            entry = Entry(table=STATIONS, match=match, action=f"{FORWARDING}.forward", params={"port": port})
            write(network.switches[name], entry)


def _distances(network: Network, start: str) -> dict[str, int]:
    """Return how many links each switch is away from one."""
    found, waiting = {start: 0}, deque([start])
    while waiting:
        here = waiting.popleft()
        for far in network.ports(here).values():
            if far in network.switches and far not in found:
                found[far] = found[here] + 1
                waiting.append(far)
    return found

"""Collectives of hosts alone, on the same links: ring, two-level ring, halving and doubling; and what is ideal.

Each is a list of steps (`peer_kernels.py`).  Their frames go through the program's ordinary forwarding, along shortest
paths; where there are several, the destination says which one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from switchsum.controller.tables.entries import Entry
from switchsum.controller.tables.names import FORWARDING, STATIONS
from switchsum.native.kernels.loading import address_of
from switchsum.planning import topology
from switchsum.protocol.errors import UsageError

from . import peer_kernels
from .arena import Arena
from .conditions import HostCost, Link
from .jobs import SLOTS, Ended, attach, write
from .network import Network
from .peer_kernels import ETHERNET_BYTES, FIRST_TIMEOUT_S, PEER, PEER_BYTES, ROUND
from .placement import host_address, rails_of, rates_bps
from .world import World

_STRIDE: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of one host."""

    to: int
    source: int
    share: float
    """Of the whole array, that is sent and received."""
    piped: bool = False


def ring(rank: int, ranks: int) -> list[Step]:
    """Return the steps of a ring: N - 1 that add a part, N - 1 that hand the sums on."""
    to, source = (rank + 1) % ranks, (rank - 1) % ranks
    return [Step(to=to, source=source, share=1 / ranks, piped=step > 0) for step in range(2 * (ranks - 1))]


def halving_doubling(rank: int, ranks: int) -> list[Step]:
    """Return the steps of recursive halving, then doubling (Rabenseifner); raises UsageError unless 2, 4, 8 ..."""
    if ranks & (ranks - 1):
        raise UsageError(f"halving-doubling needs 2, 4, 8 or another power of two of hosts, not {ranks}")
    halves = [Step(to=rank ^ (ranks >> at), source=rank ^ (ranks >> at), share=0.5**at) for at in _levels(ranks)]
    return [*halves, *halves[::-1]]


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


ALGORITHMS: Final = {"ring": ring, "halving-doubling": halving_doubling, "two-level-ring": two_level_ring}


def ideal_ring_s(ranks: int, size: int, conditions: Link, rate_bps: float, mtu: int) -> float:
    """Return what a ring takes at least, all headers counted: 2 (N - 1) / N of the array over each link."""
    return 2 * (ranks - 1) / ranks * size * _stretch(mtu, conditions) * 8 / rate_bps


def _stretch(mtu: int, conditions: Link) -> float:
    """Return the bytes on a link for a byte of values."""
    return (mtu + ETHERNET_BYTES + conditions.overhead_bytes) / (mtu + ETHERNET_BYTES - PEER_BYTES)


class Peer:
    """One host of such a collective."""

    def __init__(self, rank: int, steps: Sequence[Step], size: int, mtu: int, window: int, arena: Arena) -> None:
        each = mtu + ETHERNET_BYTES - PEER_BYTES
        parts = [max(1, math.ceil(size * step.share)) for step in steps]
        firsts = arena.zeros(len(steps) + 1, np.int64)
        firsts[1:] = np.cumsum([-(-part // each) for part in parts])
        frames = int(firsts[-1])
        ring = 1 << (4 * window).bit_length()
        self.most_frames = ring + 64
        targets = sorted({step.to for step in steps})
        rounds = arena.zeros(len(targets), ROUND)
        rounds["timeout_s"] = FIRST_TIMEOUT_S
        of_target = {target: address_of(rounds[place:]) for place, target in enumerate(targets)}
        tables = {
            "firsts": firsts,
            "targets": np.array([step.to for step in steps], np.int64),
            "sources": np.array([step.source for step in steps], np.int64),
            "piped": np.array([step.piped for step in steps], np.int64),
            "rounds": np.array([of_target[step.to] for step in steps], np.int64),
            "acknowledged": arena.zeros(frames, np.uint8),
            "orders": arena.zeros(ring, np.int64),
            "came": arena.zeros(frames, np.uint8),
            "prefixes": firsts[:-1].copy(),
            "store": arena.zeros((self.most_frames, _STRIDE), np.uint8),
            "queue_rows": arena.zeros(self.most_frames, np.uint32),
            "queue_lengths": arena.zeros(self.most_frames, np.uint32),
        }
        self._record = arena.zeros(1, PEER)
        for name, array in tables.items():
            self._record[name] = address_of(array)
        last = PEER_BYTES + (parts[0] - 1) % each + 1
        numbers = {"rank": rank, "steps": len(steps), "frames": frames, "window": window, "mask": ring - 1}
        numbers |= {"full_bytes": PEER_BYTES + each, "last_bytes": max(last, 60), "stride": _STRIDE}
        numbers |= {"rows": self.most_frames}
        for name, value in numbers.items():
            self._record[name] = value
        self._keep = tables, rounds
        self._zeros = np.zeros(PEER_BYTES + each, np.uint8)

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
        return int(self._record["repeats"][0])


def run(
    network: Network,
    planned: topology.Network,
    groups: Sequence[Sequence[str]],
    conditions: Link,
    *,
    algorithm: str,
    size: int,
    mtu: int = 1500,
    window: int = 64,
    cost: HostCost = HostCost(),  # noqa: B008 - frozen
    until_s: float | None = None,
) -> tuple[list[Ended], int]:
    """Let the hosts of each group add `size` bytes among themselves, all groups at the same time.

    Hosts with rails do so over each of them at the same time, with a share of the bytes that is in proportion to its
    rate.  Returns how that went for each group, and how many frames were repeated.  Raises UsageError for an algorithm
    that there is not, or that these hosts are too few or too many for.
    """
    if algorithm not in ALGORITHMS:
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
                steps = [
                    replace(step, to=first + step.to, source=first + step.source)
                    for step in ALGORITHMS[algorithm](rank, len(hosts))
                ]
                peers.append(Peer(first + rank, steps, share, mtu, window, arena))
                nodes.append(host if rail == 0 else f"{host}.{rail}")
                of_groups[-1].append(network.native_host(nodes[-1], peers[-1], cost))
                [leaf] = {*cables[host].ends} - {host}
                attach(network, replace(cables[host], ends=(nodes[-1], leaf)), conditions)
    write_routes(network, nodes)
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


def _ended(world: World, began: float, numbers: list[int], hosts: int) -> Ended:
    left = world.awaited(numbers)
    end_s = world.now_s if left else world.finished_s(numbers)
    return Ended(seconds=end_s - began, is_complete=left == 0, finished=(len(numbers) - left) * hosts // len(numbers))


def write_routes(network: Network, stations: Sequence[str]) -> None:
    """Let every switch forward to every host along a shortest path."""
    near = {name: network.ports(name) for name in network.switches}
    for number, host in enumerate(stations):
        [leaf] = network.ports(host).values()
        away = _distances(network, leaf)
        for name in network.switches:
            if name not in away:  # of another rail
                continue
            ports = [port for port, far in near[name].items() if away.get(far, math.inf) < away[name]]
            port = network.port_to(name, host) if name == leaf else ports[number % len(ports)]
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

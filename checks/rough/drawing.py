"""Draws cells: what a cell is about first, then the network, so that every kind meets every network."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from switchsum_protocol.member_rpc import MOST_IN_FLIGHT

from .cells import Cell, Trouble

LEAST_BPS, MOST_BPS = 1e6, 1e11
LEAST_TRIP_S, MOST_TRIP_S = 2e-6, 0.6
MOST_FRAMES: Final = 100_000
"""Frames on all links that a sum needs: about a quarter of a second of a core."""
LEAST_BLOCKS: Final = 100
BURST_BYTES: Final = 262_144
"""Token bucket of the links that `switchsum run` makes."""
LATENCY_S: Final = 0.1
"""What its queues hold, beside the bucket."""
_TIMES: Final = (1.0, 1.0, 2.0, 10.0, 100.0)

Draw = Callable[[random.Random, Cell], Cell]


def _rate(rng: random.Random) -> float:
    return 10 ** rng.uniform(6, 11)


def network(rng: random.Random, kind: str, seed: int) -> Cell:
    """Draw a network, with nothing wrong with it."""
    shape = rng.choice(["star", "star", "racks", "racks", "two spines", "three levels"])
    hosts = {"star": rng.choice([2, 4, 6, 8]), "three levels": 8}.get(shape, rng.choice([4, 6, 8]))
    return Cell(
        kind=kind,
        shape=shape,
        hosts=hosts,
        rate_bps=_rate(rng),
        host_times=1.0 if shape == "star" else rng.choice(_TIMES),
        trip_s=LEAST_TRIP_S * (MOST_TRIP_S / LEAST_TRIP_S) ** rng.random(),
        lanes=rng.choice([256, 256, 256, 2048]),
        slots=rng.choice([2 ** rng.randint(2, 8), MOST_IN_FLIGHT]),
        seed=seed,
    )


def sized(rng: random.Random, cell: Cell) -> Cell:
    """Give a cell a sum that takes many round trips, as far as frames allow."""
    in_trip = min(cell.trip_alone_s / cell.frame_s, cell.slots)
    wanted = max(LEAST_BLOCKS, 4 * cell.slots, in_trip * rng.uniform(5, 40))
    most = MOST_FRAMES // (2 * cell.hops * cell.hosts * cell.jobs)
    if cell.lanes > 256:
        most //= 2
    return replace(cell, blocks=int(min(wanted, max(most, LEAST_BLOCKS))))


def _queue(rng: random.Random, cell: Cell) -> Cell:
    """Queues from 4 frames to a second; hosts have none of their own, or the same one."""
    by_time = cell.rate_bps / 8 * 10 ** rng.uniform(-3, 0)
    queue = int(max(rng.choice([4, 10, 40, 0, 0]) * cell.frame_bytes or by_time, 4 * cell.frame_bytes))
    return replace(cell, queue_bytes=queue, host_queue_bytes=rng.choice([None, queue]))


def _mark(rng: random.Random, cell: Cell) -> Cell:
    cell = _queue(rng, cell)
    assert cell.queue_bytes is not None
    return replace(cell, mark_bytes=max(cell.queue_bytes // 4, cell.frame_bytes))


def _bucket(rng: random.Random, cell: Cell) -> Cell:
    return replace(cell, bucket_bytes=rng.choice([cell.frame_bytes * 4, BURST_BYTES, 4 * BURST_BYTES]))


def _tc(rng: random.Random, cell: Cell) -> Cell:
    """Take the links that `switchsum run --links veth --rate` makes, and its window."""
    cell = replace(cell, rate_bps=10 ** rng.uniform(6, 9), bucket_bytes=BURST_BYTES, slots=MOST_IN_FLIGHT)
    queue = int(cell.rate_bps / 8 * LATENCY_S) + BURST_BYTES
    return replace(cell, queue_bytes=queue, host_queue_bytes=queue)


def _late(rng: random.Random, cell: Cell) -> Cell:
    return replace(cell, late=1e-3, late_by_s=10 ** rng.uniform(-3, -1))


def _bucket_late(rng: random.Random, cell: Cell) -> Cell:
    return _late(rng, _bucket(rng, cell))


def _loss(rng: random.Random, cell: Cell) -> Cell:
    return replace(cell, loss=10 ** rng.uniform(-4, -2))


def _loss_queue(rng: random.Random, cell: Cell) -> Cell:
    return _loss(rng, _queue(rng, cell))


def _slow_host(rng: random.Random, cell: Cell) -> Cell:
    """One host's link is slower than the others, which may have queues."""
    cell = replace(cell, shape="star", host_times=1.0, slow_times=rng.choice([2.0, 10.0, 100.0]))
    return _queue(rng, cell) if rng.random() < 0.3 else cell


def _far_host(rng: random.Random, cell: Cell) -> Cell:
    return replace(cell, far_s=10 ** rng.uniform(-3, -0.7))


def _jobs(rng: random.Random, cell: Cell) -> Cell:
    """Several jobs over the same trunks, in three of ten cells with queues."""
    shape = rng.choice(["racks", "two spines"])
    count = rng.choice([2, 3, 4])
    cell = replace(
        cell, shape=shape, hosts=4, jobs=count, slots=min(cell.slots, 256), host_times=rng.choice(_TIMES[1:])
    )
    return _queue(rng, cell) if rng.random() < 0.3 else cell


def _shared(rng: random.Random, cell: Cell) -> Cell:
    """Jobs that share the slots of one switch: what finds its slot taken goes to another switch.

    In half of the cells each job asks for a part that leaves the others theirs (`--slots shared:N`), as docs/sharing.md
    advises; in the others for all.
    """
    shared, jobs = rng.choice([16, 64, 256]), rng.choice([1, 2, 4])
    slots = shared // rng.choice([1, jobs])
    return replace(cell, shape="star", host_times=1.0, hosts=4, jobs=jobs, slots=slots, shared_slots=shared)


def _narrow(rng: random.Random, cell: Cell) -> Cell:
    numbers = rng.choice(["int10", "int8", "int16", "float32 in int8", "float32 in int16"])
    return replace(cell, numbers=numbers)


def _sparse(rng: random.Random, cell: Cell) -> Cell:
    return replace(cell, density=rng.choice([0.5, 0.2, 0.1]))


def _batches(rng: random.Random, cell: Cell) -> Cell:
    return replace(cell, batch_s=10 ** rng.uniform(-5, -2.5))


def _trouble(what: str, shortest: float, longest: float, factors: tuple[float, ...] = (0.0,)) -> Draw:
    """Return what draws one trouble, which begins within the sum and lasts so many times the sum's bound."""

    def draw(rng: random.Random, cell: Cell) -> Cell:
        lasts_s = cell.untroubled_s * shortest * (longest / shortest) ** rng.random()
        one = Trouble(what, rng.uniform(0.1, 0.7), lasts_s, rng.choice(factors))
        return replace(cell, troubles=(one,))

    return draw


def _stop(rng: random.Random, cell: Cell) -> Cell:
    return replace(cell, troubles=(Trouble("host", rng.uniform(0.1, 0.7), 5.0),))


def _clock(rng: random.Random, cell: Cell) -> Cell:
    return replace(cell, troubles=(Trouble("clock", rng.uniform(0.1, 0.7), rng.choice([0.1, 5.0, 3600.0])),))


def _loss30(rng: random.Random, cell: Cell) -> Cell:
    return replace(cell, loss=0.3, blocks=min(cell.blocks, 400))


def _twice(rng: random.Random, cell: Cell) -> Cell:
    return replace(cell, twice=0.05, late=0.05, late_by_s=rng.uniform(0.1, 3) * cell.trip_alone_s)


NETWORKS: Final[Mapping[str, tuple[int, Draw]]] = {
    "plain": (4, lambda rng, cell: cell),
    "queue": (4, _queue),
    "mark": (1, _mark),
    "bucket": (2, _bucket),
    "tc": (2, _tc),
    "late": (2, _late),
    "bucket+late": (1, _bucket_late),
    "slow host": (2, _slow_host),
    "far host": (1, _far_host),
    "jobs": (2, _jobs),
    "shared slots": (1, _shared),
    "narrow": (1, _narrow),
    "sparse": (1, _sparse),
    "batches": (1, _batches),
    "loss": (3, _loss),
    "loss+queue": (1, _loss_queue),
}
"""Kinds whose networks stay as they are, with how often each is drawn."""
TROUBLES: Final[Mapping[str, tuple[int, Draw]]] = {
    "pause": (1, _trouble("host", 0.05, 2.0)),
    "outage": (1, _trouble("link", 0.05, 2.0)),
    "switch late": (1, _trouble("switch", 0.05, 2.0)),
    "rate": (1, _trouble("rate", 0.5, 3.0, (0.1, 10.0))),
    "stopped 5 s": (1, _stop),
    "clock": (1, _clock),
    "loss 30 %": (1, _loss30),
    "twice": (1, _twice),
}
"""Kinds in which something goes wrong in the midst of a sum, or most of the time."""
KINDS: Final[Mapping[str, tuple[int, Draw]]] = {**NETWORKS, **TROUBLES}


def draw(seed: int, number: int, kinds: tuple[str, ...] = ()) -> Cell:
    """Draw the cell of a seed with a number; `kinds` are those to draw from, by default all."""
    rng = random.Random(f"{seed} {number}")
    known = {name: KINDS[name] for name in kinds} if kinds else KINDS
    [kind] = rng.choices([*known], [often for often, _ in known.values()])
    cell = network(rng, kind, seed=rng.randrange(1 << 16))
    change = KINDS[kind][1]
    if kind in TROUBLES:  # how long a sum takes says when things go wrong
        return change(rng, sized(rng, cell))
    return sized(rng, change(rng, cell))


def cells(seed: int, first: int, count: int, kinds: tuple[str, ...] = ()) -> Iterator[tuple[int, Cell]]:
    """Yield cells with their numbers."""
    for number in range(first, first + count):
        yield number, draw(seed, number, kinds)

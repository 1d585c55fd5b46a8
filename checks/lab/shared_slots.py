"""The figures of docs/results/shared-slots.md: what shared slots cost, and what they bring beside reserved ones.

Run: python -m checks.lab.shared_slots [--only cost,few,few8,short,some,some8,crowd,quota,quota1,beside]
It is simulated: load does not matter.

Each job has four workers at one switch, with links of 100 Gbit/s.  The aggregator has such a link, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum.topologies import Cable, Network
from switchsum_host.engine.state import Count
from switchsum_lab.simulation import jobs
from switchsum_lab.simulation.conditions import CableConditions
from switchsum_protocol.member_rpc import MOST_IN_FLIGHT

WORKERS: Final = 4
LANES: Final = 256
MBIT: Final = 100_000.0
CABLE: Final = CableConditions(delay_s=1e-6)
"""A round trip over one switch holds 24 frames."""
PARTS: Final = 8
FEW: Final = 48
"""Slots of which each of eight jobs has a part that holds a quarter of a round trip."""
SOME: Final = 104
"""Slots of which each part holds half of a round trip."""
MANY: Final = 256
FALLBACK: Final = "spare"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How jobs went that add at the same time."""

    seconds: tuple[float, ...]
    """Of each job."""
    repeats: int
    taken: float
    """Share of the rounds that the fallback has added in place of a slot."""


def add(
    active: int,
    size: int | Sequence[int],
    window: int,
    *,
    shares: bool,
    own: int = 0,
    slots: int = MANY,
    aggregator_mbit: float = MBIT,
    link: CableConditions = CABLE,
) -> Run:
    """Let jobs add arrays of a size, in bytes, with a window of slots each; raises SystemExit for a wrong sum.

    Each job may have a size of its own.  Jobs that share slots have `own` ones each beside those.
    """
    hosts = tuple(f"h{number}" for number in range(active * WORKERS))
    cables = (
        *(Cable(ends=(host, "s1"), mbit=MBIT) for host in hosts),
        Cable(ends=("s1", FALLBACK), mbit=aggregator_mbit),
    )
    planned = Network(switches=("s1", FALLBACK), hosts=hosts, cables=cables)
    network = jobs.build(planned, link, lanes=LANES, seed=1)
    controller = jobs.controlled(network, planned, hosts, lanes=LANES, fallback=FALLBACK, shared_slots=slots)

    def job(number: int) -> jobs.Job:
        first = number * WORKERS
        share = jobs.Share(number=number, first_host=first, controller=controller, shares_slots=shares, own_slots=own)
        these = hosts[first : first + WORKERS]
        return jobs.Job(network, planned, these, link, lanes=LANES, window_slots=window, share=share)

    made = [job(number) for number in range(active)]
    _add_once(made, [4 * LANES * window] * active)  # so that round trips are known
    before = _counts(made)
    seconds = _add_once(made, [size] * active if isinstance(size, int) else size)
    rounds, taken, repeats = (_counts(made) - before).tolist()
    return Run(seconds=seconds, repeats=repeats, taken=taken / rounds)


def _counts(made: Sequence[jobs.Job]) -> npt.NDArray[np.int64]:
    """Return rounds, those that were taken, and repeats."""
    counts = np.sum([worker.engine.counts for job in made for worker in job.workers], axis=0)
    return np.array([counts[Count.ROUNDS], counts[Count.TAKEN], counts[Count.PROBES] + counts[Count.OVERTAKEN]])


def _add_once(made: Sequence[jobs.Job], sizes: Sequence[int]) -> tuple[float, ...]:
    arrays = [
        [np.full(size // 4, rank + number + 1, np.float32) for rank in range(WORKERS)]
        for number, size in enumerate(sizes)
    ]
    ended = jobs.add_together(made, arrays, until_s=made[0].network.now + 1.0)
    for number, (own, one) in enumerate(zip(arrays, ended, strict=True)):
        total = sum(range(number + 1, number + 1 + WORKERS))
        if not one.is_complete or not all((array == total).all() for array in own):
            raise SystemExit(f"a sum of job {number} is wrong, or did not come")
    return tuple(one.seconds for one in ended)


def cost_rows() -> Iterator[str]:
    """Yield what sharing costs a job that nobody disturbs."""
    yield "| bytes | slots of its own, us | shared slots, us | more | repeats |"
    yield "|---|---|---|---|---|"
    for size in (1_000_000, 4_000_000):
        own, shared = (add(1, size, MANY, shares=shares) for shares in (False, True))
        [was], [now] = own.seconds, shared.seconds
        yield f"| {size // 1_000_000} MB | {1e6 * was:.1f} | {1e6 * now:.1f} | {now / was - 1:.1%} | {shared.repeats} |"


def rows(active: int, slots: int, size: int = 4_000_000) -> Iterator[str]:
    """Yield how jobs with an eighth of the slots each go, and how such that share all of them."""
    title = f"{active} of {PARTS} jobs, {slots} slots, {size // 1_000_000} MB"
    yield f"| {title} | last, us | first, us | of the parts' time | taken | repeats |"
    yield "|---|---|---|---|---|---|"
    own = add(active, size, slots // PARTS, shares=False, slots=slots)
    ways = {"a part each": own}
    for mbit in (MBIT, 4 * MBIT):
        window = min(slots, MOST_IN_FLIGHT, jobs.SLOTS // active)
        run = add(active, size, window, shares=True, slots=slots, aggregator_mbit=mbit)
        ways[f"shared, aggregator at {mbit / 1000:.0f} Gbit/s"] = run
    for name, run in ways.items():
        last = max(run.seconds)
        cells = f"{1e6 * last:.0f} | {1e6 * min(run.seconds):.0f} | {last / max(own.seconds):.2f}"
        yield f"| {name} | {cells} | {run.taken:.0%} | {run.repeats} |"


def quota_rows(size: int = 4_000_000) -> Iterator[str]:
    """Yield how jobs go that may use as many of the shared slots each as a round trip holds, or more."""
    yield "| jobs | slots | for each job | a part each, us | shared, us | of the parts' time | taken | repeats |"
    yield "|---|---|---|---|---|---|---|---|"
    for slots, quotas in ((FEW, (24,)), (SOME, (13, 26, 35, 52)), (2 * MANY, (32, 64))):
        own = max(add(PARTS, size, slots // PARTS, shares=False, slots=slots).seconds)
        for quota in quotas:
            for active in (PARTS, 2):
                run = add(active, size, quota, shares=True, slots=slots)
                last = max(run.seconds)
                times = f"{1e6 * own:.0f} | {1e6 * last:.0f} | {last / own:.2f}"
                yield f"| {active} of {PARTS} | {slots} | {quota} | {times} | {run.taken:.0%} | {run.repeats} |"


def beside_rows(small: int = 8_000, large: int = 4_000_000) -> Iterator[str]:
    """Yield how a small array fares beside seven jobs that add large ones, as PANAMA's short flows."""
    alone = add(1, small, MANY // PARTS, shares=False, slots=MANY).seconds[0]
    title = f"{small // 1000} kB beside seven jobs of {large // 1_000_000} MB"
    yield f"| {title} | us | times as long as alone | others, us |"
    yield "|---|---|---|---|"
    yield f"| alone | {1e6 * alone:.1f} | 1.00 | - |"
    sizes = [small] + [large] * (PARTS - 1)
    for name, window, shares, own in (
        ("a part each", MANY // PARTS, False, 0),
        ("shared", MANY // 2, True, 0),
        ("shared, and 8 slots of each job's own", MANY // 2, True, 8),
    ):
        run = add(PARTS, sizes, window, shares=shares, slots=MANY, own=own)
        first, others = run.seconds[0], max(run.seconds[1:])
        yield f"| {name} | {1e6 * first:.1f} | {first / alone:.2f} | {1e6 * others:.0f} |"


TABLES: Final[dict[str, Callable[[], Iterator[str]]]] = {
    "cost": cost_rows,
    "few": lambda: rows(2, FEW),
    "few8": lambda: rows(PARTS, FEW),
    "short": lambda: rows(PARTS, FEW, 1_000_000),
    "some": lambda: rows(2, SOME),
    "some8": lambda: rows(PARTS, SOME),
    "crowd": lambda: rows(PARTS, 2 * MANY),
    "quota": quota_rows,
    "quota1": lambda: quota_rows(1_000_000),
    "beside": beside_rows,
}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m checks.lab.shared_slots", description=__doc__)
    parser.add_argument("--only", default=",".join(TABLES), help="tables, separated by commas")
    for name in parser.parse_args().only.split(","):
        print(*TABLES[name](), "", sep="\n", flush=True)


if __name__ == "__main__":
    main()

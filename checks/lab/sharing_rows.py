"""Jobs that share a switch on real links, beside the simulation of the same links: tables of docs/sharing.md.

Run as root: python -m checks.lab.sharing_rows [--publish]

Jobs of two ranks add arrays at the same time.  A job has an eighth of the slots for itself, or shares all of them, or
finds all of them taken: then the aggregator adds everything, as a parameter server does.  Another job takes the slots
for that: one of its ranks contributes, and the other never does.

In two racks a job has two ranks in each.  One switch, to which the racks forward, adds all frames; or each rack has a
switch that adds, below it.  An uplink is as fast as all links of the ranks in its rack together.

Run it on a quiet machine.  A row is limited by the links if the processors were idle for at least 15 % of the time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from checks.bench import ages
from checks.bench.records import measured_on, provenance
from checks.lab.sharing_rig import LANES, RANKS, SPARE, TAKERS, Case, Found, Way, rig
from switchsum.launch import wires
from switchsum.topologies import Cable, Network
from switchsum_host.engine.operation import Operation
from switchsum_host.engine.state import Count
from switchsum_lab.simulation import jobs
from switchsum_lab.simulation.conditions import CableConditions
from switchsum_lab.simulation.network import Network as SimulatedNetwork
from switchsum_protocol.frame import FRAME_BYTES, payload_bytes

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "sharing.md"
RESULTS: Final = Path(__file__).parent / "results" / "sharing_rows.json"
BEGIN, END = "<!-- rows: python -m checks.lab.sharing_rows --publish -->", "<!-- end of rows -->"
FRAME_BITS: Final = 8 * (FRAME_BYTES + payload_bytes(LANES))
PARTS: Final = 8
"""Jobs for which a switch's slots are divided into parts, however many are active."""
LARGE: Final = 400_000
SMALL: Final = 8_000
"""Bytes of an array."""
OWN_SLOTS: Final = 8
"""Slots of a job that has some of its own beside the shared ones."""
IDLE: Final = 0.15
"""Share of the processors' time from which on the links are the limit."""
PART: Final = Way(name="a part each")
SHARED: Final = Way(name="shared", shares=True)
SERVER: Final = Way(name="parameter server", shares=True, is_taken=True)
TREE: Final = Way(name="a part of a tree each", is_tree=True)
BOTH: Final = Way(name=f"shared, and {OWN_SLOTS} of each job's own", shares=True, own_slots=OWN_SLOTS)


def simulate(case: Case, delay_s: float) -> Found:
    """Let the jobs of a case add once, after a round that says how long round trips are; cables have a delay."""
    count = RANKS * case.racks * len(case.sizes) + TAKERS * case.way.is_taken
    hosts = tuple(f"h{number}" for number in range(count))
    racks = tuple(f"rack{rack}" for rack in range(case.racks if case.racks > 1 else 0))
    leaves = racks or ("main",)
    links = (Cable(ends=(name, leaves[at % len(leaves)]), mbit=case.mbit) for at, name in enumerate(hosts))
    uplinks = (Cable(ends=(name, "main"), mbit=case.uplink_mbit) for name in racks)
    cables = (*links, *uplinks, Cable(ends=(SPARE, "main"), mbit=case.mbit))
    planned, link = (
        Network(switches=("main", *racks, SPARE), hosts=hosts, cables=cables),
        CableConditions(delay_s=delay_s),
    )
    network = jobs.build(planned, link, lanes=LANES, seed=1)
    controller = jobs.controlled(
        network,
        planned,
        hosts,
        lanes=LANES,
        fallback=SPARE,
        shared_slots=case.slots,
        root="" if case.way.is_tree else "main",
    )

    def job(number: int, window: int, own: int = 0, ranks: int = case.ranks) -> jobs.Job:
        first = case.ranks * number
        share = jobs.Share(
            number=number, first_host=first, controller=controller, shares_slots=case.way.shares, own_slots=own
        )
        these = hosts[first : first + ranks]
        return jobs.Job(network, planned, these, link, lanes=LANES, window_slots=window, share=share)

    if case.way.is_taken:
        _take_all(job(len(case.sizes), case.slots, ranks=TAKERS), case.slots)
    made = [job(number, case.window, case.way.own_slots) for number in range(len(case.sizes))]
    _add_once(made, [4 * LANES * case.window] * len(made))
    before, sent = _counts(made), _sent_up(network, racks)
    ms = _add_once(made, case.sizes)
    rounds, taken, repeats = (_counts(made) - before).tolist()
    up_mb = (_sent_up(network, racks) - sent) / 1e6 / max(1, len(racks))
    return Found(ms=ms, taken=taken / rounds, repeats=repeats / rounds, up_mb=up_mb)


def _sent_up(network: SimulatedNetwork, racks: Sequence[str]) -> int:
    return sum(network.links[f"{name}->main"].bytes for name in racks)


def _take_all(job: jobs.Job, slots: int) -> None:
    """Let one rank of a job contribute to all slots, and wait for ever for the other."""
    network, array = job.network, np.ones(LANES * slots, np.float32)
    job.workers[0].begin(Operation.of(array), array, network.now)
    network.world.wake(job.numbers[0])
    network.run(network.now + 0.1)


def _counts(made: Sequence[jobs.Job]) -> Any:
    counts = np.sum([worker.engine.counts for job in made for worker in job.workers], axis=0)
    return np.array([counts[Count.ROUNDS], counts[Count.TAKEN], counts[Count.PROBES] + counts[Count.OVERTAKEN]])


def _add_once(made: Sequence[jobs.Job], sizes: Sequence[int]) -> tuple[float, ...]:
    ranks = len(made[0].workers)
    arrays = [[np.full(size // 4, 1.0 + one, np.float32) for one in range(ranks)] for size in sizes]
    ended = jobs.add_together(made, arrays, until_s=made[0].network.now + 10.0)
    total = ranks * (ranks + 1) // 2
    if not all(one.is_complete for one in ended) or not all((array == total).all() for own in arrays for array in own):
        raise SystemExit("a simulated sum is wrong, or did not come")
    return tuple(1e3 * one.seconds for one in ended)


def formula_ms(case: Case) -> float:
    """Return what a server takes whose link is always full: it receives the frames of all ranks."""
    return 1e3 * case.ranks * sum(-(-size // (4 * LANES)) for size in case.sizes) * FRAME_BITS / (case.mbit * 1e6)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSetup:
    """Links, and how many slots are few or many there."""

    few: int
    """Slots of which an eighth is less than a round trip holds."""
    few_each: int
    """As many as a round trip holds, for each job that shares few."""
    many: int
    size: int = LARGE
    """Bytes of an array."""
    racks: int = 1

    def cases(self, jobs_: int, mbit: float) -> tuple[Case, ...]:
        """Return the rows of a number of jobs."""
        few, many, part, each = self.few, self.many, self.many // PARTS, self.few_each
        ways = [(many, TREE, part), (many, PART, part), (many, SHARED, part)]
        ways += [(few, TREE, few // PARTS), (few, PART, few // PARTS), (few, SHARED, each), (few, SERVER, each)]
        return tuple(
            Case(sizes=(self.size,) * jobs_, way=way, mbit=mbit, slots=slots, window=window, racks=self.racks)
            for slots, way, window in ways
            if self.racks > 1 or not way.is_tree
        )


SLOW: Final = LinkSetup(few=8, few_each=4, many=128)
FAST: Final = LinkSetup(few=48, few_each=24, many=512, size=4_000_000)
SLOW_RACKS: Final = LinkSetup(few=8, few_each=4, many=128, racks=2)
FAST_RACKS: Final = LinkSetup(few=96, few_each=48, many=512, size=4_000_000, racks=2)
"""A round trip over two racks holds twice as many frames."""
FAST_MBIT: Final = 100_000.0
FAST_DELAY_S: Final = 1e-6
DELAY_S: Final = 5e-5
"""Of a slower cable, where none was measured."""
RATES: Final[Mapping[int, float]] = {2: 200.0, 4: 50.0, 8: 50.0}
"""Mbit/s by number of jobs, of the real links: as fast as two cores let them be the limit."""
ROWS: Final = tuple(case for jobs_, mbit in RATES.items() for case in SLOW.cases(jobs_, mbit))
"""ATP's question: many jobs, and slots that are many or few."""
RACK_RATES: Final[Mapping[int, float]] = {2: 50.0, 4: 25.0, 8: 25.0}
"""The same in two racks, where a job has twice as many ranks."""
MOST_MEASURED: Final = 4
"""Jobs of four ranks: more processes than these two cores cannot let links be the limit."""
RACK_ROWS: Final = tuple(case for jobs_, mbit in RACK_RATES.items() for case in SLOW_RACKS.cases(jobs_, mbit))
"""ATP's two racks."""
SHORT: Final = tuple(
    Case(sizes=(SMALL, *others), way=way, mbit=50.0, slots=SLOW.many, window=SLOW.many // PARTS)
    for others, way in (((), PART), ((LARGE,) * 3, PART), ((LARGE,) * 3, SHARED), ((LARGE,) * 3, BOTH))
)
"""PANAMA's question: what a short array takes beside large ones."""
ALONE: Final = tuple(
    Case(sizes=(LARGE,), way=PART, mbit=mbit, slots=SLOW.many, window=1) for mbit in sorted({*RATES.values()})
)
"""A job with one slot: its sums say how long a round trip takes."""
ALONE_IN_RACKS: Final = tuple(
    Case(sizes=(LARGE,), way=way, mbit=mbit, slots=SLOW.many, window=1, racks=2)
    for mbit in sorted({*RACK_RATES.values()})
    for way in (PART, TREE)
)
ALL: Final = (
    *ROWS,
    *SHORT,
    *ALONE,
    *(case for case in RACK_ROWS if len(case.sizes) <= MOST_MEASURED),
    *ALONE_IN_RACKS,
)


def measure(rows: Sequence[Case]) -> list[Found]:
    """Run the rows, those with the same switches and slots in a network namespace of their own."""
    found: dict[int, Found] = {}
    for rig_ in dict.fromkeys(map(_rig_of, rows)):
        own = [at for at, case in enumerate(rows) if _rig_of(case) == rig_]
        # What takes all slots stays: such cases are the last ones.
        own.sort(key=lambda at: (rows[at].way.is_taken, rows[at].mbit))
        numbers = [str(ALL.index(rows[at])) for at in own]
        command = ["unshare", "--net", sys.executable, "-m", "checks.lab.sharing_rows", "--rows", *numbers]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found |= {at: _read(one) for at, one in zip(own, json.loads(done.stdout), strict=True)}
    return [found[at] for at in range(len(rows))]


def _rig_of(case: Case) -> tuple[int, bool, int]:
    """Return racks, whether they add, and shared slots, which a tree has none of."""
    return case.racks, case.way.is_tree, 0 if case.way.is_tree else case.slots


def measure_here(rows: Sequence[Case]) -> Iterator[Found]:
    """Run rows with the same switches and slots in this network namespace."""
    wires.run(["ip", "link", "set", "lo", "up"])
    (racks, is_tree, _), slots = _rig_of(rows[0]), rows[0].slots
    with rig(jobs_=max(len(case.sizes) for case in rows), slots=slots, racks=racks, is_tree=is_tree) as made:
        for case in rows:
            found = made.run(case)
            slowest, where = max(found.ms), "" if racks == 1 else f" in {racks} racks"
            sys.stderr.write(
                f"{len(case.sizes)} jobs{where}, {case.mbit:g} Mbit/s, {case.slots} slots, {case.way.name}: "
                f"{slowest:.1f} ms, {found.taken:.0%} taken, {found.repeats:.2%} repeats, processors {found.idle:.0%} "
                "idle\n"
            )
            yield found


def _read(row: Mapping[str, Any]) -> Found:
    return Found(**{**row, "ms": tuple(row["ms"])})


def trip_delay_s(found: Found, case: Case) -> float:
    """Return the delay of a cable with which a simulated round trip takes as long as a measured one."""
    return max(1e-6, (_trip_us(found) / 1e6 - _sending_s(case)) / (2 * _levels(case)))


def _trip_us(found: Found) -> float:
    return 1e3 * found.ms[0] / (-(-LARGE // (4 * LANES)) + 1)


def _levels(case: Case) -> int:
    return 2 if case.racks > 1 else 1


def _sending_s(case: Case) -> float:
    """Return how long a frame is sent in a round trip: by a link and, between racks, by an uplink, up and down."""
    by_uplink_s = FRAME_BITS / (case.uplink_mbit * 1e6) if case.racks > 1 else 0.0
    return 2 * (FRAME_BITS / (case.mbit * 1e6) + by_uplink_s)


def published(measured: Sequence[Found] | None) -> Iterator[str]:
    """Yield the lines of all tables, with what is simulated beside what was measured; None: nothing was."""
    real: Mapping[Case, Found] = {} if measured is None else dict(zip(ALL, measured, strict=True))
    delays = {
        _delay_of(case): trip_delay_s(real[case], case) if real else DELAY_S for case in (*ALONE, *ALONE_IN_RACKS)
    }
    yield from _rows(real, delays)
    yield ""
    yield _trips(real, delays, ALONE)
    if not real:
        yield "The columns of measured times are empty, because no quiet machine has taken them."
    else:
        yield "Token buckets keep the measured rates. They let ten frames pass at once, which simulated links do not."
    yield ""
    yield "| a job with 8 kB beside three with 400 kB | simulated, ms | of these, ms | measured, ms | processors idle |"
    yield "|---|---|---|---|---|"
    for case in SHORT:
        virtual = simulate(case, delays[_delay_of(case)])
        others = f"{max(virtual.ms[1:]):,.0f}" if virtual.ms[1:] else ""
        name = case.way.name if others else "alone"
        yield f"| {name} | {virtual.ms[0]:.1f} | {others} | {_text(real, case, first=True)} |"
    yield ""
    yield "Jobs in two racks have two ranks in each. Racks forward to the switch that adds, or have a switch of a tree."
    yield "An uplink is as fast as all links of its rack together. Two cores cannot carry the 32 ranks of eight jobs."
    yield ""
    yield from _rack_rows(real, delays)
    yield ""
    yield _trips(real, delays, ALONE_IN_RACKS)


def _delay_of(case: Case) -> tuple[float, int, bool]:
    """Return what cases have in common whose cables have the same delay."""
    return case.mbit, case.racks, case.way.is_tree


def _trips(real: Mapping[Case, Found], delays: Mapping[tuple[float, int, bool], float], cases: Sequence[Case]) -> str:
    """Say how long a job with one slot waits for a round, measured and simulated."""
    trips = []
    for case in sorted(cases, key=lambda case: (-case.mbit, case.way.is_tree)):
        where = f"At {case.mbit:g} Mbit/s{' in a tree' if case.way.is_tree else ''}, a round with one slot takes"
        virtual = f"{1e6 * (_sending_s(case) + 2 * _levels(case) * delays[_delay_of(case)]):.0f} us"
        measured = f"{_trip_us(real[case]):.0f} us, and {virtual} in the simulation" if real else virtual
        trips.append(f"{where} {measured}.")
    return " ".join(trips)


def _rows(real: Mapping[Case, Found], delays: Mapping[tuple[float, int, bool], float]) -> Iterator[str]:
    """Yield the table of one rack."""
    yield "| jobs | slots | each job has | 100 Gbit/s, us | Mbit/s | simulated, ms | measured, ms | processors idle |"
    yield "|---|---|---|---|---|---|---|---|"
    fast = [case for jobs_ in RATES for case in FAST.cases(jobs_, FAST_MBIT)]
    for case, swift in zip(ROWS, fast, strict=True):
        virtual, at_once = simulate(case, delays[_delay_of(case)]), simulate(swift, FAST_DELAY_S)
        kind = f"| {len(case.sizes)} | {'many' if case.slots == SLOW.many else 'few'}"
        yield (
            f"{kind} | {_having(case)} | {1e3 * max(at_once.ms):,.0f} | {case.mbit:g} | {max(virtual.ms):,.0f} "
            f"| {_text(real, case)} |"
        )
        if case.way.is_taken:
            ideal = f"{1e3 * formula_ms(swift):,.0f} | {case.mbit:g} | {formula_ms(case):,.0f}"
            yield f"{kind} | an ideal server (formula) | {ideal} | | |"


def _rack_rows(real: Mapping[Case, Found], delays: Mapping[tuple[float, int, bool], float]) -> Iterator[str]:
    """Yield the table of two racks."""
    yield (
        "| jobs | slots | each job has | 100 Gbit/s, us | up from a rack, MB | Mbit/s | simulated, ms "
        "| measured, ms | processors idle |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    fast = [case for jobs_ in RACK_RATES for case in FAST_RACKS.cases(jobs_, FAST_MBIT)]
    for case, swift in zip(RACK_ROWS, fast, strict=True):
        virtual, at_once = simulate(case, delays[_delay_of(case)]), simulate(swift, FAST_DELAY_S)
        yield (
            f"| {len(case.sizes)} | {'many' if case.slots == SLOW.many else 'few'} | {_having(case)} "
            f"| {1e3 * max(at_once.ms):,.0f} | {at_once.up_mb:,.0f} | {case.mbit:g} | {max(virtual.ms):,.0f} "
            f"| {_text(real, case)} |"
        )


def _text(real: Mapping[Case, Found], case: Case, *, first: bool = False) -> str:
    """Return two cells: what was measured, and how idle the processors were."""
    if case not in real:
        return "|"
    found = real[case]
    ms = f"{found.ms[0]:.1f}" if first else f"{max(found.ms):,.0f}"
    others = f" ({max(found.ms[1:]):,.0f})" if first and found.ms[1:] else ""
    return f"{ms}{others} | {found.idle:.0%}{'' if found.idle >= IDLE else ' (too busy)'}"


def _having(case: Case) -> str:
    if case.way.is_tree:
        return "a part of a tree"
    return "a server" if case.way.is_taken else "shared slots" if case.way.shares else "a part"


def main() -> None:
    """Measure, print the tables, and write records and tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--publish", action="store_true", help="write records and tables, too")
    parser.add_argument(
        "--again", action="store_true", help="write the tables of the last records; without any, what is simulated"
    )
    parser.add_argument("--rows", type=int, nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rows is not None:
        print(json.dumps([asdict(one) for one in measure_here([ALL[at] for at in options.rows])]))
        return
    record: dict[str, Any] = {}
    if not options.again:
        load = os.getloadavg()[0]
        record = {"found": [asdict(one) for one in measure(ALL)], **provenance(load)}
        if options.publish:
            RESULTS.write_text(json.dumps(record, indent=1) + "\n")
    elif RESULTS.exists():
        record = json.loads(RESULTS.read_text())
    lines = [*published([_read(one) for one in record["found"]] if record else None)]
    lines += ["", f"Measured on: {measured_on(record)}."] if record else []
    print(*lines, sep="\n")
    if options.publish or options.again:
        before, rest = PAGE.read_text().split(BEGIN)
        PAGE.write_text("\n".join([before + BEGIN, "", *lines, "", END]) + rest.split(END)[1])
        ages.mark()


if __name__ == "__main__":
    main()

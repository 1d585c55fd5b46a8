"""The figures of docs/sharing.md: what congestion costs with and without marks, and how several jobs share a link.

Run: python -m checks.lab.sharing [--only tree,idle,jobs,beside,silent]   It is simulated, and does not depend on load.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

import numpy as np

from switchsum.topologies import Cable, Network
from switchsum_host.engine.state import Count
from switchsum_lab.simulation import jobs, peers
from switchsum_lab.simulation.conditions import CableConditions, SwitchTiming
from switchsum_lab.simulation.placement import host_address, rails_of
from switchsum_lab.simulation.streams import Receiver, Sender
from switchsum_protocol.frame import FRAME_BYTES, payload_bytes

CABLE: Final = CableConditions(delay_s=5e-6, overhead_bytes=0)
SIZE: Final = 2_000_000
WINDOW: Final = 256
GAINS: Final = {"half at a mark": 0.0, "DCTCP, g = 1/4": 0.25, "DCTCP, g = 1/16": 0.0625}
"""What is taken away at a mark, and the `mark_gain` that does it."""
RUNS: Final = {20.0: 8, 200.0: 8, 1000.0: 4}
"""Runs of a job beside a stream, by Mbit/s of the link."""
MARKS: Final = (10_000, 20_000, 40_000)
LATE_BY_S: Final = 20e-6
"""Frames of jobs that share a link are late by up to half a frame's time at 200 Mbit/s, at random.

Where all take the same time, some jobs find a place in the queue each time, and others never: a job may have twice as
much as another one for ever (Floyd and Jacobson, On Traffic Phase Effects in Packet-Switched Gateways, 1992).
"""


def tree(leaves: int, each: int, *, mbit: float, above_mbit: float) -> Network:
    """Return leaves with so many hosts each, below one root."""
    hosts = tuple(f"h{number}" for number in range(leaves * each))
    cables = [Cable(ends=(host, f"leaf{number // each}"), mbit=mbit) for number, host in enumerate(hosts)]
    cables += [Cable(ends=(f"leaf{number}", "root"), mbit=above_mbit) for number in range(leaves)]
    switches = ("root", *(f"leaf{number}" for number in range(leaves)))
    return Network(switches=switches, hosts=hosts, cables=tuple(cables))


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How a job went, with the queue of the busiest port."""

    seconds: float
    dropped: int
    marked: int
    repeats: int
    longest_bytes: int


def add(planned: Network, link: CableConditions, size: int, *, window: int = WINDOW, gain: float = 0.25) -> Run:
    """Add arrays on all hosts; raises SystemExit for a wrong sum."""
    network = jobs.build(planned, link, lanes=256, seed=1)
    job = jobs.Job(network, planned, planned.hosts, link, lanes=256, window_slots=window, mark_gain=gain)
    arrays = [np.full(size // 4, rank + 1, np.float32) for rank in range(len(planned.hosts))]
    ended = job.allreduce(arrays, until_s=60.0)
    total = sum(range(1, len(arrays) + 1))
    if not ended.is_complete or not all((array == total).all() for array in arrays):
        raise SystemExit("a sum is wrong, or did not come")
    links = network.links.values()
    return Run(
        seconds=ended.seconds,
        dropped=sum(one.dropped for one in links),
        marked=sum(one.marked for one in links),
        repeats=job.repeats,
        longest_bytes=max(one.most_queued_bytes for one in links),
    )


def tree_rows() -> Iterator[str]:
    """Yield the table of a tree of 4 x 4 workers at 200 Mbit/s, whose uplinks carry half of that."""
    planned = tree(4, 4, mbit=200.0, above_mbit=100.0)
    yield "| queues | marks from | at a mark | ms | dropped | repeats | longest queue, bytes |"
    yield "|---|---|---|---|---|---|---|"
    plain = {"1 MB": 1_000_000, "100 kB": 100_000}
    for name, queue in plain.items():
        yield _tree_row(name, "", "", add(planned, replace(CABLE, queue_bytes=queue), SIZE))
    for mark in (10_000, 20_000, 40_000):
        for rule, gain in GAINS.items():
            link = replace(CABLE, queue_bytes=plain["100 kB"], mark_bytes=mark)
            yield _tree_row("100 kB", f"{mark // 1000} kB", rule, add(planned, link, SIZE, gain=gain))


def _tree_row(queue: str, mark: str, rule: str, run: Run) -> str:
    cells = f"{1e3 * run.seconds:.1f} | {run.dropped:,} | {run.repeats:,} | {run.longest_bytes:,}"
    return f"| {queue} | {mark} | {rule} | {cells} |"


def idle_rows() -> Iterator[str]:
    """Yield what marks cost where nothing is congested: a star, its ports marking from 20 kB on, and not."""
    planned = Network(
        switches=("s1",),
        hosts=("h0", "h1", "h2", "h3"),
        cables=tuple(Cable(ends=(f"h{number}", "s1"), mbit=200.0) for number in range(4)),
    )
    yield "| links of 200 Mbit/s, one job | ms | marked |"
    yield "|---|---|---|"
    for name, mark in (("no marks", None), ("marks from 20 kB", 20_000)):
        run = add(planned, replace(CABLE, mark_bytes=mark), SIZE)
        yield f"| {name} | {1e3 * run.seconds:.2f} | {run.marked} |"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """What each of several jobs had of a link in the same time."""

    mbit: tuple[float, ...]
    """Of lanes."""
    dropped: float
    """Part of the frames."""
    marked: int
    """Results that told a first worker of marks."""

    @property
    def furthest(self) -> float:
        """By how much the job with the furthest share is away from an equal one."""
        mean = sum(self.mbit) / len(self.mbit)
        return max(abs(one / mean - 1) for one in self.mbit)


def share(
    count: int,
    seconds: float,
    *,
    gain: float = 0.25,
    mark_bytes: int | None = 20_000,
    frames: int = 64,
    timing: SwitchTiming = jobs.TIMING,
    delay_s: float = CABLE.delay_s,
    late_by_s: float = LATE_BY_S,
) -> Shares:
    """Let jobs of two workers each share the links of two leaves to the root, whose queues hold so many frames.

    The links mark frames; with `SwitchTiming()` and without `mark_bytes` the program does.  Each frame is late by a
    random time, up to `late_by_s`, or jobs fall into step (`LATE_BY_S`).
    """
    planned = tree(2, count, mbit=200.0, above_mbit=200.0)
    link = replace(CABLE, delay_s=delay_s, queue_frames=frames, mark_bytes=mark_bytes, late=1.0, late_by_s=late_by_s)
    network = jobs.build(planned, link, lanes=256, seed=1, timing=timing)
    window = min(jobs.SLOTS // count, 64)

    def job(number: int) -> jobs.Job:
        hosts = [f"h{number}", f"h{count + number}"]
        return jobs.Job(
            *(network, planned, hosts, link),
            lanes=256,
            window_slots=window,
            share=jobs.Share(number=number, first_slot=window * number, first_host=2 * number),
            mark_gain=gain,
        )

    made = [job(number) for number in range(count)]
    warm = seconds / 5
    size = int(2.5 * 200e6 / 8 / count * (seconds + warm))  # so that no job comes to its end
    for one in made:
        one.begin([np.ones(size // 4, np.float32)] * 2)
    network.run(warm)
    before = [int(one.workers[0].engine.counts[Count.ROUNDS]) for one in made]
    moved, lost = network.world.frames_moved, sum(link.dropped for link in network.links.values())
    network.run(warm + seconds)
    rounds = [int(one.workers[0].engine.counts[Count.ROUNDS]) - was for one, was in zip(made, before, strict=True)]
    lost = sum(link.dropped for link in network.links.values()) - lost
    moved = network.world.frames_moved - moved + lost
    return Shares(
        mbit=tuple(one * 8192 / seconds / 1e6 for one in rounds),
        dropped=lost / moved,
        marked=sum(int(one.workers[0].engine.counts[Count.MARKED]) for one in made),
    )


def jobs_rows(seconds: float) -> Iterator[str]:
    """Yield how jobs share links of 200 Mbit/s, with queues of 64 frames."""
    yield "| jobs | marks | at a mark | together, Mbit/s | furthest from an equal share | dropped |"
    yield "|---|---|---|---|---|---|"
    for count in (2, 4, 8, 16):
        for rule, gain in (("", None), *GAINS.items()):
            mark = None if gain is None else 20_000
            found = share(count, seconds, gain=gain or 0.0, mark_bytes=mark)
            cells = f"{sum(found.mbit):.1f} | {found.furthest:.1%} | {found.dropped:.3%}"
            yield f"| {count} | {'none' if mark is None else 'from 20 kB'} | {rule} | {cells} |"


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What a job and a stream such as TCP's had of a link in the same time, in Mbit/s, headers counted."""

    job: float
    stream: float
    repeats: int
    """Frames that the job's workers have sent again."""


def beside(
    seconds: float,
    *,
    obeys: bool,
    gain: float = 0.25,
    mark_bytes: int | None = 20_000,
    frames: int = 64,
    warm: float = 2.0,
    head_start: float = 0.0,
    loss_cut: float = 0.0,
    mbit: float = 200.0,
    delay_s: float = CABLE.delay_s,
) -> Beside:
    """Let a job of two workers share a link with a stream, which obeys marks or does not.

    The stream begins `head_start` seconds after the job; both are counted from `warm` on.
    """
    planned = tree(2, 2, mbit=5 * mbit, above_mbit=mbit)
    link = replace(CABLE, queue_frames=frames, mark_bytes=mark_bytes, delay_s=delay_s)
    network = jobs.build(planned, link, lanes=256, seed=1)
    job = jobs.Job(
        network, planned, ["h0", "h2"], link, lanes=256, window_slots=WINDOW, mark_gain=gain, loss_cut=loss_cut
    )
    near, far = host_address(0), host_address(1)
    sender, [cables] = Sender(near, far, obeys=obeys), rails_of(planned, ["h1", "h3"], jobs.SLOTS)
    number = network.native_host("h1", sender)
    network.native_host("h3", Receiver(far, near))
    for cable in cables.values():
        jobs.attach(network, cable, link)
    peers.write_routes(network, ["h1", "h3"])
    network.world.wake(number, head_start)
    job.begin([np.ones(int(mbit * 1e6 / 8 * (seconds + warm)) // 4, np.float32)] * 2)
    network.run(warm)
    counts, sent = job.workers[0].engine.counts, sender.bytes
    rounds, repeats = int(counts[Count.ROUNDS]), job.repeats
    network.run(warm + seconds)
    moved = (int(counts[Count.ROUNDS]) - rounds) * (FRAME_BYTES + payload_bytes(256))
    return Beside(
        job=8 * moved / seconds / 1e6,
        stream=8 * (sender.bytes - sent) / seconds / 1e6,
        repeats=job.repeats - repeats,
    )


def beside_rows() -> Iterator[str]:
    """Yield a job's part of a link beside a stream, in percent: the mean, the least and the most of some runs."""
    yield "| Mbit/s | marks from | beside one that obeys them | beside one that ignores them |"
    yield "|---|---|---|---|"
    for (mbit, runs), mark in product(RUNS.items(), MARKS):
        cells = [_parts(mbit, runs, obeys=obeys, mark_bytes=mark) for obeys in (True, False)]
        yield f"| {mbit:,.0f} | {mark // 1000} kB | {' | '.join(cells)} |"


def _parts(mbit: float, runs: int, *, obeys: bool, mark_bytes: int) -> str:
    """Let a job and a stream share a link so often.

    Runs differ in the queue's length, in when the stream begins and in the cables, for without jitter frames meet a
    queue in one order for ever.
    """
    # Through a queue as long as its mark, or full.
    trip, trips = (8 * mark_bytes / mbit / 1e6, 800) if obeys else (8 * 64 * 1300 / mbit / 1e6, 560)
    found = [
        beside(
            trips * trip,
            warm=0.6 * trips * trip,
            head_start=0.37 * number * trip,
            mbit=mbit,
            obeys=obeys,
            mark_bytes=mark_bytes,
            frames=56 + 3 * number,
            delay_s=CABLE.delay_s * (1 + 0.13 * number),
        )
        for number in range(runs)
    ]
    parts = [100 * one.job / mbit for one in found]
    return f"{sum(parts) / runs:.0f} ({min(parts):.0f} to {max(parts):.0f})"


def silent_rows(seconds: float) -> Iterator[str]:
    """Yield how a job and a stream share a link of 200 Mbit/s whose queue drops from 64 frames on and marks nothing."""
    yield "| a loss takes | job, Mbit/s | stream, Mbit/s | repeats |"
    yield "|---|---|---|---|"
    for loss_cut in (0.3, 0.0, 0.5):
        found = beside(seconds, obeys=False, mark_bytes=None, loss_cut=loss_cut)
        yield f"| {loss_cut:.0%} | {found.job:.1f} | {found.stream:.1f} | {found.repeats} |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="tree,idle,jobs,beside,silent")
    parser.add_argument("--seconds", type=float, default=10.0, help="of virtual time, in which jobs share a link")
    options = parser.parse_args()
    tables = {"tree": tree_rows(), "idle": idle_rows()}
    tables |= {"jobs": jobs_rows(options.seconds), "beside": beside_rows(), "silent": silent_rows(options.seconds)}
    for name in options.only.split(","):
        for line in tables[name]:
            print(line, flush=True)
        print()


if __name__ == "__main__":
    main()

"""Do compressed trainings learn: `python -m checks.lab.convergence` trains, `--times` measures, `--publish` writes.

Four small models, three seeds, each way of averaging gradients.  One process plays four ranks: it computes the ranks'
gradients one after the other, and threads exchange them through workers' engines and a switch (ours), or around gloo's
ring, added as gloo adds.  So what is learned is what ranks on machines of their own would learn, bit for bit, and how
busy this machine is changes none of it; bytes are counted.

How long a step takes is measured apart, with real ranks on real links (`checks.lab.convergence_times`; root): that
wants a quiet machine.  Both are kept in a file; what has been trained is not trained again.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from checks.bench import ages
from checks.bench.code import digests
from checks.lab.convergence_results import RANKS, RESULTS, Results, say
from checks.lab.convergence_tasks import TASKS, Played, Task
from checks.lab.convergence_times import RATES, Measured, measure
from checks.lab.convergence_ways import ALL_OF, WAYS, Ring, RingRank, Way, ways_of
from switchsum.testing.cluster import ClusterConfig
from switchsum.testing.local import communicators
from switchsum_host.api.communicator import Communicator

LANES: Final = 2048
"""32-bit lanes in a frame, of an MTU of 9,000."""
SEEDS: Final = (1, 2, 3)
QUICK_STEPS: Final = 12


def train(task: Task, way: Way, seed: int, steps: int, ranks: int = RANKS) -> dict[str, Any]:
    """Train; return the losses, the bytes of a step each way, and the accuracy in the end where there is one."""
    played = Played(task, seed, ranks)
    if way.own_momentum:
        played.without_momentum()
    communicators = _communicators(way, ranks)
    averages = [way.make() for _ in communicators]
    losses = []
    with ThreadPoolExecutor(ranks) as pool:
        for _ in range(steps):
            gradients, loss = played.gradients()
            losses.append(round(loss, 4))
            means = list(
                pool.map(
                    lambda rank, given=gradients: averages[rank](communicators[rank], played.parts, given[rank]),
                    range(ranks),
                )
            )
            played.step(means[0])
    up, down = moved(communicators[0])
    for comm in communicators:
        if isinstance(comm, Communicator):
            comm.close()
    run = {"losses": losses, "up": up / steps, "down": down / steps, "parameters": played.size}
    accuracy = played.accuracy
    return run if accuracy is None else {**run, "accuracy": round(accuracy, 4)}


def _communicators(way: Way, ranks: int) -> list[Any]:
    """Return what each rank reaches the others through."""
    if way.is_ring:
        ring = Ring(ranks)
        return [RingRank(ring, rank, ranks) for rank in range(ranks)]
    config = ClusterConfig(workers=ranks, lanes_per_frame=LANES, window_slots=32, timeout_s=600)
    return list(communicators(ranks, config=config))


def moved(comm: Any) -> tuple[float, float]:
    """Return how many bytes a rank has sent and received, without frames that were repeated for a busy machine."""
    if isinstance(comm, RingRank):
        return comm.moved, comm.moved
    counts = comm.statistics()
    once = 1 - counts.repeats / max(1, counts.frames_sent)
    again = counts.held + counts.duplicate_frames + counts.stale_frames
    return counts.bytes_sent * once, counts.bytes_received * (1 - again / max(1, counts.frames_received))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is to be trained and measured."""

    tasks: Sequence[str]
    ways: Sequence[str]
    seeds: Sequence[int]
    steps: int | None = None
    """Of each training; None: as many as the page has."""
    again: bool = False
    """Whether also what has been trained already."""


def train_all(asked: Asked, path: Path = RESULTS) -> None:
    """Train what has not been trained; seeds come last, so that there is one of everything soon."""
    results = Results.read(path)
    for seed in asked.seeds:
        for task in asked.tasks:
            for way in (name for name in ways_of(task) if name in asked.ways):
                name, count = f"{task}/{way}/{seed}", asked.steps or TASKS[task].steps
                if not asked.again and len(results.trained.get(name, {}).get("losses", ())) == count:
                    continue
                run = results.trained[name] = {**train(TASKS[task], WAYS[way], seed, count), "code": digests()}
                results.write(path)
                say(f"{name}: loss {np.mean(run['losses'][-10:]):.3f}, {run['down'] / 1e3:.0f} kB a step")


def quick(with_times: bool) -> None:
    """See whether everything runs: train and measure a little, and keep nothing of it."""
    with tempfile.TemporaryDirectory(prefix="switchsum-bench-") as scratch:
        path = Path(scratch, "results.json")
        train_all(Asked(tasks=(ALL_OF,), ways=("gloo", "int16", "topk:0.01"), seeds=(1,), steps=QUICK_STEPS), path)
        if with_times:
            for line in measure(Measured(tasks=(ALL_OF,), rates=tuple(RATES)[:1], rounds=1, steps=2), path):
                say(line)


def slow(options: argparse.Namespace) -> list[str]:
    """Train in the ways for slow links, or measure steps, and publish; return a line for what has failed."""
    from checks.lab import slow_links

    failed: list[str] = []
    if options.times:
        rates = options.rates or slow_links.MEASURED
        failed = slow_links.measure_slow(options.tasks, rates, again=options.again, minutes=options.minutes)
    else:
        slow_links.train_slow(options.tasks, options.seeds, options.steps, again=options.again)
    if options.publish:
        slow_links.publish(Results.read(), Results.read(slow_links.KEPT))
        ages.mark()
    return failed


def main() -> int:
    """Train or measure, and publish; returns 1 where something could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m checks.lab.convergence", description=__doc__)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=tuple(TASKS))
    parser.add_argument(
        "--ways", nargs="+", choices=WAYS, default=tuple(WAYS), help="to train (default: all of a task)"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--steps", type=int, help="of each training (default: as many as the page has)")
    parser.add_argument("--again", action="store_true", help="train, or measure, also what has been")
    parser.add_argument("--times", action="store_true", help="measure steps in place of training (root)")
    parser.add_argument("--rates", nargs="+", help="of the links of --times, as 50mbit (default: those of the page)")
    parser.add_argument("--minutes", type=float, help="of --slow --times: begin nothing that is likely to end later")
    parser.add_argument(
        "--publish", action="store_true", help="write docs/results/convergence.md and its plots afterwards"
    )
    parser.add_argument(
        "--slow", action="store_true", help="ways for slow links, and docs/results/slow-links.md with --publish"
    )
    parser.add_argument("--quick", action="store_true", help="only see that it runs, and keep nothing")
    options = parser.parse_args()
    failed: list[str] = []
    if options.quick:
        quick(options.times)
        return 0
    if options.slow:
        failed = slow(options)
    elif options.times:
        failed = measure(Measured(tasks=options.tasks, rates=options.rates or tuple(RATES)), RESULTS)
    else:
        names = {name: getattr(options, name) for name in ("tasks", "ways", "seeds", "steps", "again")}
        train_all(Asked(**names))
    if options.publish and not options.slow:
        from checks.lab.convergence_page import publish

        publish(Results.read())
        ages.mark()
    for line in failed:
        say(line)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""One rank of real trainings on slow links: milliseconds of a step in each way of a backend.

`python -m checks.lab.slow_worker BACKEND STEPS PATH TASK WAY...`: rank 0 writes JSON after each way.  A way that
synchronises every so many steps is timed over as many, twice, and a step's time is the mean.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Final

import torch.distributed as dist

from checks.lab.convergence_tasks import TASKS, Task
from checks.lab.convergence_ways import ALONE_OVER, WAYS
from checks.lab.convergence_worker import ALONE_WAY, Timed, measure, step, timed
from checks.lab.outer_ways import OUTER, WARM_UP, OuterWay

TURNS: Final = 2
"""Of outer steps of every fragment; those before them do not count."""


def timed_outer(task: Task, way: OuterWay) -> list[float]:
    """Train with real ranks; return a step's mean milliseconds in each turn of outer steps."""
    training = task.make(1, dist.get_world_size())
    synchronised = way.make(training.model, training.optimizer, dist.group.WORLD)
    before = -(-WARM_UP // way.every) if way.has_warm_up else 1
    times = []
    for turn in range(before + TURNS):
        dist.barrier()
        begun = time.perf_counter()
        for _ in range(way.every):
            step(training, training.model)
        if turn >= before:
            times.append(round((time.perf_counter() - begun) * 1e3 / way.every, 3))
    synchronised.finish()
    return times


def job(task: Task, name: str, steps: int) -> Timed:
    """Return what times a task in a way."""
    if name in OUTER:
        return partial(timed_outer, task, OUTER[name])
    return partial(timed, task, ALONE_WAY if name in ALONE_OVER.values() else WAYS[name], steps)


def main() -> None:
    """Time a task in all ways that are named."""
    backend, steps, path, task, *names = sys.argv[1:]
    measure(backend, path, {(task, name): job(TASKS[task], name, int(steps)) for name in names})


if __name__ == "__main__":
    main()

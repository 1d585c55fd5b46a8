"""One rank of real trainings on slow links: milliseconds of a step in each way of a backend.

`python -m checks.lab.slow_worker BACKEND STEPS PATH TASK...`: rank 0 writes JSON, by task and way, after each way.  A
way that synchronises every so many steps is timed over as many, twice, and a step's time is the mean.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from checks.lab.convergence_tasks import TASKS, Task
from checks.lab.convergence_ways import WAYS
from checks.lab.convergence_worker import timed
from checks.lab.outer_ways import OUTER, OuterWay
from checks.lab.slow_links import EVERY_STEP

TURNS = 2
"""Of outer steps of every fragment; one more, before them, does not count."""


def timed_outer(task: Task, way: OuterWay) -> list[float]:
    """Train with real ranks; return a step's mean milliseconds in each turn of outer steps."""
    training = task.make(1, dist.get_world_size())
    way.make(training.model, training.optimizer, dist.group.WORLD)
    times = []
    for turn in range(1 + TURNS):
        dist.barrier()
        begun = time.perf_counter()
        for _ in range(way.every):
            training.optimizer.zero_grad()
            training.loss(training.model, dist.get_rank()).backward()
            training.optimizer.step()
        if turn:
            times.append(round((time.perf_counter() - begun) * 1e3 / way.every, 3))
    return times


def main() -> None:
    """Time all ways of a backend."""
    backend, steps, path, *tasks = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group(backend)
    is_ring = backend == "gloo"
    found: dict[str, dict[str, list[float]]] = {task: {} for task in tasks}
    for task in tasks:
        for name in (*EVERY_STEP, *OUTER):
            if (OUTER[name] if name in OUTER else WAYS[name]).is_ring != is_ring:
                continue
            outer = OUTER.get(name)
            found[task][name] = timed_outer(TASKS[task], outer) if outer else timed(TASKS[task], WAYS[name], int(steps))
            dist.barrier()
            if dist.get_rank() == 0:
                Path(path).write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

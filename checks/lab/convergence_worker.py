"""One rank of the comparison's real trainings: steps of DistributedDataParallel in each way of a backend, timed.

`python -m checks.lab.convergence_worker BACKEND STEPS PATH TASK...`: rank 0 writes milliseconds as JSON, by task and
way, after each way: what comes before a failure is kept.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from checks.bench.train_worker import without_communication
from checks.lab.convergence_tasks import TASKS, Task, Training, drop_momentum
from checks.lab.convergence_ways import ALONE, WAYS, Way, ways_of

WARM_UP: Final = 4
"""Steps that do not count: buckets are laid out anew after the first, and torch's PowerSGD begins with the third."""


ALONE_WAY: Final = Way(
    make=lambda: lambda comm, parts, values: values,
    attach=lambda model: model.register_comm_hook(None, without_communication),
)
"""No communication."""


def ways(task: str, backend: str) -> dict[str, Way]:
    """Return those of a task and backend."""
    is_ring = backend == "gloo"
    own = {name: WAYS[name] for name in ways_of(task) if WAYS[name].is_ring == is_ring}
    return own if is_ring else {ALONE: ALONE_WAY, **own}


def timed(task: Task, way: Way, steps: int) -> list[float]:
    """Train for some steps with real ranks; return the milliseconds of each."""
    training = task.make(1, dist.get_world_size())
    if way.own_momentum:
        drop_momentum(training.optimizer)
    model = DistributedDataParallel(training.model, bucket_cap_mb=way.bucket_mb)
    way.attach(model)
    times: list[float] = []
    for done in range(WARM_UP + steps):
        if done == WARM_UP:
            dist.barrier()
            times.append(time.perf_counter())
        step(training, model)
        if times:
            times.append(time.perf_counter())
    return [round((end - begin) * 1e3, 3) for begin, end in pairwise(times)]


def step(training: Training, model: Any) -> None:
    """Take a step on this rank's next batch."""
    training.optimizer.zero_grad()
    training.loss(model, dist.get_rank()).backward()
    training.optimizer.step()


Timed = Callable[[], list[float]]
"""Trains in one way; returns milliseconds of steps."""


def measure(backend: str, path: str, jobs: Mapping[tuple[str, str], Timed]) -> None:
    """Measure, by task and way."""
    dist.init_process_group(backend)
    found: dict[str, dict[str, list[float]]] = {}
    for (task, way), job in jobs.items():
        found.setdefault(task, {})[way] = job()
        dist.barrier()
        if dist.get_rank() == 0:
            Path(path).write_text(json.dumps(found))
    dist.destroy_process_group()


def main() -> None:
    """Measure all tasks in all ways of a backend."""
    backend, steps, path, *tasks = sys.argv[1:]
    jobs = {
        (task, name): partial(timed, TASKS[task], way, int(steps))
        for task in tasks
        for name, way in ways(task, backend).items()
    }
    measure(backend, path, jobs)


if __name__ == "__main__":
    main()

"""One rank that times PyTorch's calls: `python -m checks.bench.start_torch_worker BACKEND FILE`, under torchrun."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

CALLS = 100
"""Of each small collective, whose mean is taken."""


def main(backend: str, path: str) -> None:
    """Write the seconds of each call of rank 0 to a file."""
    began = time.perf_counter()
    dist.init_process_group(backend)
    values = torch.ones(4)
    dist.all_reduce(values)
    taken = {"first-sum": time.perf_counter() - began}
    rank, size = dist.get_rank(), dist.get_world_size()
    many, objects = torch.ones(25_000), list[Any]([None] * size)
    taken["sum-16B"] = _each(lambda: dist.all_reduce(values))
    taken["broadcast-100kB"] = _each(lambda: dist.broadcast(many, 0))
    taken["barrier"] = _each(dist.barrier)
    taken["gather-object"] = _each(lambda: dist.all_gather_object(objects, {"rank": rank}))

    began = time.perf_counter()
    group = dist.new_group([0, 1])
    if rank in (0, 1):
        dist.all_reduce(values, group=group)
    taken["group"] = time.perf_counter() - began
    dist.barrier()

    began = time.perf_counter()
    dist.destroy_process_group()
    taken["end"] = time.perf_counter() - began
    if rank == 0:
        Path(path).write_text(json.dumps(taken))


def _each(call: Callable[[], object]) -> float:
    """Return the seconds that a call takes on average, after a few."""
    for _ in range(5):
        call()
    dist.barrier()
    began = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - began) / CALLS


if __name__ == "__main__":
    main(*sys.argv[1:])

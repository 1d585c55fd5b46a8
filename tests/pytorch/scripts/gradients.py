"""Lanes of the environment in trainings: of DDP's, with and without a rank that has no batches left, and of FSDP's."""

from __future__ import annotations

import os
from typing import Any

os.environ["SWITCHSUM_LANES"] = "int16"

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from switchsum.torch.group import SwitchGroup

seen: list[str | None] = []
"""What sums were asked to travel as."""
_asked = SwitchGroup._asked


def noting(group: SwitchGroup) -> str | None:
    """Take note of what a sum is asked to travel as."""
    seen.append(_asked(group))
    return seen[-1]


def train(model: Any, steps: int) -> None:
    """Take some steps."""
    for _ in range(steps):
        model(torch.randn(4, 100)).square().mean().backward()


def main() -> None:
    """Each kind of training has its gradients, and nothing else, in narrow lanes."""
    rank = dist.get_rank()
    dist.all_reduce(torch.ones(10_000))
    assert seen == [None], seen
    seen.clear()
    model = DistributedDataParallel(torch.nn.Linear(100, 100))
    train(model, 2)
    assert {*seen, "int16"} == {"int16"}, seen
    assert seen
    seen.clear()
    with model.join():
        train(model, 2 + rank)
    assert "int16" in seen, seen
    if rank == 0:  # what it does for the other one's last step
        assert seen.count("int16") == 3, seen
    seen.clear()
    static = DistributedDataParallel(torch.nn.Linear(100, 100), static_graph=True)
    seen.clear()
    train(static, 2)
    assert {*seen, "int16"} == {"int16"}, seen
    assert seen
    seen.clear()
    sharded = torch.nn.Sequential(torch.nn.Linear(100, 100), torch.nn.Linear(100, 10))
    fully_shard(sharded, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    train(sharded, 2)
    assert {*seen, "int16"} == {"int16"}, seen
    assert seen
    print("told apart", flush=True)


if __name__ == "__main__":
    SwitchGroup._asked = noting  # type: ignore[assignment,method-assign]
    dist.init_process_group("switchsum")
    main()
    dist.destroy_process_group()

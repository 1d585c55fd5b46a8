"""Lanes of a model's gradients: DDP's, with and without a rank that has no batches left, FSDP's and FSDP2's."""

from __future__ import annotations

import os
from typing import Any

os.environ.pop("SWITCHSUM_LANES", None)

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

import switchsum.torch
from switchsum.torch.group import SwitchGroup

seen: list[str | None] = []
"""What sums were asked to travel as."""
_asked = SwitchGroup._asked


def noting(group: SwitchGroup) -> str | None:
    """Take note of what a sum is asked to travel as."""
    seen.append(_asked(group))
    return seen[-1]


def own_sum(*_: object) -> None:
    """Sum something that is no gradient, in the midst of a backward pass."""
    dist.all_reduce(torch.ones(10_000))


def train(model: Any, steps: int) -> None:
    """Take some steps; each has a sum of its own in its backward pass."""
    for _ in range(steps):
        out = model(torch.randn(4, 100))
        out.register_hook(own_sum)
        out.square().mean().backward()


def check(model: Any, steps: int = 2) -> None:
    """Train, and see that gradients are in narrow lanes, and sums beside them are not."""
    seen.clear()
    train(model, steps)
    assert seen.count(None) >= steps, seen  # a static graph's first step has one of integers beside
    assert seen.count("int16") >= steps, seen
    assert {*seen} == {"int16", None}, seen


def ours(model: Any) -> Any:
    """Give the model's gradients narrow lanes."""
    switchsum.torch.gradient_lanes(model, "int16")
    return model


def same_gradients(one: Any, other: Any) -> None:
    """See that two models of the same weights have the same gradients, but for rounding."""
    torch.manual_seed(dist.get_rank())
    batch = torch.randn(4, 100)
    for model in (one, other):
        model.zero_grad()
        model(batch).square().mean().backward()
    for own, wanted in zip(one.parameters(), other.parameters(), strict=True):
        assert own.grad is not None
        assert wanted.grad is not None
        found, expected = (getattr(x.grad, "_local_tensor", x.grad) for x in (own, wanted))
        assert (found - expected).norm() <= 1e-3 * expected.norm()


def layers(seed: int = 1) -> Any:
    """Return a small model, the same on all ranks."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(100, 100), torch.nn.Linear(100, 10))


def sharded() -> Any:
    """Return a model that `fully_shard` has divided."""
    model, mesh = layers(), init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def main() -> None:
    """Each kind of training has its gradients, and nothing else, in narrow lanes."""
    rank = dist.get_rank()
    model = ours(DistributedDataParallel(layers()))
    check(model)
    same_gradients(model, DistributedDataParallel(layers()))
    seen.clear()
    with model.join():
        for _ in range(2 + rank):
            model(torch.randn(4, 100)).square().mean().backward()
    if rank == 0:  # what it does for the other one's last step
        assert seen.count("int16") == 3, seen
    check(ours(DistributedDataParallel(layers(), static_graph=True)))
    whole = ours(sharded())
    check(whole)
    same_gradients(whole, sharded())
    older = ours(FullyShardedDataParallel(layers(), device_id=torch.device("cpu")))
    check(older)
    same_gradients(older, FullyShardedDataParallel(layers(), device_id=torch.device("cpu")))
    with pytest.raises(switchsum.UsageError, match="already has a communication hook"):
        ours(model)
    print("gradients alone", flush=True)


if __name__ == "__main__":
    SwitchGroup._asked = noting  # type: ignore[assignment,method-assign]
    dist.init_process_group("switchsum")
    main()
    dist.destroy_process_group()

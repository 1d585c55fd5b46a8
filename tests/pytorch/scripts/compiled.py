"""DistributedDataParallel and torch.compile, one around the other, and in place."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def gradients(how: str) -> list[torch.Tensor]:
    """Return what two steps leave in a model's gradients."""
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    model = DistributedDataParallel(plain)
    if how == "around":
        model = torch.compile(model, backend="eager")
    elif how == "in place":
        model.compile(backend="eager")
    torch.manual_seed(dist.get_rank())
    for _ in range(2):
        model(torch.randn(4, 8)).square().sum().backward()
    return [parameter.grad for parameter in plain.parameters()]


if __name__ == "__main__":
    dist.init_process_group("switchsum")
    expected = gradients("not")
    for way in ("around", "in place"):
        assert all(map(torch.equal, gradients(way), expected)), way
    print("compiled", flush=True)
    dist.destroy_process_group()

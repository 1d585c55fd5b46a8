"""A training in virtual time: DistributedDataParallel and collectives of `torch.distributed` on a simulated network."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Train for some steps, and add; every rank prints what it has."""
    dist.init_process_group("switchsum")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    summed = torch.full((100_000,), rank + 1.0)
    dist.all_reduce(summed)
    assert torch.equal(summed, torch.full_like(summed, ranks * (ranks + 1) / 2))
    torch.manual_seed(rank)
    model = DistributedDataParallel(nn.Linear(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
    parameters = torch.cat([value.detach().reshape(-1) for value in model.parameters()])
    print(f"parameters {parameters.double().sum().item():.12f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

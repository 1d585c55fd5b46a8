"""Layers that wait for their own gradients only, in the next forward pass, beside DistributedDataParallel."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from switchsum.torch import Scheduled

STEPS = 6


def network() -> nn.Sequential:
    """Return the same model every time."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(40, 300), nn.ReLU(), nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 4))


def loss(model: nn.Module, step: int) -> torch.Tensor:
    """Return the loss of a rank's batch."""
    generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
    return model(torch.randn(16, 40, generator=generator)).square().mean()


def main() -> None:
    """Train the same model in both ways."""
    dist.init_process_group("switchsum")
    parallel = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(parallel.parameters(), 0.05, momentum=0.9)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss(parallel, step).backward()
        optimizer.step()
    model = network()
    scheduled = Scheduled(model, lambda parameters: torch.optim.SGD(parameters, 0.05, momentum=0.9))
    assert [layer.urgent for layer in scheduled.layers] == [True, True, False]
    for step in range(STEPS):
        loss(model, step).backward()
    scheduled.finish()
    for one, other in zip(parallel.module.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one, other)
    if dist.get_rank() == 0:
        print("the same parameters", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

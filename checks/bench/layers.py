"""Equal layers whose forward pass takes about as long as their gradients on a slow link."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH = 384
LAYERS = 6
BATCH = 512
SMALL_BATCH = 64
"""So few that a step waits for gradients most of the time."""
RATE = 0.01


def network(width: int = WIDTH) -> nn.Sequential:
    """Return the same model on every rank."""
    torch.manual_seed(1)
    return nn.Sequential(*(one for _ in range(LAYERS) for one in (nn.Linear(width, width), nn.ReLU())))


def batch(size: int = BATCH, width: int = WIDTH) -> torch.Tensor:
    """Return a rank's batch."""
    return torch.randn(size, width, generator=torch.Generator().manual_seed(dist.get_rank()))


def train(steps: int, size: int = BATCH) -> Iterator[float]:
    """Yield the losses with DistributedDataParallel, of batches of a size."""
    model = DistributedDataParallel(network(), bucket_cap_mb=1)
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    data = batch(size)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (model(data) - data).square().mean()
        loss.backward()
        optimizer.step()
        yield loss.item()
    yield 0.0


def train_scheduled(steps: int) -> Iterator[float]:
    """Yield the losses where each layer waits for its own gradients in the next forward pass."""
    from switchsum.torch import Scheduled

    model = network()
    training = Scheduled(model, lambda parameters: torch.optim.SGD(parameters, RATE))
    data = batch()
    for _ in range(steps):
        loss = (model(data) - data).square().mean()
        loss.backward()
        yield loss.item()
    training.finish()
    yield 0.0

"""Layers that wait for their own gradients only, in the next forward pass, beside DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Callable

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


class Tied(nn.Module):
    """A language model whose last layer, defined first, has the embedding's weights."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(24, 50, bias=False)
        self.between = nn.Linear(24, 24)
        self.embedding = nn.Embedding(50, 24)
        self.embedding.weight = self.last.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return scores of the words that follow."""
        return self.last(torch.tanh(self.between(self.embedding(words))))


def tied() -> nn.Module:
    """Return the same model every time."""
    torch.manual_seed(4)
    return Tied()


def loss(model: nn.Module, step: int) -> torch.Tensor:
    """Return the loss of a rank's batch."""
    generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
    return model(torch.randn(16, 40, generator=generator)).square().mean()


def loss_of_words(model: nn.Module, step: int) -> torch.Tensor:
    """Return the loss of a rank's words."""
    generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
    words = torch.randint(50, (16, 9), generator=generator)
    return nn.functional.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())


def both(make: Callable[[], nn.Module], loss: Callable[[nn.Module, int], torch.Tensor], rate: float) -> Scheduled:
    """Train the same model in both ways, and compare."""
    parallel = DistributedDataParallel(make())
    optimizer = torch.optim.SGD(parallel.parameters(), rate, momentum=0.9)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss(parallel, step).backward()
        optimizer.step()
    model = make()
    scheduled = Scheduled(model, lambda parameters: torch.optim.SGD(parameters, rate, momentum=0.9))
    for step in range(STEPS):
        loss(model, step).backward()
    scheduled.finish()
    for one, other in zip(parallel.module.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one, other)
    return scheduled


def main() -> None:
    """Train each model."""
    dist.init_process_group("switchsum")
    assert len(both(network, loss, 0.05).layers) == 3
    if dist.get_rank() == 0:
        print("the same parameters", flush=True)
    # Steps so large that weights of the step before show.
    both(tied, loss_of_words, 1.0)
    if dist.get_rank() == 0:
        print("the same tied parameters", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

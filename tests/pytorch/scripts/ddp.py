"""An ordinary DistributedDataParallel script: nothing in it but the name of the backend tells where sums are made."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Model(nn.Module):
    """An embedding whose gradient is sparse, and layers of which one is not used every time."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(2_000, 16, sparse=True)
        self.layer = nn.Linear(16, 32)
        self.norm = nn.BatchNorm1d(32)
        self.last = nn.Linear(32, 4)
        self.seldom = nn.Linear(32, 4)

    def forward(self, words: torch.Tensor, *, seldom: bool) -> torch.Tensor:
        """Return logits of four classes."""
        hidden = torch.relu(self.norm(self.layer(self.words(words).mean(1))))
        return self.seldom(hidden) if seldom else self.last(hidden)


def train(rank: int, steps: int) -> list[float]:
    """Return the losses of this rank."""
    torch.manual_seed(rank)  # DistributedDataParallel starts all ranks from rank 0's parameters
    model = DistributedDataParallel(Model(), find_unused_parameters=True, bucket_cap_mb=1)
    dense = [value for name, value in model.named_parameters() if "words" not in name]
    optimizers = [torch.optim.Adam(dense, 0.01), torch.optim.SparseAdam(list(model.module.words.parameters()), 0.01)]
    generator = torch.Generator().manual_seed(100 + rank)
    losses = []
    for step in range(steps):
        words = torch.randint(0, 2_000, (16, 6), generator=generator)
        loss = nn.functional.cross_entropy(model(words, seldom=step % 3 == 2), words[:, 0] % 4)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    parameters = torch.cat([value.detach().reshape(-1) for value in model.parameters()])
    everybody = [torch.empty_like(parameters) for _ in range(dist.get_world_size())]
    dist.all_gather(everybody, parameters)
    assert all(torch.equal(one, parameters) for one in everybody), "ranks have different parameters"
    return losses


if __name__ == "__main__":
    backend, path = sys.argv[1:]
    dist.init_process_group(backend)
    result = train(dist.get_rank(), 8)
    if dist.get_rank() == 0:
        over_gloo = {}
        if backend != "gloo":
            import switchsum.torch

            statistics = switchsum.torch.statistics()
            assert statistics.switch is not None
            assert statistics.switch.collectives > 8
            over_gloo = statistics.over_gloo
        Path(path).write_text(json.dumps({"losses": result, "over_gloo": over_gloo, "pid": os.getpid()}))
    dist.destroy_process_group()

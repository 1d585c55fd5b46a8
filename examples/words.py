"""A word-level language model with a large sparse embedding: torchrun --nproc-per-node 4 examples/words.py.

Only the rows of words that were in some rank's batch travel; on gloo whole rows with their indices do, of every rank.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from side_by_side import run
from text import share, words
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

VOCABULARY = 20_000
WIDTH = 128
CONTEXT = 8
BATCH = 32
OTHERS = 127
"""Words drawn from the text: with those to be predicted in a batch they are the candidates for each of these (sampled
softmax, Jean et al. 2015, section 3)."""


class Model(nn.Module):
    """Predicts a word out of those before it, among candidates."""

    def __init__(self, vocabulary: int, sparse: bool) -> None:
        super().__init__()
        self.known = nn.Embedding(vocabulary, WIDTH, sparse=sparse)
        self.wanted = nn.Embedding(vocabulary, WIDTH, sparse=sparse)
        self.mix = nn.Sequential(nn.Linear(CONTEXT * WIDTH, 128), nn.Tanh(), nn.Linear(128, WIDTH))
        for embedding in (self.known, self.wanted):
            nn.init.normal_(embedding.weight, std=0.1)

    def forward(self, before: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        """Return the logits `[batch, candidates]`."""
        hidden = self.mix(self.known(before).flatten(1))
        return hidden @ self.wanted(candidates).T


def train(steps: int, *, sparse: bool = True) -> Iterator[float]:
    """Yield the losses, and then how often the right candidate is first.

    Without `sparse` the embeddings' gradients are ordinary tensors, most of whose rows are zero.
    """
    torch.manual_seed(1)
    text, vocabulary = words(VOCABULARY)
    own = share(text, dist.get_rank(), dist.get_world_size())
    model = DistributedDataParallel(Model(vocabulary, sparse))
    tables = [*model.module.known.parameters(), *model.module.wanted.parameters()]
    optimizers = [
        torch.optim.SparseAdam(tables, 0.01) if sparse else torch.optim.Adam(tables, 0.01),
        torch.optim.Adam(model.module.mix.parameters(), 0.003),
    ]
    generator = torch.Generator().manual_seed(100 + dist.get_rank())
    right = torch.zeros(1)
    for step in range(steps):
        at = torch.randint(0, len(own) - CONTEXT - 1, (BATCH,), generator=generator)
        windows = own[at[:, None] + torch.arange(CONTEXT + 1)]
        others = own[torch.randint(0, len(own), (OTHERS,), generator=generator)]
        candidates, place = torch.cat([windows[:, -1], others]).unique(return_inverse=True)
        logits = model(windows[:, :-1], candidates)
        loss = cross_entropy(logits, place[:BATCH])
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        if step >= steps // 2:
            right += (logits.argmax(1) == place[:BATCH]).float().mean() / (steps - steps // 2)
        yield loss.item()
    dist.all_reduce(right)
    yield right.item() / dist.get_world_size()


if __name__ == "__main__":
    raise SystemExit(run("words of Python's manual, sparse embedding", "accuracy", train, steps=300, tolerance=0.005))

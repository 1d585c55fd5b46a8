"""A small GPT on the characters of Python's help pages: torchrun --nproc-per-node 4 examples/gpt.py."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from side_by_side import run
from text import characters, share
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.nn.parallel import DistributedDataParallel

WIDTH = 96
HEADS = 4
BLOCKS = 3
CONTEXT = 64
BATCH = 8


class Block(nn.Module):
    """Attention to what came before, and a perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.split = nn.Linear(WIDTH, 3 * WIDTH)
        self.join = nn.Linear(WIDTH, WIDTH)
        self.perceptron = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the hidden states `[batch, time, width]` after this block."""
        batch, time, _ = x.shape
        query, key, value = self.split(self.norms[0](x)).view(batch, time, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        attended = scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.join(attended.transpose(1, 2).reshape(batch, time, WIDTH))
        return x + self.perceptron(self.norms[1](x))


class GPT(nn.Module):
    """Predicts the next character at every place."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, WIDTH)
        self.places = nn.Parameter(torch.randn(CONTEXT, WIDTH) * 0.02)
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, characters))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return the logits `[batch, time, characters]`."""
        return self.head(self.blocks(self.embedding(text) + self.places))


def train(steps: int) -> Iterator[float]:
    """Yield the losses, and then how many characters of the last tenth were predicted right."""
    torch.manual_seed(1)
    text, count = characters()
    own = share(text, dist.get_rank(), dist.get_world_size())
    model = DistributedDataParallel(GPT(count))
    optimizer = torch.optim.AdamW(model.parameters(), 0.002)
    generator = torch.Generator().manual_seed(100 + dist.get_rank())
    last = range(steps - max(1, steps // 10), steps)
    right = torch.zeros(1)
    for step in range(steps):
        at = torch.randint(0, len(own) - CONTEXT - 1, (BATCH,), generator=generator)
        windows = own[at[:, None] + torch.arange(CONTEXT + 1)]
        logits, wanted = model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten()
        loss = cross_entropy(logits, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step in last:
            right += (logits.argmax(1) == wanted).float().mean() / len(last)
        yield loss.item()
    dist.all_reduce(right)
    yield right.item() / dist.get_world_size()


if __name__ == "__main__":
    raise SystemExit(run("a small GPT on Python's help pages", "accuracy", train, steps=300, tolerance=0.01))

"""Small trainings of the examples' models, played by one process: what each rank's gradient is, and the next step.

All ranks have the same parameters after each step, so there is one model; each rank draws batches of its own.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from switchsum.host.compress import Part

Floats = npt.NDArray[np.float32]
Loss = Callable[[int], Any]
"""Draws a rank's next batch and returns the loss on it, a tensor."""

EXAMPLES: Final = Path(__file__).parents[2] / "examples"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A training."""

    title: str
    steps: int
    make: Callable[[int, int], tuple[Any, Any, Loss]]
    """Return model, optimizer and loss, by seed and number of ranks."""


def example(name: str) -> Any:
    """Import one of the examples, which lie beside each other."""
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    return import_module(name)


def _gpt(seed: int, ranks: int) -> tuple[Any, Any, Loss]:
    import torch
    from torch.nn.functional import cross_entropy

    gpt, text = example("gpt"), example("text")
    gpt.WIDTH, gpt.BLOCKS = 64, 2  # forward passes look at them, too
    letters, count = text.characters()
    torch.manual_seed(seed)
    model = gpt.GPT(count)
    batch, context = 4, gpt.CONTEXT
    generators = [torch.Generator().manual_seed(100 * seed + rank) for rank in range(ranks)]

    def loss(rank: int) -> Any:
        own = text.share(letters, rank, ranks)
        at = torch.randint(0, len(own) - context - 1, (batch,), generator=generators[rank])
        windows = own[at[:, None] + torch.arange(context + 1)]
        return cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())

    return model, torch.optim.AdamW(model.parameters(), 0.002), loss


def _images(seed: int, ranks: int) -> tuple[Any, Any, Loss]:
    import torch
    from torch.nn.functional import cross_entropy

    images = example("images")
    shown, _ = images.data()
    pictures, labels = shown.tensors
    torch.manual_seed(seed)
    model = images.network()
    generators = [torch.Generator().manual_seed(100 * seed + rank) for rank in range(ranks)]

    def loss(rank: int) -> Any:
        own = torch.arange(rank, len(labels), ranks)
        at = own[torch.randint(0, len(own), (16,), generator=generators[rank])]
        return cross_entropy(model(pictures[at]), labels[at])

    return model, torch.optim.SGD(model.parameters(), 0.02, momentum=0.9), loss


def _words(seed: int, ranks: int) -> tuple[Any, Any, Loss]:
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy

    text = example("text")
    vocabulary, width, context = 2000, 64, 4
    numbers, count = text.words(vocabulary)
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Embedding(count, width), nn.Flatten(), nn.Linear(context * width, width), nn.Tanh(), nn.Linear(width, count)
    )
    generators = [torch.Generator().manual_seed(100 * seed + rank) for rank in range(ranks)]

    def loss(rank: int) -> Any:
        own = text.share(numbers, rank, ranks)
        at = torch.randint(0, len(own) - context - 1, (32,), generator=generators[rank])
        windows = own[at[:, None] + torch.arange(context + 1)]
        return cross_entropy(model(windows[:, :-1]), windows[:, -1])

    return model, torch.optim.Adam(model.parameters(), 0.003), loss


TASKS: Final[Mapping[str, Task]] = MappingProxyType(
    {
        "images": Task(title="convolutional net, 1,797 digits", steps=300, make=_images),
        "words": Task(title="embeddings and a perceptron, Python's manual by words", steps=400, make=_words),
        "gpt": Task(title="small GPT, Python's help pages by characters", steps=400, make=_gpt),
    }
)


class Played:
    """A training under way."""

    def __init__(self, task: Task, seed: int, ranks: int) -> None:
        import torch

        torch.set_num_threads(1)
        self.model, self._optimizer, self._loss = task.make(seed, ranks)
        self._ranks = ranks
        self._parameters = list(self.model.parameters())
        self.parts = [Part(key=name, shape=tuple(one.shape)) for name, one in self.model.named_parameters()]
        self.fastest_s = float("inf")
        """The shortest time that a rank's gradient has taken: what else the machine does is no part of it."""

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(part.size for part in self.parts)

    def gradients(self) -> tuple[list[Floats], float]:
        """Return every rank's gradient, its parameters side by side, and the mean of their losses."""
        import torch

        found, losses = [], []
        for rank in range(self._ranks):
            began = time.perf_counter()
            self._optimizer.zero_grad()
            loss = self._loss(rank)
            loss.backward()
            found.append(torch.cat([one.grad.reshape(-1) for one in self._parameters]).numpy())
            self.fastest_s = min(self.fastest_s, time.perf_counter() - began)
            losses.append(loss.item())
        return found, float(np.mean(losses))

    def step(self, mean: Floats) -> None:
        """Take a step by an average of gradients."""
        import torch

        for one, values in zip(self._parameters, _split(mean, self.parts), strict=True):
            one.grad = torch.from_numpy(values.copy()).view_as(one)
        self._optimizer.step()


def _split(row: Floats, parts: Sequence[Part]) -> list[Floats]:
    """Return the parts of a row."""
    return np.split(row, np.cumsum([part.size for part in parts])[:-1])

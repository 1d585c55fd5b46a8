"""Small trainings: a perceptron and the examples' models, and one process that plays all ranks of one.

All ranks have the same parameters after each step, so a player has one model; each rank draws batches of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from switchsum_host.compress import Part

Floats = npt.NDArray[np.float32]
Loss = Callable[[Any, int], Any]
"""Draws a rank's next batch and returns a model's loss on it, a tensor."""

EXAMPLES: Final = Path(__file__).parents[2] / "examples"


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What a training consists of."""

    model: Any
    optimizer: Any
    loss: Loss
    accuracy: Callable[[Any], float] | None = None
    """Returns the share of what a model has not been trained with that it gets right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A training that can be made."""

    title: str
    steps: int
    make: Callable[[int, int], Training]
    """Return it, by seed and number of ranks."""


def example(name: str) -> Any:
    """Import one of the examples, which lie beside each other."""
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    return import_module(name)


def _digits(seed: int, ranks: int) -> Training:
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy

    shown, kept = example("images").data()
    pictures, labels = shown.tensors
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )
    generators = [torch.Generator().manual_seed(100 * seed + rank) for rank in range(ranks)]

    def loss(model: Any, rank: int) -> Any:
        own = torch.arange(rank, len(labels), ranks)
        at = own[torch.randint(0, len(own), (16,), generator=generators[rank])]
        return cross_entropy(model(pictures[at]), labels[at])

    def accuracy(model: Any) -> float:
        unseen, right = kept.tensors
        with torch.no_grad():
            return float((model(unseen).argmax(1) == right).float().mean())

    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    return Training(model=model, optimizer=optimizer, loss=loss, accuracy=accuracy)


def _gpt(seed: int, ranks: int) -> Training:
    import torch
    from torch.nn.functional import cross_entropy

    gpt, text = example("gpt"), example("text")
    gpt.WIDTH, gpt.BLOCKS = 64, 2  # forward passes look at them, too
    letters, count = text.characters()
    torch.manual_seed(seed)
    model = gpt.GPT(count)
    batch, context = 4, gpt.CONTEXT
    generators = [torch.Generator().manual_seed(100 * seed + rank) for rank in range(ranks)]

    def loss(model: Any, rank: int) -> Any:
        own = text.share(letters, rank, ranks)
        at = torch.randint(0, len(own) - context - 1, (batch,), generator=generators[rank])
        windows = own[at[:, None] + torch.arange(context + 1)]
        return cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())

    return Training(model=model, optimizer=torch.optim.AdamW(model.parameters(), 0.002), loss=loss)


def _images(seed: int, ranks: int) -> Training:
    import torch
    from torch.nn.functional import cross_entropy

    images = example("images")
    shown, _ = images.data()
    pictures, labels = shown.tensors
    torch.manual_seed(seed)
    model = images.network()
    generators = [torch.Generator().manual_seed(100 * seed + rank) for rank in range(ranks)]

    def loss(model: Any, rank: int) -> Any:
        own = torch.arange(rank, len(labels), ranks)
        at = own[torch.randint(0, len(own), (16,), generator=generators[rank])]
        return cross_entropy(model(pictures[at]), labels[at])

    return Training(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.02, momentum=0.9), loss=loss)


@cache
def _numbered(vocabulary: int) -> tuple[Any, int]:
    """Return the manual's words as numbers; once, for that takes longer than some steps."""
    found: tuple[Any, int] = example("text").words(vocabulary)
    return found


def _words(seed: int, ranks: int) -> Training:
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy

    text = example("text")
    vocabulary, width, context = 2000, 64, 4
    numbers, count = _numbered(vocabulary)
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Embedding(count, width), nn.Flatten(), nn.Linear(context * width, width), nn.Tanh(), nn.Linear(width, count)
    )
    generators = [torch.Generator().manual_seed(100 * seed + rank) for rank in range(ranks)]

    def loss(model: Any, rank: int) -> Any:
        own = text.share(numbers, rank, ranks)
        at = torch.randint(0, len(own) - context - 1, (32,), generator=generators[rank])
        windows = own[at[:, None] + torch.arange(context + 1)]
        return cross_entropy(model(windows[:, :-1]), windows[:, -1])

    return Training(model=model, optimizer=torch.optim.Adam(model.parameters(), 0.003), loss=loss)


TASKS: Final[Mapping[str, Task]] = MappingProxyType(
    {
        "digits": Task(title="perceptron, 1,797 digits", steps=150, make=_digits),
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
        self._training = task.make(seed, ranks)
        self._ranks = ranks
        self._parameters = list(self._training.model.parameters())
        named = self._training.model.named_parameters()
        self.parts = [Part(key=name, shape=tuple(one.shape)) for name, one in named]

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(part.size for part in self.parts)

    @property
    def accuracy(self) -> float | None:
        """Of what it has not been trained with; None where nothing is kept for that."""
        measure = self._training.accuracy
        return None if measure is None else measure(self._training.model)

    def without_momentum(self) -> None:
        """Leave momentum to the way of averaging."""
        drop_momentum(self._training.optimizer)

    def gradients(self) -> tuple[list[Floats], float]:
        """Return every rank's gradient, its parameters side by side, and the mean of their losses."""
        import torch

        found, losses = [], []
        for rank in range(self._ranks):
            self._training.optimizer.zero_grad()
            loss = self._training.loss(self._training.model, rank)
            loss.backward()
            found.append(torch.cat([one.grad.reshape(-1) for one in self._parameters]).numpy())
            losses.append(loss.item())
        return found, float(np.mean(losses))

    def step(self, mean: Floats) -> None:
        """Take a step by an average of gradients."""
        import torch

        for one, values in zip(self._parameters, _split(mean, self.parts), strict=True):
            one.grad = torch.from_numpy(values.copy()).view_as(one)
        self._training.optimizer.step()


def drop_momentum(optimizer: Any) -> None:
    """Let an optimizer have no momentum."""
    for group in optimizer.param_groups:
        group["momentum"] = 0.0


def _split(row: Floats, parts: Sequence[Part]) -> list[Floats]:
    """Return the parts of a row."""
    return np.split(row, np.cumsum([part.size for part in parts])[:-1])

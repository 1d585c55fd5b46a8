"""Train a small network on handwritten digits, every gradient added by a P4 switch.

Run it as ``switchsum run -n 4 --terminal -- python examples/digits.py`` (or ``make demo``).  Each worker holds a share
of scikit-learn's digits (1,797 real images of 8 x 8 pixels), computes the gradient of its part of every batch, and
averages it with the others through the switch.  Rank 0 then repeats the training in one process with exact float64
sums and compares.  ``--send`` says how much of a gradient travels; what is lost is kept for the next one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from sklearn.datasets import load_digits

import switchsum
from switchsum.host.compress import BlockTopK, Compressor, ErrorFeedback, Qsgd, TopK

Floats = npt.NDArray[np.float32]
LAYERS = (64, 256, 128, 10)
COMPRESSORS: dict[str, Callable[[], Compressor]] = {
    "int8": lambda: ErrorFeedback(Qsgd(levels=15, bucket=256, norm="max")),
    "top-k": lambda: ErrorFeedback(TopK(0.05)),
    "blocks": lambda: ErrorFeedback(BlockTopK(0.1, block=32)),
}
"""Lanes of 8 bits; the largest values of each worker; the blocks with the largest sums."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How to train."""

    workers: int
    epochs: int = 30
    batch: int = 32
    """Images per worker and step."""
    learning_rate: float = 0.1
    momentum: float = 0.9
    seed: int = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Digits:
    """The images, scaled to 0..1, and their labels; every fifth one is kept for the test."""

    train_images: Floats
    train_labels: npt.NDArray[np.int64]
    test_images: Floats
    test_labels: npt.NDArray[np.int64]

    @classmethod
    def load(cls, seed: int) -> Digits:
        """Read the images that come with scikit-learn, in an order given by `seed`."""
        bunch = load_digits()
        order = np.random.default_rng(seed).permutation(len(bunch.target))
        images = (bunch.data[order] / 16.0).astype(np.float32)
        labels = bunch.target[order].astype(np.int64)
        is_test = np.arange(len(labels)) % 5 == 0
        return cls(
            train_images=images[~is_test],
            train_labels=labels[~is_test],
            test_images=images[is_test],
            test_labels=labels[is_test],
        )


class Network:
    """A multilayer perceptron with one flat array of parameters, so that one allreduce carries the whole gradient."""

    def __init__(self, seed: int) -> None:
        shapes = [((rows, columns), (columns,)) for rows, columns in pairwise(LAYERS)]
        sizes = [int(np.prod(shape)) for pair in shapes for shape in pair]
        self.parameters: Floats = np.zeros(sum(sizes), dtype=np.float32)
        self._edges = np.cumsum([0, *sizes])
        self._shapes = [shape for pair in shapes for shape in pair]
        generator = np.random.default_rng(seed)
        for weights, _ in self._layers(self.parameters):
            weights[:] = generator.normal(0.0, np.sqrt(2.0 / weights.shape[0]), weights.shape)

    def _layers(self, flat: Floats) -> list[tuple[Floats, Floats]]:
        """View a flat array as (weights, biases) of each layer."""
        views = [
            flat[start:end].reshape(shape)
            for (start, end), shape in zip(pairwise(self._edges), self._shapes, strict=True)
        ]
        return list(zip(views[0::2], views[1::2], strict=True))

    def _forward(self, images: Floats) -> list[Floats]:
        """Return the activations before each layer, and the last layer's outputs."""
        activations = [images]
        layers = self._layers(self.parameters)
        for index, (weights, biases) in enumerate(layers):
            outputs = activations[-1] @ weights + biases
            activations.append(np.maximum(outputs, 0) if index < len(layers) - 1 else outputs)
        return activations

    def gradient(self, images: Floats, labels: npt.NDArray[np.int64]) -> Floats:
        """Return the gradient of the mean cross-entropy."""
        activations = self._forward(images)
        shifted = activations[-1] - activations[-1].max(axis=1, keepdims=True)
        error = np.exp(shifted) / np.exp(shifted).sum(axis=1, keepdims=True)
        error[np.arange(len(labels)), labels] -= 1
        error /= np.float32(len(labels))
        flat = np.empty_like(self.parameters)
        layers = self._layers(self.parameters)
        for index, (weights_out, biases_out) in reversed(list(enumerate(self._layers(flat)))):
            np.matmul(activations[index].T, error, out=weights_out)
            biases_out[:] = error.sum(axis=0)
            error = (error @ layers[index][0].T) * (activations[index] > 0)
        return flat

    def accuracy(self, images: Floats, labels: npt.NDArray[np.int64]) -> float:
        """Return the share of images that are recognised."""
        return float((self._forward(images)[-1].argmax(axis=1) == labels).mean())


def train(
    recipe: Recipe, digits: Digits, average: Callable[[Network, list[npt.NDArray[np.int64]]], Floats]
) -> tuple[Network, Callable[[], bool]]:
    """Return a new network and a function that trains it for one epoch and tells whether there is another.

    `average` turns the network and each worker's indices of a batch into the batch's mean gradient.
    """
    network = Network(recipe.seed)
    velocity = np.zeros_like(network.parameters)
    generator = np.random.default_rng(recipe.seed)
    steps = len(digits.train_labels) // (recipe.batch * recipe.workers)
    done = 0

    def epoch() -> bool:
        nonlocal done
        order = generator.permutation(len(digits.train_labels))
        for step in range(steps):
            start = step * recipe.batch * recipe.workers
            shares = [
                order[start + rank * recipe.batch : start + (rank + 1) * recipe.batch] for rank in range(recipe.workers)
            ]
            velocity[:] = recipe.momentum * velocity - recipe.learning_rate * average(network, shares)
            network.parameters += velocity
        done += 1
        return done < recipe.epochs

    return network, epoch


def exact_average(digits: Digits) -> Callable[[Network, list[npt.NDArray[np.int64]]], Floats]:
    """Average in this process, in float64."""

    def average(network: Network, shares: list[npt.NDArray[np.int64]]) -> Floats:
        total = np.zeros(len(network.parameters), dtype=np.float64)
        for share in shares:
            total += network.gradient(digits.train_images[share], digits.train_labels[share])
        return (total / len(shares)).astype(np.float32)

    return average


def switch_average(
    digits: Digits, communicator: switchsum.Communicator, send: str
) -> Callable[[Network, list[npt.NDArray[np.int64]]], Floats]:
    """Average over the workers, in the switch."""
    compressor = COMPRESSORS[send]() if send in COMPRESSORS else None

    def average(network: Network, shares: list[npt.NDArray[np.int64]]) -> Floats:
        share = shares[communicator.rank]
        gradient = network.gradient(digits.train_images[share], digits.train_labels[share])
        if compressor is None:
            return communicator.allreduce(gradient, op="average")
        return compressor.exchange(communicator, "gradient", gradient).mean

    return average


def report(
    communicator: switchsum.Communicator, *, accuracy: float, exact: float, seconds: float, reduced: int
) -> Table:
    """Tabulate what the training cost; `reduced` counts the bytes of all gradients of one worker."""
    statistics = communicator.statistics()
    workers = communicator.world_size
    ring = 2 * (workers - 1) / workers * reduced
    table = Table(title=f"{workers} workers, every gradient added by the switch", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_row("test accuracy", f"{accuracy:.2%}")
    table.add_row("the same with exact float64 sums, one process", f"{exact:.2%}")
    table.add_row("training time", f"{seconds:.2f} s")
    table.add_row("time in allreduce, rank 0", f"{statistics.collective_s:.2f} s")
    table.add_row("rounds in the switch", f"{statistics.rounds:,}")
    table.add_row("frames, rank 0 sent / received", f"{statistics.frames_sent:,} / {statistics.frames_received:,}")
    table.add_row("bytes, rank 0 sent / received", f"{statistics.bytes_sent:,} / {statistics.bytes_received:,}")
    table.add_row("bytes that a ring allreduce would have sent, per worker", f"{ring:,.0f}")
    table.add_row("repeats, rank 0", f"{statistics.repeats:,}")
    return table


def main() -> int:
    """Train, compare, report; fails when the accuracy is not what it must be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=Recipe(workers=1).epochs)
    parser.add_argument("--send", choices=("whole", *COMPRESSORS), default="whole", help="what travels of a gradient")
    options = parser.parse_args()
    console = Console()
    with switchsum.connect() as communicator:
        recipe = Recipe(workers=communicator.world_size, epochs=options.epochs)
        digits = Digits.load(recipe.seed)
        network, epoch = train(recipe, digits, switch_average(digits, communicator, options.send))
        started = time.perf_counter()
        columns = (
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("epochs, accuracy {task.fields[accuracy]:.2%}"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=console, disable=communicator.rank != 0) as progress:
            task = progress.add_task("training", total=recipe.epochs, accuracy=0.0)
            more = True
            while more:
                more = epoch()
                progress.update(task, advance=1, accuracy=network.accuracy(digits.test_images, digits.test_labels))
        seconds = time.perf_counter() - started
        if communicator.rank != 0:
            return 0
        accuracy = network.accuracy(digits.test_images, digits.test_labels)
        reference, epoch = train(recipe, digits, exact_average(digits))
        while epoch():
            pass
        exact = reference.accuracy(digits.test_images, digits.test_labels)
        steps = recipe.epochs * (len(digits.train_labels) // (recipe.batch * recipe.workers))
        reduced = steps * network.parameters.nbytes
        console.print(report(communicator, accuracy=accuracy, exact=exact, seconds=seconds, reduced=reduced))
        agree = abs(accuracy - exact) <= 0.005
        if not agree:
            console.print("[red]the two trainings differ by more than 0.5 percentage points")
        return 0 if agree and (accuracy > 0.95 or recipe.epochs < Recipe(workers=1).epochs) else 1


if __name__ == "__main__":
    raise SystemExit(main())

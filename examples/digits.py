"""Train a small network on handwritten digits, every gradient added by a P4 switch.

Run it as ``switchsum run -n 4 --terminal -- python examples/digits.py`` (or ``make demo``).  Each worker holds a share
of scikit-learn's digits (1,797 real images of 8 x 8 pixels), computes the gradient of its part of every batch, and
averages it with the others through the switch.  Rank 0 then repeats the training in one process with exact float64
sums and compares; ``--gloo`` repeats it on all ranks over gloo, if PyTorch is there.  ``--send`` says how much of a
gradient travels; what is lost is kept for the next one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from curves import Curves
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from sklearn.datasets import load_digits

import switchsum
from switchsum_host.compress import BlockTopK, Compressor, ErrorFeedback, Qsgd, TopK

Floats = npt.NDArray[np.float32]
LAYERS = (64, 256, 128, 10)
TOLERANCE = 0.005
"""By how much accuracies may differ."""
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

    def loss(self, images: Floats, labels: npt.NDArray[np.int64]) -> float:
        """Return the mean cross-entropy."""
        outputs = self._forward(images)[-1].astype(np.float64)
        most = outputs.max(axis=1)
        total = most + np.log(np.exp(outputs - most[:, None]).sum(axis=1))
        return float((total - outputs[np.arange(len(labels)), labels]).mean())


Average = Callable[[Network, list[npt.NDArray[np.int64]]], Floats]
"""Turns the network and each worker's indices of a batch into the batch's mean gradient."""


def train(
    recipe: Recipe, digits: Digits, average: Average, after: Callable[[Network], object] = lambda _: None
) -> tuple[Network, list[float]]:
    """Train a new network, and call `after` with it after each epoch; return it and its loss in the test after each."""
    network = Network(recipe.seed)
    velocity = np.zeros_like(network.parameters)
    generator = np.random.default_rng(recipe.seed)
    losses = []
    for _ in range(recipe.epochs):
        order = generator.permutation(len(digits.train_labels))
        for step in range(len(digits.train_labels) // (recipe.batch * recipe.workers)):
            start = step * recipe.batch * recipe.workers
            shares = [
                order[start + rank * recipe.batch : start + (rank + 1) * recipe.batch] for rank in range(recipe.workers)
            ]
            velocity[:] = recipe.momentum * velocity - recipe.learning_rate * average(network, shares)
            network.parameters += velocity
        losses.append(network.loss(digits.test_images, digits.test_labels))
        after(network)
    return network, losses


def exact_average(digits: Digits) -> Average:
    """Average in this process, in float64."""

    def average(network: Network, shares: list[npt.NDArray[np.int64]]) -> Floats:
        total = np.zeros(len(network.parameters), dtype=np.float64)
        for share in shares:
            total += network.gradient(digits.train_images[share], digits.train_labels[share])
        return (total / len(shares)).astype(np.float32)

    return average


def switch_average(digits: Digits, communicator: switchsum.Communicator, send: str) -> Average:
    """Average over the workers, in the switch."""
    compressor = COMPRESSORS[send]() if send in COMPRESSORS else None

    def average(network: Network, shares: list[npt.NDArray[np.int64]]) -> Floats:
        share = shares[communicator.rank]
        gradient = network.gradient(digits.train_images[share], digits.train_labels[share])
        if compressor is None:
            return communicator.allreduce(gradient, op="average")
        return compressor.exchange(communicator, "gradient", gradient).mean

    return average


@contextmanager
def gloo_average(digits: Digits) -> Iterator[Average]:
    """Average over the workers, with PyTorch's gloo."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")

    def average(network: Network, shares: list[npt.NDArray[np.int64]]) -> Floats:
        share = shares[dist.get_rank()]
        gradient = network.gradient(digits.train_images[share], digits.train_labels[share])
        dist.all_reduce(torch.from_numpy(gradient))
        return gradient / np.float32(len(shares))

    yield average
    dist.destroy_process_group()


def progress_bar(console: Console, epochs: int, disable: bool) -> tuple[Progress, TaskID]:
    """Return a progress bar that shows the accuracy."""
    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("epochs, accuracy {task.fields[accuracy]:.2%}"),
        TimeElapsedColumn(),
    )
    progress = Progress(*columns, console=console, disable=disable)
    return progress, progress.add_task("training", total=epochs, accuracy=0.0)


def report(
    communicator: switchsum.Communicator, results: dict[str, tuple[float, float]], *, seconds: float, reduced: int
) -> Table:
    """Tabulate accuracy and loss, by who has added, and what it cost; `reduced`: bytes of a worker's gradients."""
    statistics = communicator.statistics()
    workers = communicator.world_size
    ring = 2 * (workers - 1) / workers * reduced
    table = Table(title=f"{workers} workers, every gradient added by the switch", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name, (accuracy, loss) in results.items():
        table.add_row(f"test accuracy, loss: {name}", f"{accuracy:.2%}, {loss:.4f}")
    table.add_row("training time", f"{seconds:.2f} s")
    table.add_row("time in allreduce, rank 0", f"{statistics.collective_s:.2f} s")
    table.add_row("rounds in the switch", f"{statistics.rounds:,}")
    table.add_row("frames, rank 0 sent / received", f"{statistics.frames_sent:,} / {statistics.frames_received:,}")
    table.add_row("bytes, rank 0 sent / received", f"{statistics.bytes_sent:,} / {statistics.bytes_received:,}")
    table.add_row("bytes that a ring allreduce would have sent, per worker", f"{ring:,.0f}")
    table.add_row("repeats, rank 0", f"{statistics.repeats:,}")
    return table


def conclusion(*, sent: int, ring: float, is_exact: bool) -> str:
    """Say in one sentence what the switch has changed; `sent` and `ring` are bytes of one worker."""
    bytes_said = f"Each worker sent {sent / 1e6:.0f} MB in place of the {ring / 1e6:.0f} MB of a ring"
    if sent >= ring:
        bytes_said = f"Each worker sent {sent / 1e6:.0f} MB, and would have sent {ring / 1e6:.0f} MB in a ring"
    return f"{bytes_said}, and the model is {'as accurate as' if is_exact else 'not as accurate as'} with exact sums."


def main() -> int:
    """Train, compare, report; fails when the accuracy is not what it must be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=Recipe(workers=1).epochs)
    parser.add_argument("--send", choices=("whole", *COMPRESSORS), default="whole", help="what travels of a gradient")
    parser.add_argument("--gloo", action="store_true", help="train once more, over gloo")
    parser.add_argument("--curves", help="file to write the losses to, for curves.py")
    options = parser.parse_args()
    console = Console()
    with switchsum.connect() as communicator:
        recipe = Recipe(workers=communicator.world_size, epochs=options.epochs)
        digits = Digits.load(recipe.seed)
        test = digits.test_images, digits.test_labels
        progress, task = progress_bar(console, recipe.epochs, disable=communicator.rank != 0)
        trained: dict[str, tuple[Network, list[float]]] = {}
        started = time.perf_counter()
        with progress:
            trained["switchsum"] = train(
                recipe,
                digits,
                switch_average(digits, communicator, options.send),
                lambda network: progress.update(task, advance=1, accuracy=network.accuracy(*test)),
            )
        seconds = time.perf_counter() - started
        if options.gloo:
            with gloo_average(digits) as average:
                trained["gloo"] = train(recipe, digits, average)
        if communicator.rank != 0:
            return 0
        trained["exact float64 sums, one process"] = train(recipe, digits, exact_average(digits))
        results = {name: (network.accuracy(*test), losses[-1]) for name, (network, losses) in trained.items()}
        if options.curves:
            losses = {name: losses for name, (_, losses) in trained.items()}
            Curves(title="perceptron in numpy, 1,797 digits", unit="epoch", losses=losses).save(options.curves)
        steps = recipe.epochs * (len(digits.train_labels) // (recipe.batch * recipe.workers))
        reduced = steps * Network(recipe.seed).parameters.nbytes
        console.print(report(communicator, results, seconds=seconds, reduced=reduced))
        accuracies = [accuracy for accuracy, _ in results.values()]
        agree = max(accuracies) - min(accuracies) <= TOLERANCE
        sent, ranks = communicator.statistics().bytes_sent, communicator.world_size
        console.print(conclusion(sent=sent, ring=2 * (ranks - 1) / ranks * reduced, is_exact=agree))
        if not agree:
            console.print(f"[red]the trainings differ by more than {TOLERANCE:.1%} in accuracy")
        return 0 if agree and (min(accuracies) > 0.95 or recipe.epochs < Recipe(workers=1).epochs) else 1


if __name__ == "__main__":
    raise SystemExit(main())

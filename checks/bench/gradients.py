"""Real gradients: `python -m checks.bench.gradients WORKERS VALUES` trains examples/gpt.py's model, keeps the last.

The model is made so wide that it has at least so many parameters; each worker has its share of the text, all workers
start each step from the same weights, and what is kept are the first `VALUES` values of each worker's own gradient,
before any averaging, in build/gradients.  One process plays all workers, so that no network is needed.

A compressor with error feedback sees something else: a gradient with all that it has not sent so far.  `--union
DENSITY` prints for both how many values are among some worker's largest, over how many each worker sends.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from switchsum.host.api.sparse import largest

Floats = npt.NDArray[np.float32]

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "gradients"
STEPS = 6
BATCH = 8
BLOCKS = 8
WIDTH_STEP = 32


def path(workers: int, values: int, rank: int) -> Path:
    """Return where one worker's gradient is kept."""
    return FOLDER / f"gpt-{workers}-{values}-{rank}.npy"


def record(workers: int, values: int) -> None:
    """Train, and keep the gradients of the last step, unless there are some already."""
    if all(path(workers, values, rank).exists() for rank in range(workers)):
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    for rank, gradient in enumerate(_last_gradients(workers, values)):
        np.save(path(workers, values, rank), gradient[:values])


def _last_gradients(workers: int, values: int) -> Iterator[Floats]:
    """Yield each worker's gradient of the last step."""
    training = Training(workers, values)
    for _ in range(STEPS - 1):
        training.step(np.mean(training.gradients(), axis=0))
    yield from training.gradients()


class Training:
    """A small GPT's training by workers that this process plays one after the other."""

    def __init__(self, workers: int, values: int) -> None:
        """Have at least so many parameters."""
        sys.path.insert(0, str(ROOT / "examples"))
        import torch
        from text import characters, share

        gpt: Any = import_module("gpt")
        gpt.BLOCKS = BLOCKS
        gpt.WIDTH = WIDTH_STEP
        while values > 12 * BLOCKS * gpt.WIDTH**2:  # what a transformer's blocks have
            gpt.WIDTH += WIDTH_STEP
        self._gpt = gpt
        torch.manual_seed(1)
        torch.set_num_threads(1)
        text, count = characters()
        self._model = self._gpt.GPT(count)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), 0.0005)
        self._shares = [share(text, rank, workers) for rank in range(workers)]
        self._generators = [torch.Generator().manual_seed(100 + rank) for rank in range(workers)]

    def gradients(self) -> list[Floats]:
        """Return the workers' gradients on their next batches."""
        return [self._gradient(rank) for rank in range(len(self._shares))]

    def _gradient(self, rank: int) -> Floats:
        import torch
        from torch.nn.functional import cross_entropy

        own, context = self._shares[rank], self._gpt.CONTEXT
        at = torch.randint(0, len(own) - context - 1, (BATCH,), generator=self._generators[rank])
        windows = own[at[:, None] + torch.arange(context + 1)]
        self._model.zero_grad()
        cross_entropy(self._model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten()).backward()
        parts = [parameter.grad.flatten() for parameter in self._model.parameters() if parameter.grad is not None]
        flat: Floats = torch.cat(parts).numpy()
        return flat

    def step(self, mean: Floats) -> None:
        """Take a step by an average."""
        import torch

        start = 0
        for parameter in self._model.parameters():
            part = mean[start : start + parameter.numel()]
            parameter.grad = torch.from_numpy(part).view_as(parameter)
            start += parameter.numel()
        self._optimizer.step()


def union_over_k(arrays: Sequence[Floats], k: int) -> float:
    """Return how many values are among the `k` largest of some worker, over `k`."""
    chosen = np.zeros(arrays[0].size, bool)
    for array in arrays:
        chosen[largest(array, k)] = True
    return float(np.count_nonzero(chosen)) / k


def unions(workers: int, values: int, density: float, steps: Sequence[int]) -> Iterator[str]:
    """Yield lines of a table: raw gradients, and what top-k with error feedback chooses from, after some steps."""
    training = Training(workers, values)
    lost: list[Floats] = []
    for step in range(1, max(steps) + 1):
        own = training.gradients()
        seen = [gradient + rest for gradient, rest in zip(own, lost, strict=True)] if lost else own
        k = round(density * own[0].size)
        if step in steps:
            random = own[0].size / k * (1 - (1 - density) ** workers)
            yield f"| {step} | {workers} | {union_over_k(own, k):.1f} | {union_over_k(seen, k):.1f} | {random:.1f} |"
        lost, mean = [], np.zeros(own[0].size, np.float32)
        for array in seen:
            chosen = largest(array, k)
            mean[chosen] += array[chosen] / np.float32(workers)
            rest = array.copy()
            rest[chosen] = 0
            lost.append(rest)
        training.step(mean)


def main() -> None:
    """Record gradients, or print the table of unions."""
    parser = argparse.ArgumentParser(prog="python -m checks.bench.gradients", description=__doc__)
    parser.add_argument("workers", type=int)
    parser.add_argument("values", type=int)
    parser.add_argument("--union", type=float, metavar="DENSITY", help="print what is in the union of the largest")
    parser.add_argument("--steps", type=int, nargs="+", default=(6, 50, 100), help="after which steps")
    options = parser.parse_args()
    if options.union is None:
        record(options.workers, options.values)
        return
    sys.stdout.write("| step | workers | raw gradients | with error feedback | at random |\n|---|---|---|---|---|\n")
    for line in unions(options.workers, options.values, options.union, options.steps):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

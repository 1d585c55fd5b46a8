"""What top-k with error feedback chooses from: `python -m checks.bench.gradients WORKERS VALUES [--steps 50 100]`.

Trains the model of examples/gpt.py, made so wide that it has at least so many parameters; each worker has its share of
the text, and all start each step from the same weights.  One process plays all workers, so that no network is needed.

A compressor with error feedback does not choose from a gradient, but from its accumulator: the gradient and all that
was not sent so far.  In this training each worker sends the largest 1 % of its accumulator, as
`ErrorFeedback(TopK(0.01))` does.  The first `VALUES` values of each accumulator are kept, as they are in those steps
before the choice.

`--raw` keeps gradients of the sixth step, of a training that sends all of them.  `--union DENSITY` keeps nothing: it
prints how many values are among some worker's largest, over how many each sends, for gradients and accumulators.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from switchsum_host.api.sparse import largest
from switchsum_host.compress.base import count_of

Floats = npt.NDArray[np.float32]

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "gradients"
RAW_STEPS = 6
STEPS = 50
DENSITY = 0.01
BATCH = 8
BLOCKS = 8
WIDTH_STEP = 32


def path(workers: int, values: int, rank: int, *, steps: int | None = None, folder: Path = FOLDER) -> Path:
    """Return where one worker's accumulator in a step is kept, or, of no step, its raw gradient."""
    return folder / f"gpt-{workers}-{values}-{'' if steps is None else f'after-{steps}-'}{rank}.npy"


def record_raw(workers: int, values: int) -> None:
    """Train, and keep the gradients of the sixth step, unless there are some already."""
    if _are_kept(workers, values, None, FOLDER):
        return
    training = Training(workers, values)
    for _ in range(RAW_STEPS - 1):
        training.step(np.mean(training.gradients(), axis=0))
    _keep(training.gradients(), values, None, FOLDER)


def record(workers: int, values: int, steps: Sequence[int], folder: Path = FOLDER) -> None:
    """Train with top-k and error feedback, and keep the accumulators of some steps, unless there are some already."""
    missing = [step for step in steps if not _are_kept(workers, values, step, folder)]
    if not missing:
        return
    for step, (_, seen) in enumerate(accumulators(Training(workers, values), DENSITY), 1):
        sys.stdout.write(f"{workers} workers, step {step} of {max(missing)}\n")
        sys.stdout.flush()
        if step in missing:
            _keep(seen, values, step, folder)
        if step >= max(missing):
            return


def _are_kept(workers: int, values: int, steps: int | None, folder: Path) -> bool:
    return all(path(workers, values, rank, steps=steps, folder=folder).exists() for rank in range(workers))


def _keep(arrays: Sequence[Floats], values: int, steps: int | None, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for rank, array in enumerate(arrays):
        whole = path(len(arrays), values, rank, steps=steps, folder=folder)
        begun = whole.with_suffix(".begun.npy")
        np.save(begun, array[:values])
        begun.rename(whole)  # so that half a file never counts as kept


class Trains(Protocol):
    """Workers that train together."""

    def gradients(self) -> list[Floats]:
        """Return the workers' gradients on their next batches."""
        ...

    def step(self, mean: Floats) -> None:
        """Take a step by an average."""
        ...


def accumulators(
    training: Trains, density: float, *, keep: bool = False
) -> Iterator[tuple[list[Floats], list[Floats]]]:
    """Yield each step's gradients, and what `ErrorFeedback(TopK(density))` chooses from in it, until the next step.

    To keep is to leave all but as many averages, the largest, for later, as `TopK(density, kept=density)` does.
    """
    seen: list[Floats] = []
    while True:
        own = training.gradients()
        seen = seen or [np.zeros_like(gradient) for gradient in own]
        for array, gradient in zip(seen, own, strict=True):
            np.add(array, gradient, out=array)
        yield own, seen
        mean = np.zeros_like(own[0])
        k = count_of(density, mean.size)
        choices = [largest(array, k) for array in seen]
        for array, chosen in zip(seen, choices, strict=True):
            mean[chosen] += array[chosen] / np.float32(len(seen))
        is_sent = np.ones(mean.size, np.bool_)
        if keep:
            is_sent[:] = False
            is_sent[largest(mean, k)] = True
            mean[~is_sent] = 0
        for array, chosen in zip(seen, choices, strict=True):
            array[chosen[is_sent[chosen]]] = 0
        training.step(mean)


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


def unions(training: Trains, density: float, steps: Sequence[int], *, keep: bool = False) -> Iterator[str]:
    """Yield lines of a table: raw gradients, and what top-k with error feedback chooses from, in some steps."""
    for step, (own, seen) in enumerate(accumulators(training, density, keep=keep), 1):
        if step in steps:
            workers, k = len(own), count_of(density, own[0].size)
            random = own[0].size / k * (1 - (1 - density) ** workers)
            yield f"| {step} | {workers} | {union_over_k(own, k):.1f} | {union_over_k(seen, k):.1f} | {random:.1f} |"
        if step >= max(steps):
            return


def main() -> None:
    """Record gradients, or print the table of unions."""
    parser = argparse.ArgumentParser(
        prog="python -m checks.bench.gradients",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("workers", type=int)
    parser.add_argument("values", type=int)
    parser.add_argument("--steps", type=int, nargs="+", help="which (default: 50; of --union, 6, 50 and 100)")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where accumulators are kept (build/gradients)")
    parser.add_argument("--raw", action="store_true", help="keep raw gradients of the sixth step, in build/gradients")
    parser.add_argument("--union", type=float, metavar="DENSITY", help="print what is in the union of the largest")
    parser.add_argument("--keep", action="store_true", help="there: of a training that keeps as many averages")
    options = parser.parse_args()
    workers, values, steps = options.workers, options.values, options.steps
    if options.raw:
        record_raw(workers, values)
    elif options.union is None:
        record(workers, values, steps or (STEPS,), options.folder)
    else:
        sys.stdout.write(
            "| step | workers | raw gradients | with error feedback | at random |\n|---|---|---|---|---|\n"
        )
        training, steps = Training(workers, values), steps or (RAW_STEPS, STEPS, 2 * STEPS)
        for line in unions(training, options.union, steps, keep=options.keep):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()

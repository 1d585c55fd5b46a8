"""Real gradients: `python -m checks.bench.gradients WORKERS VALUES` trains examples/gpt.py's model, keeps the last.

The model is made so wide that it has at least so many parameters; each worker has its share of the text, all workers
start each step from the same weights, and what is kept are the first `VALUES` values of each worker's own gradient,
before any averaging, in build/gradients.  One process plays all workers, so that no network is needed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

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


def _last_gradients(workers: int, values: int) -> Iterator[npt.NDArray[np.float32]]:
    """Yield each worker's gradient of the last step."""
    sys.path.insert(0, str(ROOT / "examples"))
    import torch
    from text import characters, share
    from torch.nn.functional import cross_entropy

    gpt: Any = import_module("gpt")
    gpt.BLOCKS = BLOCKS
    gpt.WIDTH = WIDTH_STEP
    while values > 12 * BLOCKS * gpt.WIDTH**2:  # what a transformer's blocks have
        gpt.WIDTH += WIDTH_STEP
    torch.manual_seed(1)
    torch.set_num_threads(1)
    text, count = characters()
    model = gpt.GPT(count)
    optimizer = torch.optim.AdamW(model.parameters(), 0.0005)
    generators = [torch.Generator().manual_seed(100 + rank) for rank in range(workers)]

    def gradient(rank: int) -> npt.NDArray[np.float32]:
        own = share(text, rank, workers)
        at = torch.randint(0, len(own) - gpt.CONTEXT - 1, (BATCH,), generator=generators[rank])
        windows = own[at[:, None] + torch.arange(gpt.CONTEXT + 1)]
        model.zero_grad()
        cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten()).backward()
        parts = [parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None]
        flat: npt.NDArray[np.float32] = torch.cat(parts).numpy()
        return flat

    for _ in range(STEPS - 1):
        mean = np.mean([gradient(rank) for rank in range(workers)], axis=0)
        start = 0
        for parameter in model.parameters():
            part = mean[start : start + parameter.numel()]
            parameter.grad = torch.from_numpy(part).view_as(parameter)
            start += parameter.numel()
        optimizer.step()
    for rank in range(workers):
        yield gradient(rank)


if __name__ == "__main__":
    record(int(sys.argv[1]), int(sys.argv[2]))

"""Make the recordings in lab/papers/recordings anew: `python -m checks.lab.record` (PyTorch, scikit-learn).

Four ranks of four small trainings are played by one process, whose gradients are noted in buckets of whole layers.
When each bucket is ready is what its share of the values takes of the measured backward pass of one rank.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import numpy.typing as npt

from checks.lab.convergence_tasks import TASKS, Played
from switchsum_host.compress import Part
from switchsum_lab.sweeps.recording import Recorder

FOLDER = Path(__file__).parents[2] / "lab" / "papers" / "recordings"

RANKS = 4
STEPS = 4
WARM_UP = 10
"""Steps before the first one that is recorded: the first gradients are no example of later ones."""
BUCKET_VALUES = 65_536
"""A bucket ends with the layer that makes it so large: small models would else have a single one."""
NAMES = ("words", "gpt", "images", "logistic")
FEATURES = 1 << 18
OF_AN_EXAMPLE = 40
BATCH = 64
"""Of each rank."""


class Logistic:
    """Logistic regression on examples of a few features each, some of which most examples have (SparCML, section 8).

    Which features an example has is drawn by Zipf's law, as words are in texts; the right weights are drawn, too.
    """

    title = f"logistic regression on {OF_AN_EXAMPLE} of {FEATURES:,} features"

    def __init__(self, ranks: int) -> None:
        self._random, self._ranks = np.random.default_rng(1), ranks
        self._right = self._random.standard_normal(FEATURES, np.float32)
        self._weights = np.zeros(FEATURES, np.float32)
        self.size, self.parts = FEATURES, [Part(key="weights", shape=(FEATURES,))]

    def gradients(self) -> tuple[list[npt.NDArray[np.float32]], float]:
        """Return each rank's gradient, and the mean loss."""
        made, loss = [], 0.0
        for _ in range(self._ranks):
            features = (self._random.zipf(1.3, (BATCH, OF_AN_EXAMPLE)) * 7919) % FEATURES
            label = self._right[features].sum(axis=1) > 0
            guess = 1 / (1 + np.exp(-self._weights[features].sum(axis=1)))
            gradient = np.zeros(FEATURES, np.float32)
            np.add.at(gradient, features, ((guess - label) / BATCH)[:, None].astype(np.float32))
            made.append(gradient)
            loss -= float(np.log(np.where(label, guess, 1 - guess) + 1e-9).mean()) / self._ranks
        return made, loss

    def step(self, gradient: npt.NDArray[np.float32]) -> None:
        """Change the weights."""
        self._weights -= 0.1 * gradient


def buckets(parts: list[Part]) -> Iterator[tuple[int, int]]:
    """Yield first and last value of each bucket, of the last layers first, as gradients become ready."""
    end = at = sum(part.size for part in parts)
    for part in reversed(parts):
        at -= part.size
        if end - at >= BUCKET_VALUES or at == 0:
            yield at, end
            end = at


def record(name: str, folder: Path) -> None:
    """Record one training."""
    played: Played | Logistic = Logistic(RANKS) if name == "logistic" else Played(TASKS[name], 1, RANKS)
    title = Logistic.title if name == "logistic" else TASKS[name].title
    now, about = 0.0, f"{title}; {played.size:,} parameters, steps {WARM_UP} to {WARM_UP + STEPS - 1}"
    with ExitStack() as stack:
        recorders = [
            stack.enter_context(Recorder(folder / name, rank=rank, world_size=RANKS, about=about))
            for rank in range(RANKS)
        ]
        for step in range(WARM_UP + STEPS):
            started = time.perf_counter()
            gradients, _ = played.gradients()
            backward_s = (time.perf_counter() - started) / RANKS
            for number, (first, last) in enumerate(buckets(played.parts) if step >= WARM_UP else ()):
                now += backward_s * (last - first) / played.size
                for recorder, gradient in zip(recorders, gradients, strict=True):
                    recorder.note(str(number), gradient[first:last], at_s=now)
            played.step(np.mean(gradients, axis=0, dtype=np.float32))


if __name__ == "__main__":
    for one in sys.argv[1:] or NAMES:
        record(one, FOLDER)
        print(f"{FOLDER / one}", flush=True)

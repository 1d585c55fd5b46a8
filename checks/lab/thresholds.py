"""How many values thresholds choose that are not found by sorting: `python -m checks.lab.thresholds` (minutes).

One rank of the recorded trainings keeps what was not sent, as error feedback does, and sends the exact k largest.  On
the same accumulators Ok-Topk's reused threshold and Gaussiank's estimate are asked how many values they would choose.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from statistics import NormalDist, median
from typing import Final

import numpy as np
import numpy.typing as npt

from checks.lab.convergence_tasks import TASKS, Played

Array = npt.NDArray[np.float32]
NAMES: Final = ("words", "gpt", "images")
DENSITY: Final = 0.01
DENSE_STEPS: Final = 128
"""Steps before the first sparse one, in which everything is sent. Ok-Topk has 512 of them, in longer trainings."""
STEPS: Final = 96
REUSED: Final = 32
"""Steps for which Ok-Topk keeps a threshold."""
NUDGE: Final = 1.012
ROUNDS: Final = 4
"""How often Gaussiank corrects its estimate at most."""


class Reused:
    """Ok-Topk's threshold: exact every 32 steps, and between them moved by 1.2 % where the count leaves its bounds."""

    def __init__(self, k: int) -> None:
        self._k, self._step, self._threshold = k, 0, 0.0

    def count(self, magnitudes: Array) -> int:
        """Return how many values it chooses in the next step."""
        if self._step % REUSED == 0:
            self._threshold = float(np.partition(magnitudes, -self._k)[-self._k])
        self._step += 1
        count = int(np.count_nonzero(magnitudes >= self._threshold))
        if count > 5 * self._k / 4:
            self._threshold *= NUDGE
        elif count < 2 * self._k / 3:
            self._threshold /= NUDGE
        return count


def gaussian(values: Array, k: int) -> int:
    """Return how many values Gaussiank chooses: by the normal distribution that has their mean and deviation."""
    mean, deviation = float(values.mean()), float(values.std())
    threshold = NormalDist().inv_cdf(1 - k / values.size / 2) * deviation
    magnitudes = np.abs(values - mean)
    count = 0
    for _ in range(ROUNDS):
        count = int(np.count_nonzero(magnitudes > threshold))
        if count < 2 * k / 3:
            threshold *= 0.5
        elif count > 4 * k / 3:
            threshold *= 1.5
        else:
            break
    return count


def counts(name: str) -> Iterator[tuple[int, float, float]]:
    """Yield for each step its number, and both counts over k."""
    played = Played(TASKS[name], 1, 1)
    kept = np.zeros(played.size, np.float32)
    for _ in range(DENSE_STEPS):
        [gradient], _ = played.gradients()
        played.step(gradient)
    k = round(DENSITY * played.size)
    reused = Reused(k)
    for step in range(STEPS):
        [gradient], _ = played.gradients()
        kept += gradient
        magnitudes = np.abs(kept)
        yield step, reused.count(magnitudes) / k, gaussian(kept, k) / k
        chosen = np.argpartition(magnitudes, -k)[-k:]
        sent = np.zeros_like(kept)
        sent[chosen], kept[chosen] = kept[chosen], 0
        played.step(sent)


def main() -> None:
    """Print a table."""
    sys.stdout.write(
        f"| training, values over k in {STEPS} steps | Ok-Topk's threshold | Gaussiank's |\n|---|---|---|\n"
    )
    for name in NAMES:
        _, *columns = zip(*counts(name), strict=True)
        cells = [f"{median(one):.2f} ({min(one):.2f} to {max(one):.2f})" for one in columns]
        sys.stdout.write(f"| {name} | {' | '.join(cells)} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

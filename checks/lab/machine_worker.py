"""One rank of a training on machines with an ordinary switch between them: milliseconds of a step in each way.

`python -m checks.lab.machine_worker BACKEND STEPS PATH WAY...`, as `checks.lab.convergence_worker`.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import torch

from checks.bench import layers
from checks.lab.convergence_tasks import Task, Training
from checks.lab.convergence_worker import measure
from checks.lab.machine_trainings import NAME
from checks.lab.slow_worker import job

WIDTH: Final = 296
"""Of six layers, which have 527,472 parameters: 2.1 MB."""


def _layers(seed: int, ranks: int) -> Training:
    model = layers.network(WIDTH)
    data = layers.batch(layers.SMALL_BATCH, WIDTH)

    def loss(model: Any, rank: int) -> Any:
        return (model(data) - data).square().mean()

    return Training(model=model, optimizer=torch.optim.SGD(model.parameters(), layers.RATE), loss=loss)


TASK: Final = Task(title="six equal layers, 2.1 MB", steps=0, make=_layers)


def main() -> None:
    """Measure all ways that are named."""
    backend, steps, path, *names = sys.argv[1:]
    measure(backend, path, {(NAME, name): job(TASK, name, int(steps)) for name in names})


if __name__ == "__main__":
    main()

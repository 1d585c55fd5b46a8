"""Two ranks over gloo whose outer steps differ in one thing at a time: prints what each case ends with."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from switchsum.torch import Average, DiLoCo, LocalSGD
from switchsum_protocol.errors import OperationMismatch


def train(kind: Any = DiLoCo, steps: int = 8, skips: int = -1, **options: Any) -> str:
    """Train, skip a step as scalers do, and say where the training has ended."""
    options = {"every": 4, "how": None} | options
    torch.manual_seed(dist.get_rank())
    model = torch.nn.Linear(6, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    trained = kind(model, optimizer, **options)
    for step in range(steps):
        loss = model(torch.randn(5, 6)).square().mean() * (float("inf") if step == skips else 1.0)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    trained.finish()
    trained.remove()
    values = [torch.empty_like(model.weight) for _ in range(2)]
    dist.all_gather(values, model.weight.detach())
    return f"{trained.step} steps, {'the same model' if torch.equal(*values) else 'OTHER MODELS'}"


def averaged(names: tuple[str, str]) -> str:
    tensors = [torch.ones(3), torch.ones(3)]
    Average(None)(tensors, names=names)
    return str(tensors[0].tolist())


def half(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, 0.5)


CASES: dict[str, tuple[Callable[[], str], Callable[[], str]]] = {
    "alike": (train, train),
    "streamed": (lambda: train(delay=1), lambda: train(delay=1)),
    "skipped": (train, lambda: train(skips=3)),
    "steps": (lambda: train(steps=20), lambda: train(steps=19)),
    "last steps": (lambda: train(steps=19), lambda: train(steps=18)),
    "every": (train, lambda: train(every=5)),
    "fragments": (train, lambda: train(fragments=1)),
    "outer": (train, lambda: train(outer=half)),
    "class": (lambda: train(fragments=1), lambda: train(LocalSGD)),
    "names": (lambda: averaged(("a", "b")), lambda: averaged(("b", "a"))),
    # The last one, because it leaves a sum under way.
    "streamed, outer": (lambda: train(delay=1), lambda: train(delay=1, outer=half)),
}


def main() -> None:
    """Play all cases."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=float(sys.argv[1])))
    for name, calls in CASES.items():
        try:
            ended = calls[dist.get_rank()]()
        except OperationMismatch as error:
            ended = f"OperationMismatch {error}"
        print(f"{name}: {ended}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

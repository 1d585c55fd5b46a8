"""Train the same model twice, its gradients added by the switch and by gloo, and show both curves."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import torch.distributed as dist
from curves import Curves
from rich.console import Console
from rich.table import Table

BARS = " ▁▂▃▄▅▆▇█"
ROWS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One training."""

    losses: list[float]
    """Mean over ranks, step by step."""
    score: float
    """Of the trained model; higher is better."""
    step_ms: float
    """Median; the first steps load and lay out what all others use."""
    megabytes: float | None
    """Sent by rank 0 in all; None: nobody has counted."""


def run(title: str, score: str, train: Callable[[int], Iterator[float]], *, steps: int, tolerance: float) -> int:
    """Train on each backend; return the exit code, which is 1 where the curves differ by more than `tolerance`.

    That is a share of the first loss: late ones may be next to nothing, and what little they differ by is not.
    `train` takes a number of steps, yields this rank's loss of each, and at last the model's score.
    """
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--backends", nargs="+", default=["switchsum", "gloo"])
    parser.add_argument("--curves", help="file to write the losses to, for curves.py")
    options = parser.parse_args()
    curves = {backend: _curve(backend, train, options.steps) for backend in options.backends}
    if options.curves and os.environ["RANK"] == "0":
        Curves(title=title, unit="step", losses={name: one.losses for name, one in curves.items()}).save(options.curves)
    return 0 if _report(title, score, curves, tolerance) else 1


def _curve(backend: str, train: Callable[[int], Iterator[float]], steps: int) -> Curve:
    """Train once."""
    dist.init_process_group(backend)
    try:
        losses: list[float] = []
        times = [time.perf_counter()]
        for loss in train(steps):
            losses.append(loss)
            times.append(time.perf_counter())
        score = losses.pop()
        step_ms = 1e3 * median(end - begin for begin, end in pairwise(times[:-1]))
        everybody: list[list[float]] = [[]] * dist.get_world_size()
        dist.all_gather_object(everybody, losses)
        means = [sum(column) / len(column) for column in zip(*everybody, strict=True)]
        return Curve(losses=means, score=score, step_ms=step_ms, megabytes=_megabytes())
    finally:
        dist.destroy_process_group()


def _megabytes() -> float | None:
    import switchsum.torch

    if not isinstance(dist.group.WORLD, switchsum.torch.SwitchGroup):
        return None
    counts = switchsum.torch.statistics().switch
    return None if counts is None else counts.bytes_sent / 1e6


def _report(title: str, score: str, curves: dict[str, Curve], tolerance: float) -> bool:
    """Print both curves; return whether they agree."""
    table = Table(title=title)
    table.add_column("step", justify="right")
    for backend in curves:
        table.add_column(f"loss, {backend}", justify="right")
    count = len(next(iter(curves.values())).losses)
    for step in sorted({0, count - 1, *range(0, count, max(1, count // ROWS))}):
        table.add_row(str(step), *(f"{curve.losses[step]:.6f}" for curve in curves.values()))
    table.add_section()
    table.add_row(score, *(f"{curve.score:.4f}" for curve in curves.values()))
    table.add_row("ms a step", *(f"{curve.step_ms:.1f}" for curve in curves.values()))
    sent = [curve.megabytes for curve in curves.values()]
    table.add_row("MB sent by rank 0", *("" if one is None else f"{one:.2f}" for one in sent))
    table.add_row("", *(_bars(curve.losses) for curve in curves.values()))
    pairs = zip(*(curve.losses for curve in curves.values()), strict=True)
    worst = max(max(pair) - min(pair) for pair in pairs) / next(iter(curves.values())).losses[0]
    if os.environ["RANK"] == "0":
        Console().print(table)
        print(f"losses differ by at most {worst:.3%} of the first (allowed: {tolerance:.2%})")
    return worst <= tolerance


def _bars(losses: list[float], width: int = 24) -> str:
    """Draw a curve in one line."""
    picked = [losses[index * len(losses) // width] for index in range(min(width, len(losses)))]
    low, high = min(picked), max(picked)
    return "".join(BARS[round((value - low) / max(high - low, 1e-12) * (len(BARS) - 1))] for value in picked)

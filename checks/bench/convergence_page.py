"""The page docs/convergence.md: tables and plots of what `checks.bench.convergence` has trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from checks.bench.convergence_tasks import TASKS

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "convergence.md"
IMAGES: Final = ROOT / "docs" / "images"
BEGIN, END = "<!-- tables: python -m checks.bench.convergence --publish -->", "<!-- end of tables -->"
RATES: Final = {"200 Mbit/s": 200e6, "1 Gbit/s": 1e9}
SMOOTHED: Final = 20
"""Steps whose losses are averaged: batches differ more than ways."""
TARGET_AT: Final = 0.4
"""The loss that is to be reached is that of gloo's float32, with the same seed, after this share of the steps."""
POINTS: Final = 80
"""Of a curve in the plot."""
BASE: Final = "gloo"
COLOURS: Final = {
    "gloo": "black",
    "gloo, fp16 hook": "dimgray",
    "gloo, PowerSGD 4": "darkgray",
    "dense": "tab:blue",
    "int16": "tab:cyan",
    "int10": "tab:green",
    "int8": "tab:olive",
    "topk:0.01": "tab:red",
    "topk:0.01+keep": "tab:pink",
    "blocktopk:0.05": "tab:orange",
    "powersgd:4": "tab:purple",
}
"""One for each way, in all panels."""

Results = Mapping[str, Mapping[str, Any]]
Losses = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """All seeds of one way."""

    seeds: tuple[str, ...]
    losses: Losses
    """`[seeds, steps]`, smoothed."""
    up: float
    """Bytes of a step, mean of the seeds."""
    down: float

    @property
    def moved(self) -> float:
        """Bytes of a step in the direction that has more of them, which decides on links that are full duplex."""
        return max(self.up, self.down)

    def steps_to(self, targets: Mapping[str, float]) -> list[int | None]:
        """Return after how many steps each seed's loss is at most its target."""
        found: list[int | None] = []
        for seed, row in zip(self.seeds, self.losses, strict=True):
            below = np.flatnonzero(row <= targets[seed])
            found.append(int(below[0]) + 1 if len(below) else None)
        return found


def smoothed(losses: Losses) -> Losses:
    """Return the mean of each step and those before it, at most `SMOOTHED` in all."""
    sums = np.concatenate([[0.0], np.cumsum(losses)])
    ends = np.arange(1, len(sums))
    starts = np.maximum(0, ends - SMOOTHED)
    found: Losses = (sums[ends] - sums[starts]) / (ends - starts)
    return found


def trained(results: Results, task: str) -> dict[str, Trained]:
    """Return what there is of a task, by way, in the order of the colours."""
    found = {}
    for way in COLOURS:
        runs = [results[name] for name in sorted(results) if name.rpartition("/")[0] == f"{task}/{way}"]
        if runs:
            steps = min(len(run["losses"]) for run in runs)
            found[way] = Trained(
                seeds=tuple(sorted(name.rpartition("/")[2] for name in results if name.startswith(f"{task}/{way}/"))),
                losses=np.array([smoothed(np.array(run["losses"][:steps], np.float64)) for run in runs]),
                up=float(np.mean([run["up"] for run in runs])),
                down=float(np.mean([run["down"] for run in runs])),
            )
    return found


def gradient_s(results: Results, task: str) -> float:
    """Return the shortest time that a rank's gradient has taken in any training."""
    return float(min(run["gradient_s"] for name, run in results.items() if name.startswith(f"{task}/")))


def targets_of(ways: Mapping[str, Trained]) -> dict[str, float]:
    """Return the loss that is to be reached, by seed."""
    losses = ways[BASE].losses
    after = losses[:, int(TARGET_AT * losses.shape[1]) - 1]
    return dict(zip(ways[BASE].seeds, map(float, after), strict=True))


def table(results: Results, task: str) -> Iterator[str]:
    """Yield the lines of a task's table."""
    ways = trained(results, task)
    targets, alone_s = targets_of(ways), gradient_s(results, task)
    parameters = next(run["parameters"] for name, run in results.items() if name.startswith(f"{task}/"))
    yield f"### {TASKS[task].title[0].upper()}{TASKS[task].title[1:]}"
    yield ""
    goals = " or ".join(f"{one:.3f}" for one in targets.values())
    yield (
        f"{parameters:,} parameters, {ways[BASE].losses.shape[1]} steps, {len(targets)} seeds; the loss to be reached "
        f"is {goals} by seed; a rank's own gradient takes {alone_s * 1e3:.1f} ms."
    )
    yield ""
    times = " | ".join(f"s to it at {rate}" for rate in RATES)
    yield f"| | kB a step up | down | steps to the loss | MB to it | {times} | loss at the end |"
    yield "|---" * (6 + len(RATES)) + "|"
    for way, one in ways.items():
        yield _row(way, one, targets, alone_s)


def _row(way: str, one: Trained, targets: Mapping[str, float], alone_s: float) -> str:
    end = one.losses[:, -1]
    cells = [f"{one.up / 1e3:,.0f}", f"{one.down / 1e3:,.0f}"]
    steps = [count for count in one.steps_to(targets) if count is not None]
    if len(steps) < len(one.losses):
        missed = len(one.losses) - len(steps)
        cells += [f"not by {missed} of {len(one.losses)} seeds", *[""] * (1 + len(RATES))]
    else:
        mean = float(np.mean(steps))
        cells += [f"{mean:.0f} ({min(steps)} to {max(steps)})", f"{mean * one.moved / 1e6:,.1f}"]
        cells += [f"{mean * (alone_s + 8 * one.moved / rate):,.1f}" for rate in RATES.values()]
    return f"| {way} | {' | '.join(cells)} | {end.mean():.3f} ({end.min():.3f} to {end.max():.3f}) |"


def publish(results: Results) -> None:
    """Write tables and plots."""
    tasks = [task for task in TASKS if f"{task}/{BASE}/" in "".join(results)]
    text = PAGE.read_text()
    before, after = text.index(BEGIN) + len(BEGIN), text.index(END)
    tables = "\n\n".join("\n".join(table(results, task)) for task in tasks)
    PAGE.write_text(f"{text[:before]}\n\n{tables}\n\n{text[after:]}")
    plot(results, tasks)


def plot(results: Results, tasks: list[str]) -> None:
    """Write `convergence.png` and `convergence.svg`: losses by steps, and by what a link has carried."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "switchsum"  # the same file from the same figures
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, len(tasks), figsize=(5 * len(tasks), 7), squeeze=False, layout="constrained")
    for column, task in enumerate(tasks):
        ways = trained(results, task)
        for way, one in ways.items():
            count = one.losses.shape[1]
            steps = np.unique(np.geomspace(1, count, POINTS).astype(int))
            losses = one.losses[:, steps - 1]
            for axis, at in ((axes[0][column], steps), (axes[1][column], steps * one.moved / 1e6)):
                axis.plot(at, losses.mean(axis=0), color=COLOURS[way], label=way, linewidth=1.2)
                axis.fill_between(at, losses.min(axis=0), losses.max(axis=0), color=COLOURS[way], alpha=0.08)
        for axis, label in ((axes[0][column], "steps"), (axes[1][column], "MB up or down, whichever is more")):
            axis.set(xlabel=label, ylabel="loss", xscale="log", yscale="log")
        axes[0][column].set_title(TASKS[task].title, fontsize=9)
    axes[0][0].legend(fontsize=7)
    IMAGES.mkdir(exist_ok=True)
    for ending in ("png", "svg"):
        metadata = {"Date": None} if ending == "svg" else None
        figure.savefig(IMAGES / f"convergence.{ending}", dpi=80, metadata=metadata)
    plt.close(figure)

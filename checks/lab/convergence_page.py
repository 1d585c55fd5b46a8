"""The page docs/results/convergence.md: tables and plots of what `checks.lab.convergence` has trained."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from checks.bench.page import together
from checks.bench.records import measured_on
from checks.lab.convergence_results import Results, Rows, say
from checks.lab.convergence_tasks import TASKS
from checks.lab.convergence_times import RATES
from checks.lab.convergence_ways import ALONE, WAYS

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "results" / "convergence.md"
IMAGES: Final = ROOT / "docs" / "images"
BEGIN, END = "<!-- tables: python -m checks.lab.convergence --publish -->", "<!-- end of tables -->"
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
    "int16:32": "tab:brown",
    "int10": "tab:green",
    "int8": "tab:olive",
    "thc": "gold",
    "thc:4": "darkgoldenrod",
    "topk:0.01": "tab:red",
    "topk:0.01+keep": "tab:pink",
    "blocktopk:0.05": "tab:orange",
    "powersgd:4": "tab:purple",
}
"""Of those ways that the plot has, in all panels."""

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
    accuracies: tuple[float, ...]
    """By seed; none where a task has none."""

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


def trained(runs: Rows, task: str) -> dict[str, Trained]:
    """Return what there is of a task, by way."""
    found = {}
    for way in WAYS:
        seeds = tuple(sorted(name.rpartition("/")[2] for name in runs if name.rpartition("/")[0] == f"{task}/{way}"))
        own = [runs[f"{task}/{way}/{seed}"] for seed in seeds]
        if own:
            steps = min(len(run["losses"]) for run in own)
            found[way] = Trained(
                seeds=seeds,
                losses=np.array([smoothed(np.array(run["losses"][:steps], np.float64)) for run in own]),
                up=float(np.mean([run["up"] for run in own])),
                down=float(np.mean([run["down"] for run in own])),
                accuracies=tuple(run["accuracy"] for run in own if "accuracy" in run),
            )
    return found


def targets_of(ways: Mapping[str, Trained]) -> dict[str, float]:
    """Return the loss that is to be reached, by seed."""
    losses = ways[BASE].losses
    after = losses[:, int(TARGET_AT * losses.shape[1]) - 1]
    return dict(zip(ways[BASE].seeds, map(float, after), strict=True))


def step_ms(times: Rows, task: str, way: str) -> list[float | None]:
    """Return the median milliseconds of a step, by rate; None where they were not measured."""
    found = (times.get(f"{task}/{rate}", {}).get("ms", {}).get(way) for rate in RATES)
    return [None if one is None else float(one["median"]) for one in found]


def table(results: Results, task: str) -> Iterator[str]:
    """Yield the lines of a task's table."""
    ways = trained(results.trained, task)
    targets = targets_of(ways)
    parameters = next(run["parameters"] for name, run in results.trained.items() if name.startswith(f"{task}/"))
    yield f"### {TASKS[task].title[0].upper()}{TASKS[task].title[1:]}"
    yield ""
    goals = " or ".join(f"{one:.3f}" for one in targets.values())
    yield (
        f"{parameters:,} parameters, {ways[BASE].losses.shape[1]} steps, {len(targets)} seeds; the loss to be reached "
        f"is {goals} by seed.{_alone(results.times, task)}"
    )
    yield ""
    times = [f"ms a step at {rate} | s to the loss" for rate in RATES.values()]
    ends = ["loss at the end", *(["accuracy"] if ways[BASE].accuracies else [])]
    heads = ["", "kB a step up", "down", "steps to the loss", "MB to it", *" | ".join(times).split(" | "), *ends]
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for way, one in ways.items():
        yield f"| {' | '.join([_title(way), *_row(one, targets, step_ms(results.times, task, way))])} |"


def _title(way: str) -> str:
    return way if way.startswith(BASE) or way == "dense" else f"`{way}`"


def _alone(times: Rows, task: str) -> str:
    """Say what a step costs before anything is sent."""
    alone = next((one for one in step_ms(times, task, ALONE) if one is not None), None)
    return "" if alone is None else f" A step without communication takes {alone:.1f} ms."


def _row(one: Trained, targets: Mapping[str, float], times: list[float | None]) -> list[str]:
    cells = [f"{one.up / 1e3:,.0f}", f"{one.down / 1e3:,.0f}"]
    steps = [count for count in one.steps_to(targets) if count is not None]
    mean = float(np.mean(steps)) if len(steps) == len(one.losses) else None
    if mean is None:
        cells += [f"not by {len(one.losses) - len(steps)} of {len(one.losses)} seeds", ""]
    else:
        cells += [f"{mean:.0f} ({min(steps)} to {max(steps)})", f"{mean * one.moved / 1e6:,.1f}"]
    for ms in times:
        cells.append("" if ms is None else f"{ms:,.1f}")
        cells.append("" if ms is None or mean is None else f"{mean * ms / 1e3:,.1f}")
    end = one.losses[:, -1]
    cells.append(f"{end.mean():.3f} ({end.min():.3f} to {end.max():.3f})")
    if one.accuracies:
        low, high = min(one.accuracies), max(one.accuracies)
        cells.append(f"{np.mean(one.accuracies):.3f} ({low:.3f} to {high:.3f})")
    return cells


def measured(results: Results) -> Iterator[str]:
    """Yield where, when and of what the times are."""
    by_machine: dict[str, list[dict[str, Any]]] = {}
    for row in results.times.values():
        by_machine.setdefault(row["machine"], []).append(row)
    for rows in by_machine.values():
        yield f"Steps measured on {measured_on(together(rows))}.  "
    if not results.times:
        yield "Steps were not measured yet (`--times`)."


def tables(results: Results) -> str:
    """Return what the page has between its marks."""
    parts = ["\n".join(measured(results)), *("\n".join(table(results, task)) for task in _tasks(results))]
    return "\n\n".join(["", *parts, ""])


def _tasks(results: Results) -> list[str]:
    return [task for task in TASKS if any(name.startswith(f"{task}/{BASE}/") for name in results.trained)]


def publish(results: Results) -> None:
    """Write tables and plots."""
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{tables(results)}{END}{rest.split(END)[1]}")
    if importlib.util.find_spec("matplotlib"):
        plot(results.trained, _tasks(results))
    else:
        say("without matplotlib the plots stay as they are; measured times are not in them")


def plot(runs: Rows, tasks: list[str]) -> None:
    """Write `convergence.png` and `convergence.svg`: losses by steps, and by what a link has carried."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "switchsum"  # the same file from the same figures
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, len(tasks), figsize=(5 * len(tasks), 7), squeeze=False, layout="constrained")
    for column, task in enumerate(tasks):
        ways = trained(runs, task)
        for way, one in ((way, ways[way]) for way in COLOURS if way in ways):
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

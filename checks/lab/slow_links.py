"""How soon a loss is reached on slow links: `python -m checks.lab.convergence --slow` (`--publish`: the page's table).

Ways that average gradients in every step, as docs/convergence.md compares them, beside those that synchronise a model
every so many steps.  The time is `steps * STEP_MS + bytes / rate`; an average that may take some steps costs only what
it takes beyond them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from checks.bench.records import measured_on, provenance
from checks.lab.convergence_page import Trained, smoothed, targets_of
from checks.lab.convergence_results import RESULTS, Results, Rows, say
from checks.lab.convergence_tasks import TASKS
from checks.lab.convergence_times import Measured, measure
from checks.lab.outer_ways import OUTER, train_outer

ROOT: Final = Path(__file__).parents[2]
KEPT: Final = RESULTS.parent / "slow_links.json"
"""What was trained and measured for this page; ways of docs/convergence.md are in that one's file."""
PAGE: Final = ROOT / "docs" / "results" / "slow-links.md"
BEGIN, END = "<!-- tables: python -m checks.lab.convergence --slow --publish -->", "<!-- end of tables -->"
STEP_MS: Final = 6.0
"""What a step computes, in the formula: what one of the small GPT takes on one core of an AMD EPYC."""
RATES: Final = (10, 50, 200, 1000)
"""Of every link and direction, in Mbit/s."""
MEASURED: Final = ("10mbit", "50mbit", "200mbit")
"""Rates of links on which steps are measured with real ranks."""
EVERY_STEP: Final = ("gloo", "gloo, fp16 hook", "gloo, PowerSGD 4", "dense", "int10", "powersgd:4", "globaltopk:0.02")
"""Ways of docs/convergence.md that stand beside those of `OUTER`."""


def train_slow(
    tasks: Sequence[str], seeds: Sequence[int], steps: int | None, *, again: bool, path: Path = KEPT
) -> None:
    """Train in all ways of `OUTER` what has not been trained; seeds come last."""
    for seed in seeds:
        for task in tasks:
            for name, way in OUTER.items():
                key, count = f"{task}/{name}/{seed}", steps or TASKS[task].steps
                if not again and len(Results.read(path).trained.get(key, {}).get("losses", ())) == count:
                    continue
                run = train_outer(TASKS[task], way, seed, count)
                results = Results.read(path)  # trainings of others may have been added meanwhile
                results.trained[key] = {**run, "on": provenance(None)}
                results.write(path)
                say(f"{key}: loss {np.mean(run['losses'][-10:]):.3f}, {run['down'] / 1e3:.1f} kB a step")


def measure_slow(tasks: Sequence[str], rates: Sequence[str], path: Path = KEPT) -> list[str]:
    """Measure steps of real ranks on limited links (root); return a line for each job that has failed."""
    asked = Measured(tasks=tasks, rates=rates, rounds=1, worker="checks.lab.slow_worker")
    return measure(asked, path)


def of_task(runs: Rows, task: str) -> dict[str, Trained]:
    """Return what there is of a task, by way, with those seeds that all ways of `OUTER` have."""
    common = set.intersection(*(_seeds(runs, task, way) for way in OUTER))
    found = {}
    for way in (*EVERY_STEP, *OUTER):
        seeds = tuple(sorted(_seeds(runs, task, way) & common))
        own = [runs[f"{task}/{way}/{seed}"] for seed in seeds]
        if own:
            found[way] = Trained(
                seeds=seeds,
                losses=np.array([smoothed(np.array(one["losses"], np.float64)) for one in own]),
                up=float(np.mean([one["up"] for one in own])),
                down=float(np.mean([one["down"] for one in own])),
                accuracies=(),
            )
    return found


def _seeds(runs: Rows, task: str, way: str) -> set[str]:
    return {name.rpartition("/")[2] for name in runs if name.rpartition("/")[0] == f"{task}/{way}"}


def seconds(way: str, one: Trained, steps: float, rate: int, step_ms: float = STEP_MS) -> float:
    """Return how long so many steps take by the formula."""
    link_ms = one.moved * 8 / (rate * 1e3)  # of the mean step
    outer = OUTER.get(way)
    if outer is None or not outer.delay:
        return steps * (step_ms + link_ms) / 1e3
    one_average = link_ms * outer.every / outer.fragments
    waits = max(0.0, one_average - outer.delay * step_ms) * outer.fragments / outer.every
    return steps * (step_ms + waits) / 1e3


def table(plain: Results, kept: Results, task: str) -> Iterator[str]:
    """Yield the lines of a task's table."""
    ways = of_task(plain.trained | kept.trained, task)
    targets = targets_of(ways)
    seeds = f"{len(targets)} seed{'s' * (len(targets) > 1)}"
    goals = " or ".join(f"{one:.3f}" for one in targets.values())
    parameters = next(run["parameters"] for name, run in plain.trained.items() if name.startswith(f"{task}/"))
    yield f"### {TASKS[task].title[0].upper()}{TASKS[task].title[1:]}"
    yield ""
    yield (
        f"{parameters:,} parameters, {ways['gloo'].losses.shape[1]} steps, {seeds}, 4 ranks; the loss to "
        f"be reached is {goals} by seed, gloo's after 40 % of the steps."
    )
    yield ""
    rates = [f"{rate} Mbit/s" if rate < 1000 else f"{rate // 1000} Gbit/s" for rate in RATES]
    heads = ["way", "kB a step", "steps to the loss", *(f"s at {rate}" for rate in rates), "loss at the end"]
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for way, one in ways.items():
        yield f"| {' | '.join([_title(way), *_row(way, one, targets)])} |"
    yield from _measured(kept, task, list(ways))


def _measured(kept: Results, task: str, ways: Sequence[str]) -> Iterator[str]:
    """Yield a table of steps that were measured, if there are any."""
    taken = {rate: row for rate in MEASURED if (row := kept.times.get(f"{task}/{rate}"))}
    if not taken:
        return
    yield ""
    yield f"Milliseconds of a step as measured on {measured_on(next(iter(taken.values())))}:"
    yield ""
    yield f"| way | {' | '.join(taken)} |"
    yield "|---" * (1 + len(taken)) + "|"
    for way in ways:
        found = [row["ms"].get(way) for row in taken.values()]
        cells = [f"{one['median']:,.1f}" if one else "" for one in found]
        if any(cells):
            yield f"| {_title(way)} | {' | '.join(cells)} |"


def _title(way: str) -> str:
    return way if way.startswith("gloo") or way == "dense" or way in OUTER else f"`{way}`"


def _row(way: str, one: Trained, targets: Mapping[str, float]) -> list[str]:
    steps = [count for count in one.steps_to(targets) if count is not None]
    cells = [f"{one.moved / 1e3:,.1f}" if one.moved < 1e4 else f"{one.moved / 1e3:,.0f}"]
    if len(steps) < len(one.losses):
        cells += [f"not by {len(one.losses) - len(steps)} of {len(one.losses)} seeds", *[""] * len(RATES)]
    else:
        mean = float(np.mean(steps))
        cells.append(f"{mean:.0f} ({min(steps)} to {max(steps)})")
        cells += [f"{seconds(way, one, mean, rate):.2f}" for rate in RATES]
    end = one.losses[:, -1]
    return [*cells, f"{end.mean():.3f} ({end.min():.3f} to {end.max():.3f})"]


def trained_on(kept: Results) -> str:
    """Say where and when the ways of `OUTER` were trained."""
    places: list[dict[str, Any]] = [run["on"] for run in kept.trained.values()]
    machines, dates = sorted({place["machine"] for place in places}), sorted({place["date"] for place in places})
    return f"Trained on {'; '.join(machines)}, {' to '.join(dict.fromkeys((dates[0], dates[-1])))}."


def tables(plain: Results, kept: Results) -> str:
    """Return what the page has between its marks."""
    tasks = [task for task in TASKS if all(f"{task}/{way}/1" in kept.trained for way in OUTER)]
    if not tasks:
        return "\n\nNothing was trained yet.\n\n"
    return "\n\n".join(["", trained_on(kept), *("\n".join(table(plain, kept, task)) for task in tasks), ""])


def publish(plain: Results, kept: Results, page: Path = PAGE) -> None:
    """Write the tables."""
    before, rest = page.read_text().split(BEGIN)
    page.write_text(f"{before}{BEGIN}{tables(plain, kept)}{END}{rest.split(END)[1]}")

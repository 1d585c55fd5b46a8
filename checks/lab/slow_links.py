"""How soon a loss is reached on slow links: `python -m checks.lab.convergence --slow` (`--publish`: the page's table).

Ways that average gradients in every step, as docs/compression.md compares them, beside those that synchronise a model
every so many steps.  The time is `steps * STEP_MS + bytes / rate`; an average that may take some steps costs only what
it takes beyond them.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from checks.bench.records import measured_on, provenance
from checks.lab.convergence import train
from checks.lab.convergence_page import Trained, smoothed, targets_of
from checks.lab.convergence_results import RESULTS, Results, Rows, added_to, say
from checks.lab.convergence_tasks import TASKS
from checks.lab.convergence_times import Measured, medians, trained
from checks.lab.convergence_ways import ALONE_OVER, WAYS
from checks.lab.outer_ways import OUTER, train_outer

ROOT: Final = Path(__file__).parents[2]
KEPT: Final = RESULTS.parent / "slow_links.json"
"""What was trained and measured for this page; ways of docs/compression.md are in that one's file."""
PAGE: Final = ROOT / "docs" / "results" / "slow-links.md"
BEGIN, END = "<!-- tables: python -m checks.lab.convergence --slow --publish -->", "<!-- end of tables -->"
STEP_MS: Final = 6.0
"""What a step computes, in the formula: what one of the small GPT takes on one core of an AMD EPYC."""
RATES: Final = (10, 50, 200, 1000)
"""Of every link and direction, in Mbit/s."""
MEASURED: Final = ("10mbit", "50mbit", "200mbit")
"""Rates of links on which steps are measured with real ranks."""
EVERY_STEP: Final = (
    *("gloo", "gloo, fp16 hook", "gloo, PowerSGD 4"),
    *("dense", "int10", "thc:4", "powersgd:4", "globaltopk:0.02"),
)
"""Ways of docs/compression.md that stand beside those of `OUTER`."""


RINGS: Final = tuple(name for name in (*EVERY_STEP, *OUTER) if (OUTER[name] if name in OUTER else WAYS[name]).is_ring)
"""Ways of gloo's; the others are ours."""
MEASURED_WAYS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "switchsum": (
            ALONE_OVER["switchsum"],
            *(name for name in (*EVERY_STEP, *OUTER) if name not in RINGS),
        ),
        "gloo": (
            ALONE_OVER["gloo"],
            *(name for name in RINGS if not (name in OUTER and OUTER[name].is_torchft)),
        ),
    }
)
"""By backend.  torchft has to be started in other ways, and moves what gloo's DiLoCo does."""
BASE: Final = "gloo"
OURS: Final = "streaming 50 in 4, int10"
BESIDE: Final = (BASE, "gloo, PowerSGD 4", "gloo, streaming 50 in 4")
"""Ways of others that `OURS` is compared with in a sentence."""


def train_slow(
    tasks: Sequence[str], seeds: Sequence[int], steps: int | None, *, again: bool, path: Path = KEPT
) -> None:
    """Train in all ways of the page what has not been trained; seeds come last."""
    for seed in seeds:
        for task in tasks:
            for name in (*EVERY_STEP, *OUTER):
                key, count = f"{task}/{name}/{seed}", steps or TASKS[task].steps
                known = Results.read().trained | Results.read(path).trained
                if not (again and name in OUTER) and len(known.get(key, {}).get("losses", ())) == count:
                    continue
                if name in OUTER and OUTER[name].is_torchft and importlib.util.find_spec("torchft") is None:
                    say(f"{key}: torchft is not installed")
                    continue
                one = train_outer(TASKS[task], OUTER[name], seed, count) if name in OUTER else None
                run = one or train(TASKS[task], WAYS[name], seed, count)
                with added_to(path) as results:
                    results.trained[key] = {**run, "on": provenance(None)}
                say(f"{key}: loss {np.mean(run['losses'][-10:]):.3f}, {run['down'] / 1e3:.1f} kB a step")


def measure_slow(
    tasks: Sequence[str], rates: Sequence[str], *, again: bool = False, minutes: float | None = None, path: Path = KEPT
) -> list[str]:
    """Measure steps of real ranks on limited links (root) that were not measured; return a line for each failed job.

    Each job, one task on one backend at one rate, is kept when it has ended.  None is begun that is not likely to end
    within `minutes` from now: the same call goes on where this one ends.
    """
    if os.geteuid() != 0:
        return ["steps were not measured: links of limited rate need root"]
    begun_at, longest_s, failed = time.monotonic(), 0.0, []
    for rate, task, backend in ((rate, task, backend) for rate in rates for task in tasks for backend in MEASURED_WAYS):
        key = f"{task}/{rate}"
        known = Results.read(path).times.get(key, {}).get("ms", {})
        ways = [name for name in MEASURED_WAYS[backend] if again or name not in known]
        if not ways:
            continue
        job_at = time.monotonic()
        if minutes is not None and job_at + longest_s > begun_at + 60 * minutes:
            say(f"{key} and what follows are left: the same command goes on here")
            break
        say(f"{key}: {backend}")
        load_before = os.getloadavg()[0]
        asked = Measured(tasks=(task,), rates=(rate,), worker="checks.lab.slow_worker", ways=ways)
        taken, code = trained(backend, rate, asked)
        if code:
            failed.append(f"{key}: {backend} ended with code {code}")
        longest_s = max(longest_s, time.monotonic() - job_at)
        with added_to(path) as results:
            kept = results.times.get(key, {}).get("ms", {})
            results.times[key] = {**provenance(load_before), "ms": {**kept, **medians(taken.get(task, {}))}}
    return failed


def of_task(runs: Rows, task: str) -> dict[str, Trained]:
    """Return what there is of a task, by way, with those seeds that all ways of `OUTER` have."""
    common = set.intersection(*(_seeds(runs, task, way) for way in OUTER if not OUTER[way].is_torchft))
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
    yield ""
    yield from _as_soon(kept, task, ways, targets)
    yield from _measured(kept, task, ways, targets)


def _as_soon(kept: Results, task: str, ways: Mapping[str, Trained], targets: Mapping[str, float]) -> Iterator[str]:
    """Yield how many times as soon as others `OURS` comes to the loss at the lowest rate."""
    named = [name for name in (OURS, *BESIDE) if name in ways]
    steps = {name: _mean_steps(ways[name], targets) for name in named}
    computed = {name: seconds(name, ways[name], count, RATES[0]) for name, count in steps.items() if count is not None}
    taken = kept.times.get(f"{task}/{MEASURED[0]}", {}).get("ms", {})
    measured = {name: steps[name] * taken[name]["median"] / 1e3 for name in computed if name in taken}

    def factor(found: Mapping[str, float], name: str) -> str:
        return f"{found[name] / found[OURS]:.1f}" if name in found and OURS in found else ""

    yield f"Times as soon at the loss with {OURS} at {RATES[0]} Mbit/s:"
    yield ""
    yield "| beside | by the formula | as measured |"
    yield "|---|---|---|"
    yield from (
        f"| {name} | {factor(computed, name)} | {factor(measured, name)} |" for name in BESIDE if name in computed
    )


def _mean_steps(one: Trained, targets: Mapping[str, float]) -> float | None:
    """Return after how many steps the seeds come to the loss; None if one of them does not."""
    steps = [count for count in one.steps_to(targets) if count is not None]
    return float(np.mean(steps)) if len(steps) == len(one.losses) else None


def _measured(kept: Results, task: str, ways: Mapping[str, Trained], targets: Mapping[str, float]) -> Iterator[str]:
    """Yield a table of steps that were measured, if there are any."""
    taken = {rate: row for rate in MEASURED if (row := kept.times.get(f"{task}/{rate}"))}
    if not taken:
        return
    yield ""
    for rate, row in taken.items():
        yield f"Steps at {_rate(rate)} were measured on {measured_on(row)}.{_alone(row['ms'])}  "
    yield ""
    yield f"| way | {' | '.join(f'ms a step at {_rate(rate)} | s to the loss' for rate in taken)} |"
    yield "|---" * (1 + 2 * len(taken)) + "|"
    for way, one in ways.items():
        found = [row["ms"].get(way) for row in taken.values()]
        steps = _mean_steps(one, targets)
        cells = []
        for ms in found:
            cells.append(f"{ms['median']:,.1f}" if ms else "")
            cells.append(f"{steps * ms['median'] / 1e3:,.2f}" if ms and steps is not None else "")
        if any(cells):
            yield f"| {_title(way)} | {' | '.join(cells)} |"


def _alone(taken: Mapping[str, Any]) -> str:
    """Say what a step costs before anything is sent, in the job of each backend where it was measured."""
    found = [f"{taken[name]['median']:,.1f}" for name in ALONE_OVER.values() if name in taken]
    also = f", and {found[1]} ms in the job of gloo" if len(found) > 1 else ""
    return f" Without communication a step took {found[0]} ms{also}." if found else ""


def _rate(rate: str) -> str:
    """Return a rate as people read it."""
    return f"{rate.removesuffix('mbit')} Mbit/s"


def _title(way: str) -> str:
    return way if way.startswith("gloo") or way == "dense" or way in OUTER else f"`{way}`"


def _row(way: str, one: Trained, targets: Mapping[str, float]) -> list[str]:
    steps, mean = [count for count in one.steps_to(targets) if count is not None], _mean_steps(one, targets)
    cells = [f"{one.moved / 1e3:,.1f}" if one.moved < 1e4 else f"{one.moved / 1e3:,.0f}"]
    if mean is None:
        cells += [f"not by {len(one.losses) - len(steps)} of {len(one.losses)} seeds", *[""] * len(RATES)]
    else:
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
    needed = [way for way in OUTER if not OUTER[way].is_torchft]
    tasks = [task for task in TASKS if all(f"{task}/{way}/1" in kept.trained for way in needed)]
    if not tasks:
        return "\n\nNothing was trained yet.\n\n"
    return "\n\n".join(["", trained_on(kept), *("\n".join(table(plain, kept, task)) for task in tasks), ""])


def publish(plain: Results, kept: Results, page: Path = PAGE) -> None:
    """Write the tables."""
    before, rest = page.read_text().split(BEGIN)
    page.write_text(f"{before}{BEGIN}{tables(plain, kept)}{END}{rest.split(END)[1]}")

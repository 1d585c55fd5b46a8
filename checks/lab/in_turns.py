"""Streamed DiLoCo on slow links, here and over gloo in turns: `python -m checks.lab.in_turns` (root, a quiet machine).

In each turn both backends train once at each rate, one after the other, and each job first takes steps alone: what a
step costs without communication.  A machine's speed changes from minute to minute, so a ratio is of one turn.  What was
measured is kept after each job, and the same command goes on there.  `--publish` writes the tables of README.md and
docs/results/slow-links.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from checks.bench import ages
from checks.bench.records import Samples, measured_on, pairs, provenance
from checks.lab.convergence_results import RESULTS, Results, added_to, say
from checks.lab.convergence_tasks import TASKS
from checks.lab.convergence_times import Measured, trained
from checks.lab.convergence_ways import ALONE_OVER

ROOT: Final = Path(__file__).parents[2]
KEPT: Final = RESULTS.parent / "in_turns.json"
TURNS: Final = 5
RATES: Final = ("2mbit", "10mbit")
"""At the lower one the link decides.  At the other, and all above, four ranks on two cores compute for longer."""
TASK: Final = "gpt"
STEPS: Final = 20
"""Steps of each backend alone; a streamed way takes two turns of outer steps."""
STREAMED: Final[Mapping[str, str]] = {"switchsum": "streaming 50 in 4, int10", "gloo": "gloo, streaming 50 in 4"}
BEGIN, END = "<!-- in turns: python -m checks.lab.in_turns --publish -->", "<!-- end of in turns -->"
PAGES: Final = (ROOT / "README.md", ROOT / "docs" / "results" / "slow-links.md")


def measure(rates: Sequence[str], turns: int, path: Path = KEPT) -> list[str]:
    """Measure so many turns of each rate, as far as they are not kept; return a line for each job that has failed."""
    if os.geteuid() != 0:
        return ["nothing was measured: links of limited rate need root"]
    failed = []
    for turn in range(1, turns + 1):
        for rate in rates:
            for backend in ALONE_OVER:
                key = f"{TASK}/{rate}/{backend}/{turn}"
                if key in Results.read(path).times:
                    continue
                say(f"turn {turn} of {turns}, {rate}: {backend}")
                load_before = os.getloadavg()[0]
                ways = (ALONE_OVER[backend], STREAMED[backend])
                asked = Measured(tasks=(TASK,), steps=STEPS, worker="checks.lab.slow_worker", ways=ways)
                taken, code = trained(backend, rate, asked)
                steps = taken.get(TASK, {})
                if code or not all(steps.get(way) for way in ways):
                    failed.append(f"{key} ended with code {code}, and has {sorted(steps)}")
                    continue
                ms = {way: round(statistics.median(steps[way]), 3) for way in ways}
                with added_to(path) as results:
                    results.times[key] = {**provenance(load_before), "ms": ms}
    return failed


def taken_of(kept: Results, rate: str) -> dict[str, list[float]]:
    """Return milliseconds of a step by way, one for each turn that both backends have at a rate."""
    found: dict[str, list[float]] = {}
    turns = {int(key.rpartition("/")[2]) for key in kept.times if key.startswith(f"{TASK}/{rate}/")}
    for turn in sorted(turns):
        rows = [kept.times.get(f"{TASK}/{rate}/{backend}/{turn}") for backend in ALONE_OVER]
        for row in rows if all(rows) else ():
            for way, ms in row["ms"].items() if row else ():
                found.setdefault(way, []).append(ms)
    return found


def table(kept: Results) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "|  | switchsum | others | speed-up (below 1: slower) | what was measured |"
    yield "|---|---|---|---|---|"
    for rate in RATES:
        if not (found := taken_of(kept, rate)):
            continue
        ours, theirs = (Samples(values=found[STREAMED[backend]]) for backend in STREAMED)
        ratio = pairs(ours.values, theirs.values)
        low, high = ratio.interval
        times = [f"{_times_alone(found, backend):.3g}" for backend in ALONE_OVER]
        links = f"links of {rate.removesuffix('mbit')} Mbit/s, 4 workers, streamed DiLoCo"
        speed_up = f"gloo {ratio.median:.3g} ({low:.3g} to {high:.3g})"
        what = f"{len(ours.values)} turns, int10 here, float32 over gloo; beside steps of the same job that do not "
        what += f"communicate, a step takes {times[0]} times as long here, and {times[1]} times over gloo"
        yield f"| {links} | {ours.median:.3g} ms a step | gloo {theirs.median:.3g} | {speed_up} | {what} |"


def _times_alone(found: Mapping[str, Sequence[float]], backend: str) -> float:
    """Return how many times a step without communication, taken in the same job, a step takes."""
    steps = zip(found[STREAMED[backend]], found[ALONE_OVER[backend]], strict=True)
    return statistics.median(streamed / alone for streamed, alone in steps)


def text_of(kept: Results) -> str:
    """Return what a page has between its marks; nothing where nothing was measured."""
    if not kept.times:
        return ""
    lines = "\n".join(table(kept))
    last: dict[str, Any] = list(kept.times.values())[-1]
    what = f"{TASKS[TASK].title[0].upper()}{TASKS[TASK].title[1:]}, a model averaged every 50 steps in four fragments."
    return f"\n\n{lines}\n\n{what} Measured on {measured_on(last)}.\n\n"


def publish(kept: Results, pages: Sequence[Path] = PAGES) -> None:
    """Write the table to the pages."""
    for page in pages:
        before, rest = page.read_text().split(BEGIN)
        page.write_text(f"{before}{BEGIN}{text_of(kept)}{END}{rest.split(END)[1]}")


def main() -> int:
    """Measure, and publish; returns 1 where something could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m checks.lab.in_turns", description=__doc__)
    parser.add_argument("--rates", nargs="+", choices=RATES, default=RATES)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--publish", action="store_true", help="write the tables of the pages afterwards")
    parser.add_argument("--quick", action="store_true", help="one turn at the highest rate, of which nothing is kept")
    options = parser.parse_args()
    if options.quick:
        with tempfile.TemporaryDirectory(prefix="switchsum-bench-") as scratch:
            path = Path(scratch, "results.json")
            failed = measure(RATES[-1:], 1, path)
            say(text_of(Results.read(path)))
    else:
        failed = measure(options.rates, options.turns)
        if options.publish:
            publish(Results.read(KEPT))
            ages.mark()
    for line in failed:
        say(line)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""What a benchmark leaves behind: records with stable names, a table for people, JSON for programs."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import platform
import re
import shutil
import statistics
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from checks.bench.accuracy import beside_speed
from checks.bench.code import digests

LARGE_SPREAD = 0.3
"""A spread beyond it is marked in tables: such a figure says little."""
BOUND = "bound by"
RESULTS = Path(__file__).parent / "results" / "records.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One figure, with what it was measured under and, where a peer ran in the same run, the peer's."""

    name: str
    """Stable, dotted: `switch.contributions.256.native`."""
    value: float
    """Median of the runs."""
    unit: str
    conditions: str
    """What it takes to repeat the figure."""
    spread: float = 0.0
    """Half the distance between the best and the worst run, as a share of the median."""
    peer: str | None = None
    """Who ran beside it: `bmv2`, `gloo`."""
    peer_value: float | None = None
    ratio: float | None = None
    """How many times better than the peer, the better way round for the unit."""
    more: dict[str, float] = field(default_factory=dict)
    """Further figures of the same runs, by what their column is called."""
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Of those of `more` that are medians of ratios of pairs: what they lie between, with 95 % confidence."""
    bound: str = ""
    """What worked for which share of the time, the most first, where that was measured: `link 92%, processors 40%`."""
    command: str = ""
    """What measures it; filled in when it is saved."""
    runs: int = 0
    """How many runs the median is of; 0: not recorded."""
    machine: str = ""
    """Machine and versions, likewise."""
    commit: str = ""
    """What was measured, likewise; with a plus sign where files had been changed since."""
    code: str = ""
    """Digests of the groups of files that were measured, likewise."""
    date: str = ""
    """Day of the measurement (UTC), likewise."""
    load: tuple[float, float] | None = None
    """The machine's load average, of a minute, before and after, likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The figures of several runs of one thing."""

    values: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, measure: Callable[[], float], runs: int) -> Samples:
        """Measure so many times."""
        return cls(values=[measure() for _ in range(runs)])

    @property
    def median(self) -> float:
        """The figure to quote."""
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """Half the distance between the extremes, as a share of the median."""
        return (max(self.values) - min(self.values)) / 2 / self.median

    @property
    def interval(self) -> tuple[float, float]:
        """Between which two values the median of endless runs lies, with 95 % confidence; of many runs.

        By ranks, whatever the distribution (Conover, Practical Nonparametric Statistics, section 3.2).
        """
        reach = 0.98 * len(self.values) ** 0.5
        ordered, middle = sorted(self.values), (len(self.values) - 1) / 2
        return ordered[max(math.floor(middle - reach), 0)], ordered[min(math.ceil(middle + reach), len(ordered) - 1)]


def record(name: str, samples: Samples, unit: str, conditions: str) -> Record:
    """Make a record of what ran alone."""
    return Record(
        name=name,
        value=samples.median,
        unit=unit,
        conditions=conditions,
        spread=round(samples.spread, 4),
        runs=len(samples.values),
    )


def pairs(ours: Sequence[float], theirs: Sequence[float]) -> Samples:
    """Return how many times faster we were in each turn, from the seconds that each took in it."""
    return Samples(values=[their / our for our, their in zip(ours, theirs, strict=True)])


def beside(alone: Record, peer: str, peer_samples: Samples, *, smaller_is_better: bool = False) -> Record:
    """Add the peer's figure of the same run."""
    theirs = peer_samples.median
    ratio = theirs / alone.value if smaller_is_better else alone.value / theirs
    return dataclasses.replace(alone, peer=peer, peer_value=theirs, ratio=ratio)


def exceeded(records: Sequence[Record], limits: Mapping[str, float]) -> list[str]:
    """Return which records are above their limits, in words; `limits` has them by the records' names."""
    return [
        f"{item.name}: {number(item.value)} {item.unit}, at most {limits[item.name]:g}"
        for item in records
        if item.value > limits.get(item.name, math.inf)
    ]


def show(console: Console, title: str, records: Sequence[Record]) -> None:
    """Print records as a table."""
    further = list(dict.fromkeys(column for item in records for column in item.more))
    table = Table(title=title, title_justify="left")
    bounds = any(item.bound for item in records)
    for name, justify in (
        ("name", "left"),
        ("median", "right"),
        ("spread", "right"),
        ("peer", "right"),
        ("ratio", "right"),
        *((column, "right") for column in further),
        *([(BOUND, "left")] if bounds else []),
    ):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for item in records:
        peer = "" if item.peer is None or item.peer_value is None else f"{item.peer} {number(item.peer_value)}"
        ratio = "" if item.ratio is None else f"{item.ratio:.2f}"
        more = [number(item.more[column]) if column in item.more else "" for column in further]
        more += [item.bound] * bounds
        name = item.name + beside_speed(item.name, item.conditions)
        table.add_row(
            name,
            f"{number(item.value)} {item.unit}",
            spread(item.spread),
            peer,
            ratio,
            *more,
            *([item.bound] if bounds else []),
        )
    console.print(table)


def number(value: float) -> str:
    """Write a figure as people read it."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def spread(share: float) -> str:
    """Write a spread; a large one is marked."""
    return f"{share:.0%}" + " (!)" * (share > LARGE_SPREAD)


def machine() -> str:
    """Describe what the figures were measured on."""
    cpu = "unknown CPU"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    cores = sum(line.startswith("processor") for line in Path("/proc/cpuinfo").read_text().splitlines())
    found = {name: _version(name) for name in ("switchsum", "numpy", "numba", "llvmlite", "torch")}
    packages = ", ".join(f"{name} {known}" for name, known in found.items() if known) + _openmpi()
    return f"{cpu}, {cores} cores, Linux {platform.release()}, Python {platform.python_version()}, {packages}"


def processor(described: str) -> str:
    """Return the kind of processor of a machine that `machine` has described."""
    model, _, rest = described.partition(",")
    model = re.sub(r"\((R|TM)\)|@.*|\b(CPU|Processor|\d+-Core)\b", " ", model, flags=re.IGNORECASE)
    cores = rest.split(",")[0]
    return " ".join(model.split()) + ("," + cores if cores else "") or "not recorded"


def provenance(load_before: float | None = None) -> dict[str, Any]:
    """Describe where, when and of what figures are that were measured just now, as fields of `Record`."""
    now = os.getloadavg()[0]
    return {
        "machine": machine(),
        "commit": _commit(),
        "code": digests(),
        "date": datetime.now(UTC).date().isoformat(),
        "load": (round(now if load_before is None else load_before, 1), round(now, 1)),
    }


def measured_on(row: Mapping[str, Any]) -> str:
    """Say where and when a recorded figure was measured, as far as that was recorded."""
    words = [row.get("machine") or "a machine that was not recorded"]
    words += [f"commit {row['commit']}"] if row.get("commit") else ["commit not recorded"]
    words += [row["date"]] if row.get("date") else ["date not recorded"]
    words += ["load {} to {}".format(*row["load"])] if row.get("load") else ["load not recorded"]
    return ", ".join(words)


def _commit() -> str:
    """Return the commit of this clone, with a plus sign where tracked files have changed; empty where git is not."""
    if shutil.which("git") is None:
        return ""
    here = ["git", "-C", str(RESULTS.parent)]
    found = subprocess.run([*here, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=False)
    outside = [":/", ":(exclude,top)checks/bench/results", ":(exclude,top)docs", ":(exclude,top)README.md"]
    changed = subprocess.run([*here, "diff", "--quiet", "HEAD", "--", *outside], capture_output=True, check=False)
    return found.stdout.strip() + "+" * (changed.returncode == 1)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _openmpi() -> str:
    if shutil.which("mpirun") is None:
        return ""
    said = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=False).stdout
    return f", Open MPI {said.splitlines()[0].split()[-1]}" if said else ""


def save(records: Sequence[Record], command: str, path: Path = RESULTS, load_before: float | None = None) -> None:
    """Write records that were measured just now; those of other names or kinds of processor stay."""
    kept = json.loads(path.read_text()) if path.exists() else []
    here = provenance(load_before)
    made = [dataclasses.asdict(dataclasses.replace(item, command=command, **here)) for item in records]
    again = {_key(row) for row in made}
    rows = [row for row in kept if _key(row) not in again] + made
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(sorted(rows, key=_key), indent=1) + "\n")


def _key(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["name"], processor(row.get("machine", ""))

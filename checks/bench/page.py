"""The committed figures as pages: all in docs/results/, a choice in docs/benchmarks.md and in the README."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from checks.bench.accuracy import beside_speed
from checks.bench.plots import plot
from checks.bench.records import RESULTS, measured_on, number, processor, spread

ROOT: Final = Path(__file__).parents[2]
BEGIN, END = "<!-- figures: python -m checks.bench --publish -->", "<!-- end of figures -->"
HEADLINES: Final = {
    "allreduce.200mbit.mtu1500.10MB.4workers.256": "allreduce of 10 MB, 4 workers, links of 200 Mbit/s",
    "allreduce.shm.100MB.4workers.2048": "allreduce of 100 MB, 4 workers, shared memory",
    "allreduce.shm.4B.4workers.2048": "allreduce of 4 bytes, 4 workers, shared memory",
    "allreduce.veth.4workers.256.embedded": "allreduce, 4 workers, veth links without a limit, in place of BMv2",
    "start.4workers.switchsum": "a job of 4 workers from command to end",
}
"""Records of the README, all with the options that a user gets who gives none."""
CHOICE: Final = {
    **HEADLINES,
    "allreduce.200mbit.mtu1500.10MB.4workers.256-int16": "10 MB, 4 workers, links of 200 Mbit/s, int16 lanes",
    "allreduce.1gbit.mtu9000.10MB.4workers.2048": "10 MB, 4 workers, links of 1 Gbit/s, 2,048 lanes, MTU 9,000",
    "allreduce.1gbit.mtu9000.10MB.4workers.2048-int16": "10 MB, 4 workers, links of 1 Gbit/s, MTU 9,000, int16 lanes",
    "scaling.200mbit.10MB.16workers.2048": "10 MB, 16 workers, links of 200 Mbit/s, 2,048 lanes, MTU 9,000",
    "allreduce.shm.100MB.2workers.2048": "100 MB, 2 workers, shared memory",
    "allreduce.shm.100MB.8workers.2048": "100 MB, 8 workers, shared memory",
    "allreduce.shm.1MB.4workers.2048": "1 MB, 4 workers, shared memory",
    "train.200mbit.gpt": "steps of `examples/gpt.py`, links of 200 Mbit/s",
    "train.200mbit.images": "steps of `examples/images.py`, links of 200 Mbit/s",
    "train.1gbit.gpt": "steps of `examples/gpt.py`, links of 1 Gbit/s",
    "train.1gbit.images": "steps of `examples/images.py`, links of 1 Gbit/s",
    "train.unlimited.gpt": "steps of `examples/gpt.py`, one machine",
}
"""Records of docs/benchmarks.md, those among them where a peer is ahead."""

PAGES: Final = {
    "switch": ("The switch alone", {"switch.": "Contributions", "load.": "Loading the program"}),
    "kernels": ("Kernels", {"kernels.": "Kernels beside a plain copy"}),
    "memory": (
        "Allreduce on one machine",
        {"allreduce.shm.": "Shared memory", "allreduce.udp.": "UDP sockets on the loopback"},
    ),
    "veth": (
        "Both switches on the same links",
        {"allreduce.veth.": "Allreduce over veth pairs without limits, both switches"},
    ),
    "links": (
        "Allreduce on limited links",
        {
            f"allreduce.{rate}.mtu{mtu}": f"{title}, MTU {mtu:,}"
            for rate, title in (("100mbit", "100 Mbit/s"), ("200mbit", "200 Mbit/s"), ("1gbit", "1 Gbit/s"))
            for mtu in (1500, 9000)
        }
        | {"scaling.": "More workers"},
    ),
    "training": (
        "Steps of trainings",
        {
            "train.200mbit.": "Links of 200 Mbit/s",
            "train.1gbit.": "Links of 1 Gbit/s",
            "train.unlimited.": "One machine, no links",
        },
    ),
    "loss": ("Loss and its recovery", {"loss.": "Allreduce with frames lost"}),
    "start": ("Starting", {"start.": "From command to end"}),
}
"""Pages of docs/results: their titles, and the titles of their tables by how the names of their records begin."""

Row = Mapping[str, Any]


def table(rows: Sequence[Row], names: Mapping[str, str] | None = None) -> list[str]:
    """Return a Markdown table, with columns for each kind of processor; with `names` only those records, called so."""
    kept = [row for row in rows if names is None or row["name"] in names]
    kinds = list(dict.fromkeys(processor(row.get("machine", "")) for row in kept))
    found = {(row["name"], processor(row.get("machine", ""))): row for row in kept}
    columns = _columns(kept, all_of_them=names is None)
    heads = [f"{column}, {kind}" if len(kinds) > 1 else column for kind in kinds for column in columns]
    lines = [f"| {' | '.join(['figure', *heads])} |", "|" + "---|" * (1 + len(heads))]
    for name in dict.fromkeys(row["name"] for row in kept) if names is None else names:
        conditions = next((row["conditions"] for row in kept if row["name"] == name), "")
        title = (f"`{name}`" if names is None else names[name]) + beside_speed(name, conditions)
        cells = [cell for kind in kinds for cell in _cells(found.get((name, kind)), columns)]
        lines.append(f"| {' | '.join([title, *cells])} |")
    return lines


_PEER: Final = "beside it"


def _columns(rows: Sequence[Row], *, all_of_them: bool) -> list[str]:
    """Return what is said of each record: all that any of them has, or ratios alone."""
    further = list(dict.fromkeys(column for row in rows for column in row.get("more", {})))
    ratios = [column for column in further if column.startswith("x ")]
    peer = [_PEER] if any(row["peer"] is not None for row in rows) else []
    return ["median", "spread", *peer, *(further if all_of_them else ratios)]


def _cells(row: Row | None, columns: Sequence[str]) -> list[str]:
    if row is None:
        return ["not measured", *[""] * (len(columns) - 1)]
    cells = {"median": f"{number(row['value'])} {row['unit']}", "spread": spread(row["spread"])}
    if row["peer"] is not None:
        cells[_PEER] = f"{row['peer']}: {number(row['peer_value'])} {row['unit']}; ratio {row['ratio']:.2f}"
    intervals = row.get("intervals", {})
    for column, value in row.get("more", {}).items():
        between = " ({} to {})".format(*map(number, intervals[column])) if column in intervals else ""
        cells[column] = number(value) + between
    return [cells.get(column, "") for column in columns]


def section(title: str, rows: Sequence[Row]) -> list[str]:
    """Return one table with its title, commands, machines and conditions."""
    commands = dict.fromkeys(row["command"] for row in rows if row.get("command"))
    conditions: dict[str, list[str]] = {}
    for row in rows:
        conditions.setdefault(row["conditions"], []).append(row["name"])
    lines = [f"## {title}", "", *table(rows), ""]
    lines += [f"`{command}`  " for command in commands]
    lines += _measured(rows)
    if len(conditions) == 1:
        return [*lines, f"{next(iter(conditions))}.", ""]
    return [
        *lines,
        "",
        *(f"- {text}: {', '.join(f'`{name}`' for name in names)}" for text, names in conditions.items()),
        "",
    ]


def publish() -> None:
    """Write the recorded figures: all pages of docs/results, and between the marks of the two others."""
    records = json.loads(RESULTS.read_text())
    if importlib.util.find_spec("matplotlib"):
        plot(records)
    for page, lines in results(records).items():
        path = ROOT / "docs" / "results" / f"{page}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(lines))
    for path, names in ((ROOT / "README.md", HEADLINES), (ROOT / "docs" / "benchmarks.md", CHOICE)):
        order = list(names)
        chosen = sorted((row for row in records if row["name"] in names), key=lambda row: order.index(row["name"]))
        before, rest = path.read_text().split(BEGIN)
        after = rest.split(END)[1]
        lines = ["", *table(chosen, names), "", *_measured(chosen), "", END]
        path.write_text("\n".join([before + BEGIN, *lines]) + after)


def results(records: Iterable[Row]) -> dict[str, list[str]]:
    """Return the lines of each page that has records."""
    kept, pages = list(records), {}
    for page, (title, tables) in PAGES.items():
        lines = []
        for prefix, name in tables.items():
            rows = sorted((row for row in kept if row["name"].startswith(prefix)), key=_place)
            lines += section(name, rows) if rows else []
        if lines:
            what = f"Made from `checks/bench/results/records.json`; [benchmarks.md]({_UP}) says how each is taken."
            pages[page] = [f"# {title}", "", what, "", *lines]
    return pages


_UP: Final = "../benchmarks.md"


def _measured(rows: Iterable[Row]) -> list[str]:
    """Return a line for each machine and day on which rows were measured."""
    return [f"Measured on {place}.  " for place in dict.fromkeys(measured_on(row) for row in rows)]


def _place(row: Row) -> tuple[object, ...]:
    """Sort by the numbers in a name as numbers."""
    scale = {"B": 1, "kB": 1_000, "MB": 1_000_000}
    words = []
    for word in re.split(r"[.]", row["name"]):
        match = re.fullmatch(r"(\d+)(B|kB|MB|workers|)", word)
        words.append((1, int(match[1]) * scale.get(match[2], 1), "") if match else (0, 0, word))
    return tuple(words)

"""The committed figures as tables: in docs/benchmarks.md all of them, in the README those that matter most."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from checks.bench.plots import plot
from checks.bench.records import RESULTS, number

ROOT = Path(__file__).parents[2]
BEGIN, END = "<!-- figures: python -m checks.bench --publish -->", "<!-- end of figures -->"
HEADLINES = {
    "allreduce.200mbit.mtu1500.10MB.4workers.256": "allreduce of 10 MB, 4 workers, links of 200 Mbit/s",
    "allreduce.shm.100MB.4workers.2048": "allreduce of 100 MB, 4 workers, shared memory",
    "allreduce.shm.4B.4workers.2048": "allreduce of 4 bytes, 4 workers, shared memory",
    "allreduce.veth.4workers.256.embedded": "allreduce, 4 workers, veth links without a limit, in place of BMv2",
    "start.4workers.switchsum": "a job of 4 workers from command to end",
}
"""Records of the README, all with the options that a user gets who gives none."""


TABLES = {
    "switch.": "The switch alone",
    "kernels.": "Kernels beside a plain copy",
    "allreduce.shm.": "Allreduce on one machine, shared memory",
    "allreduce.udp.": "Allreduce over UDP sockets on the loopback",
    "allreduce.veth.": "Allreduce over veth pairs without limits, both switches",
    "allreduce.100mbit.mtu1500": "Allreduce on links of 100 Mbit/s, MTU 1,500",
    "allreduce.100mbit.mtu9000": "Allreduce on links of 100 Mbit/s, MTU 9,000",
    "allreduce.200mbit.mtu1500": "Allreduce on links of 200 Mbit/s, MTU 1,500",
    "allreduce.200mbit.mtu9000": "Allreduce on links of 200 Mbit/s, MTU 9,000",
    "allreduce.1gbit.mtu1500": "Allreduce on links of 1 Gbit/s, MTU 1,500",
    "allreduce.1gbit.mtu9000": "Allreduce on links of 1 Gbit/s, MTU 9,000",
    "train.200mbit.": "Steps of trainings on links of 200 Mbit/s",
    "train.1gbit.": "Steps of trainings on links of 1 Gbit/s",
    "train.unlimited.": "Steps of trainings on one machine",
    "loss.": "Loss",
    "scaling.": "More workers",
    "start.": "From command to end",
    "load.": "Loading the program",
}
"""Titles of the tables, by how the names of their records begin."""

Row = Mapping[str, Any]


def table(rows: Sequence[Row], names: Mapping[str, str] | None = None) -> list[str]:
    """Return a Markdown table; with `names` only those records, called so."""
    kept = [row for row in rows if names is None or row["name"] in names]
    further = list(dict.fromkeys(column for row in kept for column in row.get("more", {}))) if names is None else []
    ratios = [] if names is None else ["x gloo", "x Open MPI"]
    has_peer = any(row["peer"] is not None for row in kept)
    further += [column for column in ratios if any(column in row.get("more", {}) for row in kept)]
    columns = ["figure", "median", "spread", *(["beside it in the same run", "ratio"] if has_peer else []), *further]
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for row in kept:
        title = f"`{row['name']}`" if names is None else names[row["name"]]
        cells = [title, f"{number(row['value'])} {row['unit']}", f"{row['spread']:.0%}"]
        if has_peer:
            peer = "" if row["peer"] is None else f"{row['peer']}: {number(row['peer_value'])} {row['unit']}"
            cells += [peer, "" if row["ratio"] is None else f"{row['ratio']:.2f}"]
        cells += [number(row["more"][column]) if column in row.get("more", {}) else "" for column in further]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def section(title: str, rows: Sequence[Row]) -> list[str]:
    """Return one table with its title, commands, machines and conditions."""
    commands = dict.fromkeys(row["command"] for row in rows if row.get("command"))
    machines = dict.fromkeys(row["machine"] for row in rows if row.get("machine"))
    conditions: dict[str, list[str]] = {}
    for row in rows:
        conditions.setdefault(row["conditions"], []).append(row["name"])
    lines = [f"### {title}", "", *table(rows), ""]
    lines += [f"`{command}`  " for command in commands]
    lines += [f"Measured on {machine}.  " for machine in machines]
    if len(conditions) == 1:
        return [*lines, f"{next(iter(conditions))}.", ""]
    return [
        *lines,
        "",
        *(f"- {text}: {', '.join(f'`{name}`' for name in names)}" for text, names in conditions.items()),
        "",
    ]


def publish() -> None:
    """Write the recorded figures into both pages, between their marks."""
    records = json.loads(RESULTS.read_text())
    if importlib.util.find_spec("matplotlib"):
        plot(records)
    order = [*HEADLINES, *(row["name"] for row in records)]
    ranked = sorted(records, key=lambda row: order.index(row["name"]))
    where = dict.fromkeys(row["machine"] for row in records if row["name"] in HEADLINES)
    sections = []
    for prefix, title in TABLES.items():
        rows = sorted((row for row in records if row["name"].startswith(prefix)), key=_place)
        sections += section(title, rows) if rows else []
    pages = {
        ROOT / "README.md": [*table(ranked, HEADLINES), "", *(f"Measured on {machine}." for machine in where)],
        ROOT / "docs" / "benchmarks.md": sections,
    }
    for path, lines in pages.items():
        before, rest = path.read_text().split(BEGIN)
        after = rest.split(END)[1]
        path.write_text("\n".join([before + BEGIN, "", *lines, "", END + after]))


def _place(row: Row) -> tuple[object, ...]:
    """Sort by the numbers in a name as numbers."""
    scale = {"B": 1, "kB": 1_000, "MB": 1_000_000}
    words = []
    for word in re.split(r"[.]", row["name"]):
        match = re.fullmatch(r"(\d+)(B|kB|MB|workers|)", word)
        words.append((1, int(match[1]) * scale.get(match[2], 1), "") if match else (0, 0, word))
    return tuple(words)

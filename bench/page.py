"""The committed figures as tables: in docs/benchmarks.md all of them, in the README those that matter most."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bench.records import RESULTS, machine, number

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- figures: python -m bench --publish -->", "<!-- end of figures -->"
HEADLINES = {
    "switch.contributions.256.native": "switch alone, 256 lanes, contributions a second on one core",
    "switch.contributions.2048.native": "switch alone, 2,048 lanes, contributions a second on one core",
    "allreduce.shm.100MB.4workers.256": "allreduce of 100 MB float32, 4 workers, shared memory, 256 lanes",
    "allreduce.shm.100MB.4workers.2048": "the same with 2,048 lanes",
    "load.cold.256": "loading the program, 256 lanes, compiled anew",
    "load.cached.256": "the same from the cache on disk",
}


def rows(records: Iterable[Mapping[str, Any]], names: Mapping[str, str] | None) -> list[str]:
    """Return Markdown rows; with `names` only those records, called so."""
    lines = ["| figure | median | spread | beside it in the same run | ratio |", "|---|---|---|---|---|"]
    for row in records:
        if names is not None and row["name"] not in names:
            continue
        title = f"`{row['name']}`" if names is None else names[row["name"]]
        peer = "" if row["peer"] is None else f"{row['peer']}: {number(row['peer_value'])} {row['unit']}"
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
        lines.append(f"| {title} | {number(row['value'])} {row['unit']} | {row['spread']:.0%} | {peer} | {ratio} |")
    return lines


def publish() -> None:
    """Write the recorded figures into both pages, between their marks."""
    records = json.loads(RESULTS.read_text())
    order = [*HEADLINES, *(row["name"] for row in records)]
    ranked = sorted(records, key=lambda row: order.index(row["name"]))
    where = f"Measured on {machine()}."
    conditions = [f"- `{row['name']}`: {row['conditions']}" for row in records]
    pages = {
        ROOT / "README.md": [*rows(ranked, HEADLINES), "", where],
        ROOT / "docs" / "benchmarks.md": [where, "", *rows(records, None), "", "Conditions:", "", *conditions],
    }
    for path, lines in pages.items():
        before, rest = path.read_text().split(BEGIN)
        after = rest.split(END)[1]
        path.write_text("\n".join([before + BEGIN, "", *lines, "", END + after]))

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
from checks.bench.records import BOUND, LARGE_SPREAD, RESULTS, measured_on, number, processor, spread

ROOT: Final = Path(__file__).parents[2]
BEGIN, END = "<!-- figures: python -m checks.bench --publish -->", "<!-- end of figures -->"
HEADLINES: Final = {
    "allreduce.200mbit.mtu1500.10MB.4workers.256": (
        "links of 200 Mbit/s, 4 workers",
        "allreduce of 10 MB over veth links that tc limits (tbf, bucket of 256 KiB for all); "
        "switchsum uses AF_PACKET sockets, the others TCP",
    ),
    "allreduce.1gbit.mtu1500.10MB.4workers.256": ("links of 1 Gbit/s, 4 workers", "the same"),
    "allreduce.200mbit.mtu1500.4B.4workers.256": (
        "links of 200 Mbit/s, 4 workers, one value",
        "allreduce of 4 bytes, 200 in a row",
    ),
    "start.4workers.switchsum": ("a job of 4 workers from command to end", "caches on disk are warm"),
}
"""Records of the README: what they are called and how each was taken, all with the options of a user who gives none.

None of them varies much, and in two a peer is ahead."""
_STEPS: Final = "three trainings of ten steps in turn, DistributedDataParallel, float32"
CHOICE: Final = {
    **HEADLINES,
    "allreduce.shm.100MB.4workers.2048": (
        "one machine, 4 workers",
        "allreduce of 100 MB in shared memory; gloo on the loopback, Open MPI in its own shared memory",
    ),
    "allreduce.shm.100MB.8workers.2048": ("one machine, 8 workers", "the same"),
    "allreduce.shm.4B.4workers.2048": ("one machine, 4 workers, one value", "allreduce of 4 bytes, 200 in a row"),
    "allreduce.veth.4workers.256.embedded": (
        "in place of BMv2, 4 workers",
        "allreduce of 4 MB, the same P4 program in both switches, over veth links whose rate is not limited",
    ),
    "allreduce.200mbit.mtu1500.10MB.4workers.256-int16": (
        "links of 200 Mbit/s, 4 workers, int16 lanes",
        "allreduce of 10 MB, MTU 1,500",
    ),
    "allreduce.1gbit.mtu9000.10MB.4workers.2048": (
        "links of 1 Gbit/s, MTU 9,000, 2,048 lanes, 4 workers",
        "allreduce of 10 MB",
    ),
    "allreduce.1gbit.mtu9000.10MB.4workers.2048-int16": (
        "links of 1 Gbit/s, MTU 9,000, int16 lanes, 4 workers",
        "allreduce of 10 MB",
    ),
    "scaling.200mbit.10MB.16workers.2048": (
        "links of 200 Mbit/s, MTU 9,000, 2,048 lanes, 16 workers",
        "allreduce of 10 MB",
    ),
    "allreduce.shm.100MB.2workers.2048": ("one machine, 2 workers", "allreduce of 100 MB"),
    "allreduce.shm.1MB.4workers.2048": ("one machine, 4 workers, 1 MB", "allreduce of 1 MB"),
    "allreduce.veth.4workers.2048.embedded": (
        "in place of BMv2, 2,048 lanes, 4 workers",
        "allreduce of 4 MB, veth links without a limit",
    ),
    "train.200mbit.gpt": ("steps of `examples/gpt.py`, links of 200 Mbit/s", _STEPS),
    "train.200mbit.images": ("steps of `examples/images.py`, links of 200 Mbit/s", "the same"),
    "train.1gbit.gpt": ("steps of `examples/gpt.py`, links of 1 Gbit/s", "the same"),
    "train.1gbit.images": ("steps of `examples/images.py`, links of 1 Gbit/s", "the same"),
    "train.1gbit.words": (
        "steps of `examples/words.py`, links of 1 Gbit/s",
        "the same; sparse gradients on both sides",
    ),
    "train.1gbit.layers-small": ("steps of a stack of layers, links of 1 Gbit/s", "the same as for the examples"),
    "train.unlimited.gpt": ("steps of `examples/gpt.py`, one machine", "the same"),
    "train.unlimited.layers-small": ("steps of a stack of layers, one machine", "the same"),
}
"""Records of docs/benchmarks.md, those among them where a peer is ahead."""
SPEED_UP: Final = "speed-up (below 1: slower)"
OTHERS: Final = {"gloo": "gloo", "openmpi": "Open MPI", "bmv2": "BMv2"}

PAGES: Final = {
    "switch": (
        "The switch alone",
        {
            "switch.": "Contributions",
            "programs.": "Programs, files to files",
            "interfaces.": "Programs, over veth pairs",
            "loopback.": "A router between UDP sockets, without root",
            "tables.": "Programs with large tables, files to files",
            "control.": "Entries over P4Runtime, and starts",
            "load.": "Loading the program",
        },
    ),
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
    "start": ("Starting", {"start.": "From command to end", "torch.": "What PyTorch's calls cost"}),
}
"""Pages of docs/results: their titles, and the titles of their tables by how the names of their records begin."""

Row = Mapping[str, Any]


def table(rows: Sequence[Row]) -> list[str]:
    """Return a Markdown table of records, with columns for each kind of processor."""
    kinds, found = _by_kind(rows)
    columns = _columns(rows)
    heads = [_head(column, kind, kinds) for kind in kinds for column in columns]
    lines = [f"| {' | '.join(['figure', *heads])} |", "|" + "---|" * (1 + len(heads))]
    for name in dict.fromkeys(row["name"] for row in rows):
        conditions = next(row["conditions"] for row in rows if row["name"] == name)
        cells = [cell for kind in kinds for cell in _cells(found.get((name, kind)), columns)]
        lines.append(f"| {' | '.join([f'`{name}`' + beside_speed(name, conditions), *cells])} |")
    return lines


def choice(rows: Sequence[Row], figures: Mapping[str, tuple[str, str]]) -> list[str]:
    """Return a Markdown table of some figures, beside those of others' and how each was taken."""
    _, found = _by_kind(rows)
    kinds = sorted({kind for name, kind in found if name in figures})
    heads = [_head(column, kind, kinds) for kind in kinds for column in ("switchsum", "others", SPEED_UP)]
    lines = [f"| {' | '.join(['', *heads, 'what was measured'])} |", "|" + "---|" * (2 + len(heads))]
    for name, (title, how) in figures.items():
        conditions = next((row["conditions"] for row in rows if row["name"] == name), "")
        cells = [cell for kind in kinds for cell in _figure(name, kind, found)]
        lines.append(f"| {' | '.join([title + beside_speed(name, conditions), *cells, how])} |")
    return lines


def _by_kind(rows: Sequence[Row]) -> tuple[list[str], dict[tuple[str, str], Row]]:
    """Return the kinds of processors, and rows by name and kind."""
    found = {(row["name"], processor(row.get("machine", ""))): row for row in rows}
    return sorted({kind for _, kind in found}), found


def _head(column: str, kind: str, kinds: Sequence[str]) -> str:
    return f"{column}, {kind}" if len(kinds) > 1 else column


def _figure(name: str, kind: str, found: Mapping[tuple[str, str], Row]) -> list[str]:
    row = found.get((name, kind))
    if row is None:
        return ["not measured", "", ""]
    beside = {row["peer"]: row["peer_value"]} if row["peer"] is not None else {}
    for other in OTHERS:
        if theirs := found.get((f"{name.rpartition('.')[0]}.{other}", kind)):
            beside[other] = theirs["value"]
    times = [f"{column[2:]} {_value(row, column)}" for column in row.get("more", {}) if column.startswith("x ")]
    if not times and row["ratio"] is not None:
        times = [f"{OTHERS[row['peer']]} {row['ratio']:.2f}"]
    values = [f"{OTHERS[other]} {number(value)}" for other, value in beside.items()]
    return [_median(row), ", ".join(values), ", ".join(times)]


def _median(row: Row) -> str:
    wide = f", spread {spread(row['spread'])}" if row["spread"] > LARGE_SPREAD else ""
    return f"{number(row['value'])} {row['unit']}{wide}"


def _value(row: Row, column: str) -> str:
    """Write one of a record's further figures, with what it lies between."""
    between = row.get("intervals", {}).get(column)
    return number(row["more"][column]) + (" ({} to {})".format(*map(number, between)) if between else "")


_PEER: Final = "beside it"


def _columns(rows: Sequence[Row]) -> list[str]:
    """Return all that is said of any of some records."""
    further = list(dict.fromkeys(column for row in rows for column in row.get("more", {})))
    peer = [_PEER] if any(row["peer"] is not None for row in rows) else []
    return ["median", "spread", *peer, *further, *[BOUND] * any(row.get("bound") for row in rows)]


def _cells(row: Row | None, columns: Sequence[str]) -> list[str]:
    if row is None:
        return ["not measured", *[""] * (len(columns) - 1)]
    cells = {"median": f"{number(row['value'])} {row['unit']}", "spread": spread(row["spread"])}
    if row["peer"] is not None:
        times = f"; ratio {row['ratio']:.2f}" if row["ratio"] is not None else ""
        cells[_PEER] = f"{row['peer']}: {number(row['peer_value'])} {row['unit']}{times}"
    cells[BOUND] = row.get("bound", "")
    cells |= {column: _value(row, column) for column in row.get("more", {})}
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
        chosen = [row for row in records if row["name"] in names]
        before, rest = path.read_text().split(BEGIN)
        after = rest.split(END)[1]
        lines = ["", *choice(records, names), "", *_measured(chosen), "", END]
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
            what = "Made from `checks/bench/results/records.json`; [method.md](method.md) says how each is taken."
            pages[page] = [f"# {title}", "", what, "", *lines]
    return pages


def _measured(rows: Iterable[Row]) -> list[str]:
    """Return a line for each machine on which rows were measured: of what commits, when, and how busy it was."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.get("machine", ""), []).append(row)
    return [f"Measured on {measured_on(together(own))}.  " for own in found.values()]


def together(rows: Sequence[Row]) -> Row:
    """Return the provenance of records of one machine as one: all commits and days, the least and the largest load."""
    loads = [load for row in rows for load in row.get("load") or ()]
    commits, dates = ({row.get(field) or f"{field} not recorded" for row in rows} for field in ("commit", "date"))
    return {
        "machine": rows[0].get("machine", ""),
        "commit": ", ".join(sorted(commits)).replace("commit not", "not"),
        "date": ", ".join(sorted(dates)),
        "load": (min(loads), max(loads)) if loads else None,
    }


def _place(row: Row) -> tuple[object, ...]:
    """Sort by the numbers in a name as numbers."""
    scale = {"B": 1, "kB": 1_000, "MB": 1_000_000}
    words = []
    for word in re.split(r"[.]", row["name"]):
        match = re.fullmatch(r"(\d+)(B|kB|MB|workers|)", word)
        words.append((1, int(match[1]) * scale.get(match[2], 1), "") if match else (0, 0, word))
    return tuple(words)

"""Tables and plots of `bench.sparse` in docs/results/sparse.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from checks.bench.accuracy import off_by
from checks.bench.records import measured_on, spread

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results" / "sparse.md"
IMAGES = ROOT / "docs" / "images"
BEGIN, END = "<!-- sparse: python -m checks.lab.sparse --publish -->", "<!-- end of sparse -->"
GROUPS = ("dense", "blocks", "random", "accumulated")
PEERS = ("SparCML doubling", "SparCML split", "Ok-Topk")
Row = dict[str, Any]
Cell = tuple[int, str, int, int]


def publish(rows: Sequence[Row]) -> None:
    """Write the tables between their marks, and the plots beside the page."""
    cells = sorted({_cell(row) for row in rows}, key=lambda cell: (-cell[2], -cell[0], cell[1] != "200mbit"))
    lines = []
    for cell in cells:
        own = [row for row in rows if _cell(row) == cell]
        places = dict.fromkeys(measured_on(row) for row in own)
        lines += [*table(cell, own), "", *comparisons(own), "", *(f"Measured on {place}.  " for place in places), ""]
    before, rest = PAGE.read_text().split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text("\n".join([before + BEGIN, "", *lines, END + after]))
    IMAGES.mkdir(exist_ok=True)
    _plot(rows, [cell for cell in cells if cell[2] == cells[0][2]])


def _cell(row: Row) -> Cell:
    return row["workers"], row["rate"], row["lanes"], row["values"]


def table(cell: Cell, rows: Iterable[Row]) -> list[str]:
    """Return the Markdown of what was measured under the same conditions."""
    rows = list(rows)
    workers, rate, lanes, values = cell
    gloo = {row["group"]: row["seconds"] for row in rows if row["way"] in (_GLOO, _GLOO_SAME_RUN)}
    lines = [
        f"### {workers} workers, links of {rate}/s, {values * 4 / 1e6:,.0f} MB, {lanes:,} lanes",
        "",
        "| | time | spread | up | down | gloo's dense time over it |",
        "|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: GROUPS.index(row["group"])):
        dense = gloo.get(row["group"], gloo.get("dense"))  # of the same run where it has one
        ratio = "" if dense is None else f"{dense / row['seconds']:.1f}"
        megabytes = " | ".join(f"{row[way] / 1e6:.2f} MB" for way in ("up", "down"))
        narrow = re.fullmatch(r"switchsum, (int16|int8) lanes", row["way"])
        way = f"{row['way']} ({off_by(narrow[1], workers, lanes)})" if narrow else row["way"]
        lines.append(f"| {way} | {row['seconds']:.3f} s | {spread(row['spread'])} | {megabytes} | {ratio} |")
    return lines


def comparisons(rows: Iterable[Row]) -> list[str]:
    """Return what follows from the rows of one cell, as a list."""
    by_way = {row["way"]: row for row in rows}
    seconds = {way: row["seconds"] for way, row in by_way.items()}
    lines = []
    dense, zeros = seconds.get("switchsum"), seconds.get("union 0%: switchsum")
    for way, taken in seconds.items():
        case, _, name = way.partition(", blocks of ")
        if dense and zeros and name.endswith(("048: switchsum", "256: switchsum, block=auto")):
            share = float(case.removeprefix("union ").rstrip("%")) / 100
            bound = 1.15 * share * dense + zeros
            verdict = "within" if taken <= bound else "beyond"
            lines.append(
                f"- {way}: {taken:.3f} s, {verdict} 1.15 x {share:g} x dense + an array of zeros: {bound:.3f} s"
            )
    for way in seconds:
        case, _, name = way.partition(": ")
        if name == "choosing, for all":
            lines += _beside_peers(case, by_way)
    pairs = (
        ("int8 lanes are {:.2f} times faster than int32", "switchsum", "switchsum, int8 lanes"),
        ("looking for zeros makes a dense array {:.3f} times slower", *_SKIPPING),
    )
    for text, one, other in pairs:
        if one in seconds and other in seconds:
            lines.append(f"- {text.format(seconds[one] / seconds[other])}")
    return lines


def _beside_peers(case: str, by_way: dict[str, Row]) -> Iterator[str]:
    """Compare ways whose selection is their own with peers that were given the chosen values, selection added."""
    selection = by_way[f"{case}: choosing, for all"]["seconds"]
    peers = [by_way[f"{case}: {peer}"] for peer in PEERS]
    fastest, smallest = min(row["seconds"] for row in peers), min(row["up"] for row in peers)
    for name, own in (("switchsum", selection), (_KEPT, selection), (_GLOBAL_TOP_K, 0.0), (_BLOCK_TOP_K, 0.0)):
        row = by_way[f"{case}: {name}"]
        taken, least = row["seconds"] + own, fastest + selection
        yield (
            f"- {case}, from the gradient on: {name}: {taken:.3f} s and {row['up'] / 1e6:.2f} MB; "
            f"of the others the fastest takes {least:.3f} s, and the smallest {smallest / 1e6:.2f} MB"
        )


_GLOO, _GLOO_SAME_RUN = "gloo", "accumulated: gloo, dense"
_KEPT = "switchsum, as many sums kept"
_GLOBAL_TOP_K = "switchsum, global top-k"
_BLOCK_TOP_K = "switchsum, global block top-k"
_SKIPPING = ("switchsum, int32, sum, which skips zeros", "switchsum, int32, max, which skips nothing")


def _plot(rows: Sequence[Row], cells: Sequence[Cell]) -> None:
    """Draw time over density: of blocks, and of single values at random places and accumulators' largest."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "switchsum"  # the same file from the same figures
    from matplotlib import pyplot as plt

    for kind, groups in (("blocks", ("blocks",)), ("values", ("random", "accumulated"))):
        figure, axes = plt.subplots(
            len(cells), len(groups), figsize=(6 * len(groups), 4 * len(cells)), squeeze=False, layout="constrained"
        )
        colours: dict[str, str] = {}
        for line, cell in zip(axes, cells, strict=True):
            own = [row for row in rows if _cell(row) == cell]
            for axis, group in zip(line, groups, strict=True):
                _panel(axis, group, [row for row in own if row["group"] == group], own, colours)
                axis.set_title(f"{group}: {cell[0]} workers, {cell[1]}")
        for ending in ("png", "svg"):
            figure.savefig(
                IMAGES / f"sparse-{kind}.{ending}", dpi=80, metadata={"Date": None} if ending == "svg" else None
            )
        plt.close(figure)


def _panel(axis: Any, group: str, rows: Sequence[Row], everything: Sequence[Row], colours: dict[str, str]) -> None:
    """Draw a panel; whoever has a colour in one panel keeps it in the others."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        case, _, way = row["way"].partition(": ")
        words = case.replace(",", "").split()
        density = float(words[1].rstrip("%")) if len(words) > 1 else 0.0
        if density and "choosing" not in way:
            name = f"{way} ({' '.join(words[2:])})" if group == "blocks" and way.startswith("switchsum") else way
            curves.setdefault(name, []).append((density, row["seconds"]))
    for name, points in curves.items():
        points.sort()
        style = "--" if any(peer in name for peer in PEERS) else "-"
        colour = colours.setdefault(name, f"C{len(colours) % 10}")
        axis.plot([x for x, _ in points], [y for _, y in points], style, marker=".", label=name, color=colour)
    for row in everything:
        if row["way"] in ("gloo", "switchsum"):
            axis.axhline(row["seconds"], color="grey", linestyle=":" if row["way"] == "gloo" else "-.", linewidth=1)
            axis.annotate(
                f"{row['way']}, dense", (0.02, row["seconds"]), xycoords=("axes fraction", "data"), fontsize=7
            )
    axis.set(xscale="log", yscale="log", xlabel="density in %", ylabel="seconds")
    if curves:
        axis.legend(fontsize=7, loc="lower right")

"""Plots of the committed figures: how fast allreduces are, by numbers of workers, beside others'."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).parents[2] / "docs" / "images"
PANELS = {
    "allreduce.shm.100MB": "100 MB, one machine",
    "allreduce.200mbit.mtu1500.10MB": "10 MB, 200 Mbit/s, MTU 1,500",
    "allreduce.200mbit.mtu9000.10MB": "10 MB, 200 Mbit/s, MTU 9,000",
    "allreduce.1gbit.mtu9000.10MB": "10 MB, 1 Gbit/s, MTU 9,000",
}
"""What is shown side by side, by how the names of records begin; titles."""
SYSTEMS = {
    "256": ("switchsum, 256 lanes", "#1f77b4"),
    "256-int16": ("switchsum, 256 lanes, int16", "#9ecae1"),
    "2048": ("switchsum, 2,048 lanes", "#08306b"),
    "2048-int16": ("switchsum, 2,048 lanes, int16", "#6baed6"),
    "gloo": ("gloo", "#d95f02"),
    "openmpi": ("Open MPI", "#7a7a7a"),
}
"""Who, what they are called, and their colour in all panels."""
WIDTH, HEIGHT, DPI = 9.0, 7.0, 100
"""Inches and dots: a README is 900 dots wide."""
MISSING = "not measured"
_NAME = re.compile(r"\.(\d+)workers\.([\w-]+)")

Row = Mapping[str, Any]


def plot(rows: Sequence[Row]) -> None:
    """Write `allreduce.png` and `allreduce.svg`, a panel for each of `PANELS`."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "switchsum"  # the same file from the same figures
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(WIDTH, HEIGHT), layout="constrained")
    for axis, (prefix, title) in zip(axes.flat, PANELS.items(), strict=True):
        _panel(axis, _of(rows, prefix))
        axis.set(title=title, ylabel="MB/s per worker")
    handles = [mpl.patches.Patch(color=colour, label=title) for title, colour in SYSTEMS.values()]
    figure.legend(handles=handles, loc="outside upper center", ncols=3, fontsize=10)
    IMAGES.mkdir(exist_ok=True)
    for ending in ("png", "svg"):
        metadata = {"Date": None} if ending == "svg" else None
        figure.savefig(IMAGES / f"allreduce.{ending}", dpi=DPI, metadata=metadata)
    plt.close(figure)


def bars(found: Mapping[tuple[int, str], Row]) -> Iterator[tuple[float, float, str, Row | None]]:
    """Yield place, width and system of each bar of a panel, and its record; None: that was not measured."""
    names = [name for name in SYSTEMS if any(name == other for _, other in found)]
    width = 0.8 / max(1, len(names))
    for index, count in enumerate(sorted({count for count, _ in found})):
        for place, name in enumerate(names):
            yield index + (place + 0.5) * width, width, name, found.get((count, name))


def _panel(axis: Any, found: Mapping[tuple[int, str], Row]) -> None:
    for place, width, name, row in bars(found):
        if row is None:
            axis.text(place, 0, f" {MISSING}", rotation=90, ha="center", va="bottom", fontsize=7, color="grey")
        else:
            error = row["value"] * row["spread"]
            axis.bar(place, row["value"], width, yerr=error, color=SYSTEMS[name][1], error_kw={"linewidth": 0.8})
    workers = sorted({count for count, _ in found})
    axis.set_xticks([index + 0.4 for index in range(len(workers))], [f"{count} workers" for count in workers])


def _of(rows: Sequence[Row], prefix: str) -> dict[tuple[int, str], Row]:
    """Return a panel's records by number of workers and who."""
    found = {}
    for row in rows:
        match = _NAME.fullmatch(row["name"].removeprefix(prefix))
        if match and row["name"].startswith(prefix) and match[2] in SYSTEMS:
            found[int(match[1]), match[2]] = row
    return found

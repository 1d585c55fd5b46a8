"""Plots of the committed figures: how fast allreduces are, by numbers of workers, beside others'."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
NAMES = {
    "256": "switchsum, 256 lanes",
    "256-int16": "switchsum, 256 lanes, int16",
    "2048": "switchsum, 2,048 lanes",
    "2048-int16": "switchsum, 2,048 lanes, int16",
    "gloo": "gloo",
    "openmpi": "Open MPI",
}
_NAME = re.compile(r"\.(\d+)workers\.([\w-]+)")

Row = Mapping[str, Any]


def plot(rows: Sequence[Row]) -> None:
    """Write `allreduce.png` and `allreduce.svg`; panels without records are left out."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "switchsum"  # the same file from the same figures
    from matplotlib import pyplot as plt

    panels = {prefix: found for prefix in PANELS if (found := _of(rows, prefix))}
    if not panels:
        return
    figure, axes = plt.subplots(1, len(panels), figsize=(5 * len(panels), 3.6), squeeze=False, layout="constrained")
    for axis, (prefix, found) in zip(axes[0], panels.items(), strict=True):
        workers = sorted({count for count, _ in found})
        names = [name for name in NAMES if any(name == other for _, other in found)]
        width = 0.8 / len(names)
        for place, name in enumerate(names):
            at = [index for index, count in enumerate(workers) if (count, name) in found]
            bars = [found[workers[index], name] for index in at]
            axis.bar(
                [index + place * width for index in at],
                [row["value"] for row in bars],
                width,
                yerr=[row["value"] * row["spread"] for row in bars],
                label=NAMES[name],
                error_kw={"linewidth": 0.8},
            )
        axis.set_xticks(
            [index + 0.4 - width / 2 for index in range(len(workers))], [f"{count} workers" for count in workers]
        )
        axis.set(title=PANELS[prefix], ylabel="MB/s per worker")
        axis.set_ylim(top=1.35 * axis.get_ylim()[1])  # room for the legend
        axis.legend(fontsize=7)
    IMAGES.mkdir(exist_ok=True)
    for ending in ("png", "svg"):
        metadata = {"Date": None} if ending == "svg" else None
        figure.savefig(IMAGES / f"allreduce.{ending}", dpi=80, metadata=metadata)
    plt.close(figure)


def _of(rows: Sequence[Row], prefix: str) -> dict[tuple[int, str], Row]:
    """Return a panel's records by number of workers and who."""
    found = {}
    for row in rows:
        match = _NAME.fullmatch(row["name"].removeprefix(prefix))
        if match and row["name"].startswith(prefix) and match[2] in NAMES:
            found[int(match[1]), match[2]] = row
    return found

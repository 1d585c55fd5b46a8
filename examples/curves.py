"""Loss curves of trainings, kept as JSON; `python examples/curves.py OUT FILE...` draws them to OUT.png and OUT.svg."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

STYLES: list[dict[str, Any]] = [
    {"linewidth": 3, "alpha": 0.5},
    {"linewidth": 0.8, "linestyle": "--", "color": "black"},
    {"linewidth": 1.5, "linestyle": ":", "color": "red"},
]
"""Of curves that lie upon one another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """The same training, its gradients added in several ways."""

    title: str
    unit: str
    """What a point of a curve is of: "step", for instance."""
    losses: Mapping[str, Sequence[float]]
    """By who has added the gradients."""

    def save(self, path: str) -> None:
        """Write them to a file."""
        Path(path).write_text(json.dumps(asdict(self)))


def draw(out: str, files: Sequence[str]) -> None:
    """Draw each file's curves in a panel of its own."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": "switchsum", "font.size": 9})
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, len(files), figsize=(3.2 * len(files), 2.6), squeeze=False, layout="constrained")
    for panel, file in zip(panels[0], files, strict=True):
        curves = Curves(**json.loads(Path(file).read_text()))
        for style, (name, losses) in zip(STYLES, curves.losses.items(), strict=False):
            panel.plot(range(1, len(losses) + 1), losses, label=name, **style)
        panel.set_title(textwrap.fill(curves.title, 30), fontsize=9)
        panel.set_xlabel(curves.unit)
    panels[0][0].set_ylabel("loss")
    panels[0][0].legend(fontsize=7)
    for suffix, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
        figure.savefig(f"{out}.{suffix}", dpi=150, metadata=metadata)


if __name__ == "__main__":
    draw(sys.argv[1], sys.argv[2:])

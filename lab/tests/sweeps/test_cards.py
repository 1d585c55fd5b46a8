"""Each baseline's README has a card: what paper, public code and this project take, and what the window does."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median

import pytest

from switchsum_lab import baselines
from switchsum_lab.sweeps import counted, simulated, sweep_file
from switchsum_lab.sweeps.axes import AXES, Cell, Value, written

CARDS = sorted(baselines.FOLDER.glob("*/card.yaml"))
PAPERS = {name: {name} for name in ("gtopk", "oktopk", "topka")} | {
    "sparcml": {name for name in counted.WAYS if name.startswith("sparcml-")}
}
"""Protocols by the paper that they are from, where several are, or none has a folder of hosts."""


def table_of(path: Path) -> tuple[list[str], dict[str, list[str]]]:
    """Return the columns and the rows of the table behind a card's command."""
    text = path.with_name("README.md").read_text().partition("card.yaml`")[2]
    head, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)[0].splitlines()  # type: ignore[index]
    ]
    return head[1:], {name: cells for name, *cells in rows}


def _row(cell: Cell, axis: str) -> tuple[str, Value]:
    """Return the field of an axis, and its value in a cell."""
    field = AXES[axis].field
    value: Value = getattr(cell, field)
    return field, value


def test_every_rival_has_a_card() -> None:
    rivals = {path.parent.name for path in baselines.FOLDER.glob("*/host.py")} - {"skeleton"}
    assert {path.parent.name for path in CARDS} == rivals | {*PAPERS}
    assert set[str]().union(*PAPERS.values()) == {*counted.WAYS}


@pytest.mark.parametrize("path", CARDS, ids=lambda path: path.parent.name)
def test_a_card_says_what_paper_code_and_project_take_and_has_its_sweep(path: Path) -> None:
    text = path.with_name("README.md").read_text()
    assert "\n## Card\n\n| parameter | paper | public code | here |\n" in text
    sweep, (columns, rows) = sweep_file.load(path), table_of(path)
    assert {cell.protocol for cell in sweep.cells} == PAPERS.get(path.parent.name, {path.parent.name})
    row = sweep.plot["x"]
    assert [*rows] == [written(field, value) for field, value in dict.fromkeys(_row(cell, row) for cell in sweep.cells)]
    assert len(columns) * len(rows) == len(sweep.cells)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", CARDS, ids=lambda path: path.parent.name)
def test_the_figures_of_a_card_are_its_sweeps(path: Path) -> None:
    sweep, (columns, rows) = sweep_file.load(path), table_of(path)
    row = sweep.plot["x"]
    others = [name for name in sweep.varying if name != _row(sweep.cells[0], row)[0]]
    found: dict[str, list[str]] = {}
    for cell in sweep.cells:
        ms = median(simulated.run(cell, seed).ms for seed in range(sweep.repetitions))
        found.setdefault(written(*_row(cell, row)), []).append(f"{ms:.3g}")
        assert " ".join(written(name, getattr(cell, name)) for name in others) in columns
    assert {name: [f"{float(cell):.3g}" for cell in cells] for name, cells in rows.items()} == found

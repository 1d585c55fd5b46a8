"""lab/docs/rivals.md, and the table of slow uplinks: their figures are those of their sweeps and programs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from switchsum_lab.protocols.seam import load
from switchsum_lab.simulation.jobs import SLOTS
from switchsum_lab.sweeps import simulated, sweep_file
from switchsum_lab.sweeps.axes import Cell

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "lab" / "docs" / "rivals.md").read_text()
SWEEPS = sorted((ROOT / "examples" / "sweeps").glob("rivals-*.yaml"))


def table_of(text: str) -> dict[str, list[str]]:
    """Return the rows of the first table of a text, by their first cell."""
    lines = text.split("\n\n|", 1)[1].split("\n\n", maxsplit=1)[0].splitlines()[2:]
    rows = [[cell.strip(" *`") for cell in line.strip("|").split("|")] for line in lines]
    return {name: cells for name, *cells in rows}


def sections() -> Iterator[tuple[Path, dict[str, list[str]]]]:
    for part in PAGE.split("\n## ")[1:]:
        if (found := re.search(r"`(examples/sweeps/rivals-\w+\.yaml)`", part)) is not None:
            yield ROOT / found[1], table_of(part)


def groups(sweep: sweep_file.Sweep) -> list[list[Cell]]:
    """Return the cells of a sweep, together those of which the best one counts."""
    found: dict[Cell, list[Cell]] = {}
    same: dict[str, Any] = {} if sweep.best is None else {sweep.best: None}
    for cell in sweep.cells:
        found.setdefault(replace(cell, **same), []).append(cell)
    return [*found.values()]


def best_ms(cells: Sequence[Cell], repetitions: int) -> str:
    return f"{min(median(simulated.run(cell, seed).ms for seed in range(repetitions)) for cell in cells):.3g}"


def test_each_sweep_has_its_table() -> None:
    assert sorted(path for path, _ in sections()) == SWEEPS
    for path, table in sections():
        sweep = sweep_file.load(path)
        assert {cell.protocol for cell in sweep.cells} == set(table)
        assert len(groups(sweep)) == sum(len(cells) for cells in table.values())


def test_figures_that_take_no_time_are_the_sweeps() -> None:
    path = ROOT / "examples" / "sweeps" / "rivals-size.yaml"
    table = dict(sections())[path]
    for cells in groups(sweep_file.load(path)):
        [protocol] = {cell.protocol for cell in cells}
        if cells[0].bytes == 4 and protocol in ("switchsum", "omnireduce", "parameter_server", "ring"):
            assert best_ms(cells, 1) == f"{float(table[protocol][0]):.3g}"


def test_times_on_slow_uplinks_are_those_of_their_sweep() -> None:
    page = (ROOT / "docs" / "results" / "slow-links.md").read_text()
    table = table_of(page.split("## Where ranks send more slowly")[1])
    cells = sweep_file.load(ROOT / "examples" / "sweeps" / "uplinks.yaml").cells
    ways = {("ring", "allreduce"): 0, ("switchsum", "allreduce"): 1, ("switchsum", "thc:4"): 4}
    assert len(cells) == sum(map(len, table.values()))
    for cell in cells:
        if cell.uplink_mbit == 5 and (cell.protocol, cell.collective) in ways:
            column = ways[cell.protocol, cell.collective]
            assert f"{simulated.run(cell, 0).ms:,.0f}" == table["5 Mbit/s"][column]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_the_figures_are_the_sweeps(path: Path) -> None:
    sweep, table = sweep_file.load(path), dict(sections())[path]
    said: dict[str, list[str]] = {name: [] for name in table}
    for cells in groups(sweep):
        said[cells[0].protocol].append(best_ms(cells, sweep.repetitions))
    found = {name: [f"{float(cell):.3g}" for cell in cells] for name, cells in table.items()}
    assert found == said


def test_the_memory_is_that_of_the_programs() -> None:
    table = table_of(PAGE.partition("## Memory in the switch")[2])
    for name, slots in (("switchml", 512), ("atp", 20_000)):
        protocol = load(name)
        assert table[name] == row(protocol.program(protocol.lanes)[0], protocol.lanes, slots)
    ours = (ROOT / "p4src" / "compiled" / "switchsum_256.json").read_text()
    assert table["switchsum"] == row(ours, 256, SLOTS)
    assert json.loads(load("omnireduce").program(256)[0])["register_arrays"] == []


def row(program: str, lanes: int, slots: int) -> list[str]:
    arrays = json.loads(program)["register_arrays"]
    size = sum(one["bitwidth"] * one["size"] for one in arrays) / 8 / slots
    return [str(lanes), f"{size:,.0f}", f"{size / lanes:.1f}"]

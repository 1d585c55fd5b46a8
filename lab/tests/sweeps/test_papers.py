"""The figures of papers are sweeps whose cells are possible, and lab/docs/papers.md names each of them."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest

from checks.lab import papers_page
from switchsum_lab.sweeps.axes import Cell
from switchsum_lab.sweeps.checks import check
from switchsum_lab.sweeps.inputs import digest_of
from switchsum_lab.sweeps.outcome import Outcome
from switchsum_lab.sweeps.results import Results, Run
from switchsum_lab.sweeps.sweep_file import Sweep, load

ROOT = Path(__file__).parents[3]
FILES = sorted(
    path
    for folder, names in (
        ("lab/papers", "**/*.yaml"),
        ("lab/src/switchsum_lab/baselines", "*/card.yaml"),
        ("examples/sweeps", "*.yaml"),
    )
    for path in (ROOT / folder).glob(names)
)


def without_best(sweep: Sweep) -> set[Cell]:
    """Return the cells of a sweep, of which some differ in the axis alone whose best value counts."""
    same: dict[str, Any] = {} if sweep.best is None else {sweep.best: None}
    return {replace(cell, **same) for cell in sweep.cells}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_sweep_of_the_repository_can_be_run_and_drawn(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # topologies and recordings are named from there
    monkeypatch.setattr(
        "switchsum_lab.simulation.scenario.check_size", lambda scenario: None
    )  # of a machine of any size
    sweep = load(path)
    sweep.check(check)
    named = {sweep.plot["x"], *sweep.plot["by"].split(","), sweep.plot.get("panels", "")}
    drawn = [name for name in sweep.varying if name.removesuffix("_mbit").removesuffix("_us") in named]
    points = {tuple(getattr(cell, name) for name in drawn) for cell in sweep.cells}
    # An axis that is not drawn has one value for all that is, or the best of its values is drawn.
    assert len(points) == len(without_best(sweep))


def test_the_page_names_each_sweep() -> None:
    page = (ROOT / "lab" / "docs" / "papers.md").read_text()
    for path in (ROOT / "lab" / "papers").glob("*.yaml"):
        assert f"`lab/papers/{path.name}`" in page


@pytest.mark.parametrize("table", papers_page.TABLES, ids=lambda table: f"{table.page}-{table.sweep}")
def test_each_figure_of_a_page_is_of_cells_of_its_sweep(table: papers_page.Table) -> None:
    cells = load(ROOT / "lab" / "papers" / f"{table.sweep}.yaml").cells
    rows = papers_page.rows_of(table)
    for name, of_row in table.rows.items():
        assert len(rows[name]) == len(table.columns)
        for of_column in filter(None, table.columns):
            wanted = {**of_row, **of_column}
            matching = [cell for cell in cells if all(_is(getattr(cell, axis), wanted[axis]) for axis in wanted)]
            several = [len(value) for value in wanted.values() if isinstance(value, tuple)]
            sweep = load(ROOT / "lab" / "papers" / f"{table.sweep}.yaml")
            assert len(without_best(replace(sweep, cells=tuple(matching)))) == prod(several), (name, of_column)


def _is(value: Any, wanted: Any) -> bool:
    return value in wanted if isinstance(wanted, tuple) else bool(value == wanted)


def test_the_faster_one_of_several_ways_counts(tmp_path: Path) -> None:
    table = next(one for one in papers_page.TABLES if one.sweep == "flare-sparse")
    with Results.begin(tmp_path, "") as results:
        for cell in load(ROOT / "lab" / "papers" / "flare-sparse.yaml").cells:
            ms = 2.0 if cell.protocol == "sparcml-split" else 1.0 if cell.protocol == "sparcml-doubling" else 3.0
            outcome = Outcome(ms=ms, mb_per_s=1.0)
            results.add(Run(cell=cell, repetition=0, sitting=0, wall_s=0.0, reads=digest_of(cell), outcome=outcome))
    text = papers_page.published(table, results, (ROOT / "lab" / "docs" / "papers-sparse.md").read_text())
    [rows] = [rows for begins, rows in papers_page.tables_of(text) if begins == "density" and "5 %" in rows]
    assert {float(cell.split()[0]) for cells in rows.values() for cell in cells} == {1.0, 3.0}


def test_a_figure_that_is_another_one_is_named(tmp_path: Path) -> None:
    table = next(one for one in papers_page.TABLES if one.sweep == "atp-cells")
    with Results.begin(tmp_path, "") as results:
        for cell in load(ROOT / "lab" / "papers" / "atp-cells.yaml").cells:
            ours = 0.371 if cell.jobs == 8 else 0.383
            ms = ours if cell.protocol == "switchsum" else 0.429 if cell.jobs == 8 else 0.5
            outcome = Outcome(ms=ms, mb_per_s=1.0)
            results.add(Run(cell=cell, repetition=0, sitting=0, wall_s=0.0, reads=digest_of(cell), outcome=outcome))
    found = [*papers_page.differing(table, results)]
    assert len(found) == 3
    assert found[0].startswith("papers.md, atp-cells, atp, 20,000 cells for all, {'jobs': 1}: 0.422 ms, and it is 0.5")


@pytest.mark.parametrize(
    ("value", "written"), [(3.565, "3.56"), (0.0122, "1.2e-2"), (2.04e-18, "2e-18"), (506.4, "506"), (1.44, "1.4")]
)
def test_a_figure_has_as_many_digits_as_the_page(value: float, written: str) -> None:
    assert papers_page._as_written(value, written) == written

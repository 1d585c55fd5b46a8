"""The figures of papers are sweeps whose cells are possible, and docs/papers.md names each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from switchsum.laboratory.checks import check
from switchsum.laboratory.sweep_file import load

ROOT = Path(__file__).parents[2]
FILES = sorted([*(ROOT / "papers").glob("**/*.yaml"), *(ROOT / "examples" / "sweeps").glob("*.yaml")])


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_sweep_of_the_repository_can_be_run_and_drawn(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # topologies and recordings are named from there
    monkeypatch.setattr("switchsum.simulation.scenario.check_room", lambda scenario: None)  # of a machine of any size
    sweep = load(path)
    sweep.check(check)
    named = {sweep.plot["x"], *sweep.plot["by"].split(","), sweep.plot.get("panels", "")}
    assert {name.removesuffix("_mbit") for name in sweep.varying} <= named


def test_the_page_names_each_sweep() -> None:
    page = (ROOT / "docs" / "papers.md").read_text()
    for path in (ROOT / "papers").glob("*.yaml"):
        assert f"`papers/{path.name}`" in page

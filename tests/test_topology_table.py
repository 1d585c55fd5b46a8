"""The table in docs/results/tree-rates.md is what its command prints."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

pytest.importorskip("yaml")
pytest.importorskip("scipy")

from tools import topology_table


def cells(table: str) -> Iterator[list[str]]:
    for line in table.splitlines()[2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


def test_the_table_is_what_the_command_prints() -> None:
    printed, page = topology_table.table(), topology_table.PAGE.read_text()
    committed = page.split(topology_table.MARKS[0])[1].split(topology_table.MARKS[1])[0]
    assert committed.splitlines()[:2] == printed.splitlines()[:2]
    for ours, theirs in zip(cells(printed), cells(committed), strict=True):
        # Which of equally good trees a solver meets first differs between its releases, and with them the fewest.
        (plan, part), (plan_then, part_then) = ours[4:6], theirs[4:6]
        assert ours[:4] + ours[6:] == theirs[:4] + theirs[6:]
        (rate, count), (rate_then, count_then) = (
            map(float, re.findall(r"[0-9.]+", text)) for text in (plan, plan_then)
        )
        assert rate == pytest.approx(rate_then, rel=0.05)
        assert abs(count - count_then) <= 1
        assert float(part.rstrip("% ")) == pytest.approx(float(part_then.rstrip("% ")), abs=5)

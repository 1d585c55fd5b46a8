"""The tables of docs/results/scale.md: their networks, what is simulated in a cell, and how cells become rows."""

from __future__ import annotations

import json
import os
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np
import pytest

from checks.lab import scale
from switchsum_lab.simulation.scenario import arrays_of


def test_each_shape_is_a_tree_of_switches_with_room_for_its_members() -> None:
    for workers, shape in scale.SHAPES.items():
        network = shape.network(100e3)
        assert len(network.hosts) == workers
        assert len(network.cables) == len(network.hosts) + len(network.switches) - 1
        members = [end for cable in network.cables for end in cable.ends[1:]]
        assert max(map(members.count, network.switches)) <= 32
    assert scale.SHAPES[4096].levels == 3


def test_a_sparse_cell_has_the_same_blocks_on_all_workers() -> None:
    row = scale.Row(workers=32, gbit=100, loss=0.0)
    arrays, total = arrays_of(row.scenario(**scale.KINDS["sparse"]))
    blocks = [np.flatnonzero(array.reshape(-1, 8).any(axis=1)) for array in arrays]
    assert all(np.array_equal(found, blocks[0]) for found in blocks)
    assert 0.05 < np.count_nonzero(total) / total.size < 0.15


def test_cells_become_rows_and_what_is_missing_is_left_out() -> None:
    row = scale.Row(workers=64, gbit=100, loss=0.001)
    cell = {"us": 1234.4, "repeats": 5, "frames": 1, "digest": "", "processor_s": 1.0}
    found = {row.name("dense"): cell, row.name("ring"): {**cell, "us": 9.0}}
    assert scale.table(found).splitlines()[2:] == ["| 64 | 2 | 100 | 0.1% | 1,234 | 356 | 5 |  |  | 9 | 664 |"]


class _Deadly(scale.Row):
    """A row whose process ends when it hears of it."""

    def __reduce__(self) -> tuple[object, ...]:
        return os._exit, (1,)


def test_a_cell_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = (scale.Row(workers=64, gbit=gbit, loss=0.0) for gbit in (10, 100))

    def alone(row: scale.Row, kind: str) -> dict[str, Any]:
        if row == bad:
            raise SystemExit(f"no {kind}")
        return {"us": 1.0}

    monkeypatch.setattr(scale, "alone", alone)
    found = dict(scale.simulated([(bad, "dense"), (good, "dense")], 1))
    assert isinstance(found[bad.name("dense")], SystemExit)
    assert found[good.name("dense")] == {"us": 1.0}


def test_a_process_that_ends_ends_its_cell_alone() -> None:
    with pytest.raises(BrokenProcessPool):
        scale.alone(_Deadly(workers=64, gbit=100, loss=0.0), "dense")


def test_the_page_has_the_cells_that_were_simulated() -> None:
    found = json.loads(scale.CELLS.read_text())
    assert scale.table(found) in scale.PAGE.read_text()

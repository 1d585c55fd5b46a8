"""Figures of the sparse benchmark: parts that are measured again take the place of the old ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checks.bench.gradients import union_over_k
from checks.bench.sparse import merge
from checks.bench.sparse_page import table


def row(way: str, seconds: float, **other: Any) -> dict[str, Any]:
    cell = {"workers": 8, "rate": "200mbit", "lanes": 2048, "values": 25_000_000, "group": "dense"}
    return {**cell, "way": way, "seconds": seconds, "spread": 0.01, "up": 1e6, "down": 2_500_000, **other}


def test_rows_measured_again_replace_the_old_ones(tmp_path: Path) -> None:
    path = tmp_path / "results" / "sparse.json"
    merge([row("gloo", 7.0), row("switchsum", 4.0)], path)
    merged = merge([row("switchsum", 3.5), row("switchsum", 1.0, rate="1gbit")], path)
    assert merged == json.loads(path.read_text())
    assert [(one["way"], one["rate"], one["seconds"]) for one in merged] == [
        ("gloo", "200mbit", 7.0),
        ("switchsum", "200mbit", 3.5),
        ("switchsum", "1gbit", 1.0),
    ]


def test_a_table_says_how_much_faster_than_gloo(tmp_path: Path) -> None:
    lines = table((8, "200mbit", 2048, 25_000_000), [row("gloo", 7.0), row("switchsum", 3.5)])
    assert lines[0] == "### 8 workers, links of 200mbit/s, 100 MB, 2,048 lanes"
    assert lines[-1] == "| switchsum | 3.500 s | 1% | 1.00 MB | 2.50 MB | 2.0 |"


def test_the_union_of_what_workers_choose() -> None:
    arrays = [np.zeros(10, np.float32) for _ in range(3)]
    for worker, array in enumerate(arrays):
        array[0], array[worker], array[9] = -5, 3 + worker, 1  # of the first worker 0, and 9 comes after
    assert union_over_k(arrays, 1) == 1.0
    assert union_over_k(arrays, 2) == pytest.approx(4 / 2)  # 0, 1, 2 and 9

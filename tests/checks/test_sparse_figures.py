"""Figures of the sparse benchmark: parts that are measured again take the place of the old ones."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checks.bench import gradients
from checks.bench.gradients import Floats, accumulators, record, union_over_k
from checks.lab.counting import Counting, Model, on_all
from checks.lab.sparse import merge
from checks.lab.sparse_page import comparisons, table
from switchsum_host.compress import ErrorFeedback, TopK


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


def test_rows_of_groups_that_are_no_more_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "sparse.json"
    path.write_text(json.dumps([row("real 1.0%: switchsum", 1.0, group="real"), row("gloo", 7.0)]))
    assert [one["way"] for one in merge([], path)] == ["gloo"]


def test_accumulators_are_compared_with_gloo_of_their_own_run() -> None:
    lines = table(
        (8, "200mbit", 2048, 25_000_000),
        [
            row("gloo", 7.0),
            row("accumulated: gloo, dense", 8.0, group="accumulated"),
            row("accumulated 1.0%: switchsum", 2.0, group="accumulated"),
        ],
    )
    assert [line.split(" | ")[-1] for line in lines[-3:]] == ["1.0 |", "1.0 |", "4.0 |"]


def test_ways_that_get_the_largest_values_chosen_are_compared_from_the_gradient_on() -> None:
    case = "accumulated 1.0%"
    ways = {"choosing, for all": 0.5, "switchsum": 3.0, "switchsum, as many sums kept": 2.0}
    ways |= {"switchsum, global top-k": 0.9, "switchsum, global block top-k": 1.0}
    ways |= {"SparCML doubling": 6.0, "SparCML split": 5.0, "Ok-Topk": 1.5}
    lines = comparisons(row(f"{case}: {way}", seconds) for way, seconds in ways.items())
    taken = [line.split(": ")[2].split(" and ")[0] for line in lines]
    assert taken == ["3.500 s", "2.500 s", "0.900 s", "1.000 s"]
    assert all("of the others the fastest takes 2.000 s" in line for line in lines)


class Played:
    """A training whose gradients are drawn, and which remembers the averages."""

    def __init__(self, workers: int, values: int) -> None:
        self._random = np.random.default_rng(3)
        self._shape = (workers, values)
        self.means: list[Floats] = []

    def gradients(self) -> list[Floats]:
        return list(self._random.standard_normal(self._shape, np.float32))

    def step(self, mean: Floats) -> None:
        self.means.append(mean)


def test_accumulators_are_what_error_feedback_hands_to_top_k() -> None:
    workers, steps, density = 3, 4, 0.05
    training = Played(workers, 1000)
    feedback = [ErrorFeedback(TopK(density)) for _ in range(workers)]
    means: list[Floats] = []
    lost: list[Floats] = [np.zeros(1000, np.float32)] * workers
    for step, (own, seen) in enumerate(accumulators(training, density), 1):
        for array, gradient, rest in zip(seen, own, lost, strict=True):
            np.testing.assert_array_equal(array, gradient + rest)
        if step == steps:
            break
        network = Counting(workers, 64)
        found: list[Any] = [None] * workers

        def exchange(rank: int, network: Counting = network, own: Any = own, found: list[Any] = found) -> None:
            comm: Any = Model(network, rank)
            found[rank] = feedback[rank].exchange(comm, "gradient", own[rank]).mean

        on_all(workers, exchange)
        means.append(found[0])
        lost = [one.lost("gradient").copy() for one in feedback]
    np.testing.assert_allclose(training.means, means, rtol=1e-5, atol=1e-7)


def test_what_is_not_among_the_largest_averages_stays_in_accumulators() -> None:
    training = Played(3, 200)
    steps = accumulators(training, 0.05, keep=True)
    before = [array.copy() for array in next(steps)[1]]
    own, after = next(steps)
    averages = training.means[0]
    assert np.count_nonzero(averages) == 10
    for array, gradient, rest in zip(before, own, after, strict=True):
        sent = array - (rest - gradient)
        np.testing.assert_allclose(sent[averages == 0], 0, atol=1e-6)
        assert 0 < np.count_nonzero(np.abs(sent) > 1e-6) < 10


def test_accumulators_are_kept_once_of_the_steps_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainings: list[Played] = []

    def training(workers: int, values: int) -> Played:
        trainings.append(Played(workers, values))
        return trainings[-1]

    monkeypatch.setattr(gradients, "Training", training)
    record(2, 100, (2, 5), tmp_path)
    record(2, 100, (5,), tmp_path)
    assert [len(one.means) for one in trainings] == [4]
    again = islice(accumulators(Played(2, 100), 0.01), 5)
    seen = [[array.copy() for array in one] for _, one in again]
    for step in (2, 5):
        for rank in range(2):
            kept = np.load(gradients.path(2, 100, rank, steps=step, folder=tmp_path))
            np.testing.assert_array_equal(kept, seen[step - 1][rank])


def test_the_union_of_what_workers_choose() -> None:
    arrays = [np.zeros(10, np.float32) for _ in range(3)]
    for worker, array in enumerate(arrays):
        array[0], array[worker], array[9] = -5, 3 + worker, 1  # of the first worker 0, and 9 comes after
    assert union_over_k(arrays, 1) == 1.0
    assert union_over_k(arrays, 2) == pytest.approx(4 / 2)  # 0, 1, 2 and 9

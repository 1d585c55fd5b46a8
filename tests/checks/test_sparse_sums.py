"""Random sparse sums beside plain ones: a few jobs of the generator, and what it notices."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from checks.sparse_sums import CALLS, SPARSE, Case, added, check, draw, expected_error, given, run
from switchsum_host.api.collectives import Way
from switchsum_host.api.sparse import SparseSum
from switchsum_protocol.errors import OperationMismatch, SumOverflow, UsageError

RANKS = 3


def test_jobs_of_all_ways_are_right() -> None:
    gone = Counter[str]()
    for number in range(30):
        run(draw(1, number), gone)
    assert {way.name.lower() for way in Way} <= gone.keys()
    assert {"OperationMismatch", "UsageError", "allgatherv"} <= gone.keys()


def test_the_same_numbers_draw_the_same_job() -> None:
    assert draw(5, 7) == draw(5, 7) != draw(6, 7)
    assert len(draw(5, 7).cases) == CALLS


CASE = Case(seed=(1, 2, 3), call=SPARSE, size=700, dtype="float32", density=0.1)


def sums(case: Case, off: float) -> None:
    """Check a plain sum, one of whose values is off."""
    parts = [given(case, rank, RANKS) for rank in range(RANKS)]
    each = [added(case, one) for one in parts]
    rows = np.unique(np.concatenate([own for own, _ in each]))
    total = np.zeros(len(rows))
    for own, values in each:
        total[np.searchsorted(rows, own)] += values
    found = total.astype(np.float32)
    found[3] += off
    results = [SparseSum(indices=rows, values=found.copy(), size=case.size) for _ in range(RANKS)]
    check(case, results, rows, total, parts, Way.BITMAPS)


def test_a_wrong_sum_is_noticed() -> None:
    sums(CASE, 0.0)
    with pytest.raises(AssertionError, match="off by"):
        sums(CASE, 0.01)


def test_it_knows_which_calls_are_refused() -> None:
    none = np.zeros(0)
    assert expected_error(CASE, none, []) is None
    assert expected_error(replace(CASE, wrong="index"), none, []) is UsageError
    assert expected_error(replace(CASE, wrong="differs"), none, []) is OperationMismatch
    large = np.array([200], object)
    assert expected_error(replace(CASE, dtype="int8"), large, []) is SumOverflow
    assert expected_error(replace(CASE, dtype="uint8"), large, [large]) is None

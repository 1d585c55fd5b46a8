"""Sums of a few floats in one round: exact, whatever the values."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchsum_host.engine import dtypes
from switchsum_protocol.frame import LANE_BUILDS, MAX_WORKERS

from .digits import digits_of, put_sums

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(finite, min_size=3, max_size=3), min_size=1, max_size=6))
def test_sums_are_exact_before_they_are_rounded(rows: list[list[float]]) -> None:
    total = sum(digits_of(np.array(row, np.float32)).astype(np.int64) for row in rows)
    digits = np.asarray(total, np.int64)
    assert abs(digits).max() <= np.iinfo(np.int32).max  # no lane overflows
    sums = np.empty(3, np.float32)
    with np.errstate(over="ignore"):
        put_sums(digits.astype(np.int32), 1.0, sums)
        for column, result in enumerate(sums):
            truth = sum((Fraction(row[column]) for row in rows), Fraction())
            near = np.float32(float(truth))
            if result != near:  # rounded twice: a tie in float64 may go the other way
                half = Fraction(float(np.spacing(abs(near)))) / 2
                assert abs(Fraction(float(result)) - truth) <= half * Fraction(101, 100)


@pytest.mark.parametrize("workers", [1, 5, MAX_WORKERS])
def test_the_largest_values_of_all_workers_fit_their_lanes(workers: int) -> None:
    largest = np.full(2, np.finfo(np.float32).max)
    digits = digits_of(largest).astype(np.int64) * workers
    assert digits.max() <= np.iinfo(np.int32).max
    mean = np.empty(2, np.float32)
    put_sums(digits.astype(np.int32), 1 / workers, mean)
    np.testing.assert_array_max_ulp(mean, largest, 1)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_that_is_not_finite_makes_all_nan(value: float) -> None:
    digits = digits_of(np.array([1.0, value], np.float32)) + digits_of(np.ones(2, np.float32))
    sums = np.empty(2, np.float32)
    put_sums(digits, 1.0, sums)
    assert np.isnan(sums).all()


def test_zeros_of_either_sign_do_not_travel_and_come_out_positive() -> None:
    digits = digits_of(np.array([0.0, -0.0], np.float32))
    assert not digits.any()
    sums = np.empty(2, np.float32)
    put_sums(digits, 1.0, sums)
    assert not np.signbit(sums).any()


def test_as_many_fit_a_frame_as_it_says() -> None:
    for lanes in LANE_BUILDS:
        most = dtypes.most_values(lanes)
        assert len(digits_of(np.zeros(most, np.float32))) <= lanes
        assert len(digits_of(np.zeros(most + 1, np.float32))) > lanes

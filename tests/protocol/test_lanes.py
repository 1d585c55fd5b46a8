"""Block exponents: no sum overflows, and the stated error bound holds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from switchsum_protocol import lane_scales, lanes
from switchsum_protocol.frame import MOST_WORKERS

WORKERS = st.sampled_from([*range(1, 33), 257, 258, 259, MOST_WORKERS])
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(st.data(), WORKERS, st.sampled_from([8, 16, 32]))
def test_the_sum_fits_and_keeps_the_bound(data: st.DataObject, workers: int, bits: int) -> None:
    blocks = data.draw(hnp.arrays(np.float32, (workers, 5), elements=FLOATS))
    exponent = max(lanes.block_exponent(block) for block in blocks)
    sums = np.sum([lanes.quantise(block, exponent, workers, bits) for block in blocks], axis=0)
    assert np.abs(sums).max() < 1 << (max(bits, lane_scales.NARROW_SUM_BITS) - 1)
    exact = blocks.astype(np.float64).sum(axis=0)
    bound = workers / 2 * lane_scales.step(exponent, workers, bits)
    # What float64 itself rounds here comes on top.
    bound += np.abs(exact).max() * 2.0**-50
    assert np.abs(lanes.dequantise(sums, exponent, workers, bits) - exact).max() <= bound


@pytest.mark.parametrize(
    ("workers", "steps"), [(1, 127), (16, 127), (258, 127), (259, 126), (1024, 31), (MOST_WORKERS, 7)]
)
def test_so_many_workers_have_all_steps_of_8_bits(workers: int, steps: int) -> None:
    assert lane_scales.full_scale(workers, 8) == steps


@pytest.mark.parametrize(
    ("value", "exponent"),
    [(0.0, 0), (-0.0, 0), (1e-45, 0), (1.0, 127), (-2.0, 128), (3.4e38, 254), (np.inf, 255), (np.nan, 255)],
)
def test_the_exponent_is_the_biased_ieee_field(value: float, exponent: int) -> None:
    assert lanes.block_exponent(np.array([0.0, value], dtype=np.float32)) == exponent


def test_an_empty_block_has_exponent_zero() -> None:
    assert lanes.block_exponent(np.zeros(0, dtype=np.float32)) == 0


def test_the_largest_float_uses_the_full_scale() -> None:
    largest = np.array([np.finfo(np.float32).max], dtype=np.float32)
    assert lanes.quantise(largest, 254, 4, 32)[0] == pytest.approx(lane_scales.full_scale(4, 32), rel=1e-6)

"""Blocks of integers: what lanes hold, how lanes sort, and sums in parts, against numpy and Python's own integers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchsum_host.engine import dtypes, integers, kernels
from switchsum_host.engine.operation import Operation
from switchsum_switch.kernels.loading import address_of

Array = npt.NDArray[Any]
CODES = {1: dtypes.INT8, 2: dtypes.INT16, 4: dtypes.INT32, 8: dtypes.INT64}
INTEGERS = [np.dtype(f"{kind}{size}") for kind in "iu" for size in CODES]
FLOATS = [np.dtype(np.float64), np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]


def draw(data: st.DataObject, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """Return random bits, or small numbers, with the extremes among them."""
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    if data.draw(st.booleans()):
        octets = random.integers(0, 256, int(np.prod(shape)) * dtype.itemsize, np.uint8)
        octets[random.random(octets.size) < 0.1] = data.draw(st.sampled_from([0, 0x7F, 0x80, 0xFF]))
        return octets.view(dtype).reshape(shape)
    return random.integers(0, 100, shape).astype(dtype)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_scan_of_integers_only_tells_zero(dtype: np.dtype[Any]) -> None:
    code = CODES[dtype.itemsize]
    for value in (1, np.iinfo(dtype).min or 1, np.iinfo(dtype).max):
        values = np.zeros(37, dtype)
        assert kernels.scan(code, address_of(values), 37) == integers.ALL_ZERO
        values[36] = value
        assert kernels.scan(code, address_of(values), 37) == 0
        assert kernels.scan(code, address_of(values), 36) == integers.ALL_ZERO


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@given(data=st.data())
def test_integers_travel_as_they_are(dtype: np.dtype[Any], data: st.DataObject) -> None:
    size, more = data.draw(st.integers(1, 40)), data.draw(st.integers(0, 3))
    values = draw(data, dtype, (size,))
    code = CODES[dtype.itemsize]
    words = -(-values.nbytes // 4) + more
    frame = np.full(4 * words + 1, 0x5A, np.uint8)
    integers.pack_integers(code, dtypes.AS_IS, 0, address_of(values), size, address_of(frame), words)
    assert frame[: values.nbytes].tobytes() == values.astype(dtype.newbyteorder(">")).tobytes()
    assert not frame[values.nbytes : -1].any()
    assert frame[-1] == 0x5A
    back = np.zeros(size + 1, dtype)
    integers.unpack_integers(code, dtypes.AS_IS, address_of(frame), size, address_of(back))
    np.testing.assert_array_equal(back[:-1], values)
    assert back[-1] == 0


@pytest.mark.parametrize("operator", ["max", "min"])
@pytest.mark.parametrize("dtype", INTEGERS + FLOATS, ids=str)
@given(data=st.data())
def test_lanes_sort_as_values_do(operator: str, dtype: np.dtype[Any], data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 40))
    rows = draw(data, dtype, (3, size))
    operation = Operation.of(rows[0], operator=operator)
    packed = []
    for row in rows:
        frame = np.zeros(8 * size, np.uint8)
        at = address_of(frame)
        integers.pack_integers(
            operation.code, operation.mapping, operation.infinity, address_of(row), size, at, 2 * size
        )
        packed.append(frame[: row.nbytes].view(f">i{dtype.itemsize}"))
    chosen = np.max(packed, axis=0) if operator == "max" else np.min(packed, axis=0)
    result = np.zeros(size, dtype)
    frame = chosen.astype(f">i{dtype.itemsize}")
    integers.unpack_integers(operation.code, operation.mapping, address_of(frame), size, address_of(result))
    with np.errstate(invalid="ignore"):  # signalling NaN
        wide = rows.astype(np.float32) if dtype == ml_dtypes.bfloat16 else rows
        expected = wide.max(axis=0) if operator == "max" else wide.min(axis=0)
        np.testing.assert_array_equal(result.astype(wide.dtype), expected)


def test_negative_zero_is_less_than_zero() -> None:
    values = np.array([-0.0, 0.0], np.float32)
    operation = Operation.of(values, operator="min")
    frame = np.zeros(2, ">i4")
    integers.pack_integers(
        operation.code, operation.mapping, operation.infinity, address_of(values), 2, address_of(frame), 2
    )
    assert frame[0] < frame[1]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@given(data=st.data())
def test_parts_give_the_exact_sum_or_the_nearest(dtype: np.dtype[Any], data: st.DataObject) -> None:
    workers, words = data.draw(st.integers(1, 32)), data.draw(st.integers(2, 9))
    code, unsigned = CODES[dtype.itemsize], int(dtype.kind == "u")
    size = data.draw(st.integers(1, 4 * words // dtype.itemsize))
    rows = draw(data, dtype, (workers, size))
    result, kept = np.zeros(size + 1, dtype), np.zeros(words, np.uint32)
    lane = ">i8" if dtype.itemsize == 8 else ">i4"
    fits = True
    for part in range(4 if dtype.itemsize == 1 else 2):
        total = np.zeros(4 * words // np.dtype(lane).itemsize, np.int64)
        for row in rows:
            frame = np.full(4 * words + 1, 0x5A, np.uint8)
            integers.pack_part(code, unsigned, part, address_of(row), size, address_of(frame), words)
            assert frame[-1] == 0x5A
            whole = 4 * words // np.dtype(lane).itemsize * np.dtype(lane).itemsize
            total += frame[:whole].view(lane).astype(np.int64)
        assert np.abs(total).max() < 1 << (63 if lane == ">i8" else 31)
        sums = np.zeros(4 * words, np.uint8)
        sums[: total.size * np.dtype(lane).itemsize] = total.astype(lane).view(np.uint8)
        at = address_of(sums)
        fits &= integers.unpack_part(code, unsigned, part, at, size, address_of(result), address_of(kept), words) != 0
    exact = [sum(int(value) for value in column) for column in rows.T]
    limits = np.iinfo(dtype)
    assert result[:-1].tolist() == [min(max(value, limits.min), limits.max) for value in exact]
    assert result[-1] == 0
    assert fits == all(limits.min <= value <= limits.max for value in exact)

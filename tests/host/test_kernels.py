"""Kernels against the definition in `switchsum_protocol.lanes`, bit for bit."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchsum_host.engine import dtypes, integers, kernels, narrow
from switchsum_protocol import lane_scales, lanes
from switchsum_protocol.frame import LaneFormat
from switchsum_protocol.lanes import widened
from switchsum_switch.kernels import floats
from switchsum_switch.kernels.decorators import kernel
from switchsum_switch.kernels.loading import address_of

from .digits import digits_of, put_sums

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [
    (dtypes.FLOAT32, np.dtype(np.float32)),
    (dtypes.FLOAT16, np.dtype(np.float16)),
    (dtypes.BFLOAT16, BFLOAT16),
]
GUARD = 0x5A5A_5A5A
Array = npt.NDArray[Any]


def block(data: st.DataObject, dtype: np.dtype[Any], most: int = 40) -> Array:
    """Draw a finite block: any bit pattern, or values of similar size."""
    size = data.draw(st.integers(1, most))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    if data.draw(st.booleans()):
        values = random.integers(0, 1 << 8 * dtype.itemsize, size, dtype=f"u{dtype.itemsize}").view(dtype)
        with np.errstate(invalid="ignore"):  # signalling NaN
            values[~np.isfinite(values.astype(np.float64))] = 0
    else:
        values = (random.standard_normal(size) * 2.0 ** data.draw(st.integers(-20, 14))).astype(dtype)
    if data.draw(st.booleans()):
        values[random.random(size) < 0.5] = 0
    return np.ascontiguousarray(values)


def finite_exponent(values: Array) -> int:
    return lanes.block_exponent(values.astype(np.float32))


@pytest.mark.parametrize(("code", "dtype"), FLOATS)
@given(data=st.data())
def test_scan_finds_the_exponent(code: int, dtype: np.dtype[Any], data: st.DataObject) -> None:
    values = block(data, dtype)
    if data.draw(st.booleans()):
        values[-1] = data.draw(st.sampled_from([np.inf, -np.inf, np.nan]))
    wide = values.astype(np.float32)
    expected = lanes.block_exponent(wide) if wide.any() else integers.ALL_ZERO
    assert kernels.scan(code, address_of(values), len(values)) == expected


@pytest.mark.parametrize(("code", "dtype"), FLOATS)
def test_scan_makes_a_block_of_negative_zeros_positive(code: int, dtype: np.dtype[Any]) -> None:
    values = np.array([-0.0, 0.0] * 20 + [-0.0, 1.0], dtype)
    assert kernels.scan(code, address_of(values), 41) == integers.ALL_ZERO
    assert not np.signbit(values[:41].astype(np.float32)).any()
    values[:2] = -0.0
    assert kernels.scan(code, address_of(values), 42) == 127
    assert np.signbit(values[:2].astype(np.float32)).all()


@pytest.mark.parametrize(("code", "dtype"), FLOATS)
@given(data=st.data())
def test_pack_is_the_definition(code: int, dtype: np.dtype[Any], data: st.DataObject) -> None:
    values = block(data, dtype)
    workers = data.draw(st.integers(1, 32))
    exponent = min(254, finite_exponent(values) + data.draw(st.integers(0, 3)))
    width = len(values) + data.draw(st.integers(0, 5))
    frame = np.full(width + 1, GUARD, ">i4")
    scale = lane_scales.full_scale(workers, 32) * 2.0 ** (126 - max(exponent, 1))
    kernels.pack(code, address_of(values), len(values), address_of(frame), width, scale)
    expected = lanes.quantise(values.astype(np.float32), exponent, workers, 32)
    np.testing.assert_array_equal(frame[: len(values)], expected)
    assert not frame[len(values) : width].any()
    assert frame[width] == GUARD


@pytest.mark.parametrize(("code", "dtype"), FLOATS)
@given(data=st.data())
def test_unpack_is_the_definition(code: int, dtype: np.dtype[Any], data: st.DataObject) -> None:
    workers = data.draw(st.integers(1, 32))
    exponent = data.draw(st.integers(0, 254))
    size = data.draw(st.integers(1, 40))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    sums = random.integers(-(1 << 31), 1 << 31, size) >> random.integers(0, 31, size)
    frame = sums.astype(">i4")
    values = np.zeros(size + 1, dtype)
    share = data.draw(st.sampled_from([1.0, 1.0 / workers]))
    step = lane_scales.step(exponent, workers, 32) * share
    kernels.unpack(code, address_of(frame), size, address_of(values), step)
    with np.errstate(over="ignore"):
        expected = (sums * step).astype(np.float32).astype(dtype)
    np.testing.assert_array_equal(values[:size].view(f"u{dtype.itemsize}"), expected.view(f"u{dtype.itemsize}"))
    assert values[size] == 0


def test_every_float16_and_bfloat16_comes_back() -> None:
    for code, dtype in FLOATS[1:]:
        values = np.arange(1 << 16, dtype=np.uint16).view(dtype)
        with np.errstate(invalid="ignore"):  # signalling NaN
            values = values[np.isfinite(values.astype(np.float32))]
        for value in values[:: 1 if code == dtypes.FLOAT16 else 7]:
            one = np.array([value], dtype)
            exponent = max(0, kernels.scan(code, address_of(one), 1))
            frame = np.zeros(1, np.uint32)
            scale = lane_scales.full_scale(1, 32) * 2.0 ** (126 - max(exponent, 1))
            kernels.pack(code, address_of(one), 1, address_of(frame), 1, scale)
            back = np.zeros(1, dtype)
            kernels.unpack(code, address_of(frame), 1, address_of(back), lane_scales.step(exponent, 1, 32))
            assert back[0] == value


@pytest.mark.parametrize(("code", "dtype"), FLOATS)
@pytest.mark.parametrize("bits", [8, 16])
@given(data=st.data())
def test_narrow_values_are_the_definition(code: int, dtype: np.dtype[Any], bits: int, data: st.DataObject) -> None:
    values = block(data, dtype)
    workers = data.draw(st.integers(1, 4096))
    seed = data.draw(st.integers(0, 2**32 - 1))
    exponent = min(254, finite_exponent(values) + data.draw(st.integers(0, 3)))
    words = -(-len(values) // 2) + data.draw(st.integers(0, 30))
    scale = lane_scales.full_scale(workers, bits) * 2.0 ** (126 - max(exponent, 1))
    expected = lanes.quantise_at_random(values.astype(np.float32), exponent, workers, bits, seed)
    assert np.abs(expected).max() <= lane_scales.full_scale(workers, bits)
    for value_bytes in {1, 2} if bits == 8 else {2}:  # lanes of 16 bits take values of 8, too
        frame = np.full(2 * words * value_bytes + 1, 0x5A, np.uint8)
        at = address_of(frame)
        narrow.pack_narrow(code, 8 * value_bytes, 16, address_of(values), len(values), at, words, scale, seed)
        payload = frame[:-1] if value_bytes == 2 else widened(frame[:-1].tobytes())
        packed = payload.view(">i2")
        np.testing.assert_array_equal(packed[: len(values)], expected)
        assert not packed[len(values) :].any()
        assert frame[-1] == 0x5A

    results = np.zeros(len(values) + 1, dtype)
    step = lane_scales.step(exponent, workers, bits)
    narrow.unpack_narrow(code, address_of(packed), len(values), address_of(results), step)
    with np.errstate(over="ignore"):
        wanted = (expected * step).astype(np.float32).astype(dtype)
    np.testing.assert_array_equal(results[:-1].view(f"u{dtype.itemsize}"), wanted.view(f"u{dtype.itemsize}"))
    assert results[-1] == 0


@pytest.mark.parametrize("count", [1, 15, 16, 17, 32])
def test_halves_of_bytes_are_the_definition(count: int) -> None:
    values = np.resize(np.arange(-8, 8, dtype=np.int8), count)
    frame = np.full(17, 0x5A, np.uint8)
    integers.pack_nibbles(address_of(values), count, address_of(frame), 8)
    packed = widened(frame[:-1].tobytes(), LaneFormat.NIBBLES).view(np.int8)
    np.testing.assert_array_equal(packed[:count], values)
    assert not packed[count:].any()
    assert frame[-1] == 0x5A


def test_rounding_at_random_is_right_in_the_mean() -> None:
    values = np.array([0.3, -0.3, 0.0, 1.0, -0.999], np.float32)
    exponent = lanes.block_exponent(values)
    drawn = [lanes.quantise_at_random(values, exponent, 4, 8, seed) for seed in range(4000)]
    mean = lanes.dequantise(np.mean(drawn, axis=0), exponent, 4, 8)
    # The variance of one draw is at most a quarter of a step's square.
    tolerance = 6 * lane_scales.step(exponent, 4, 8) / 2 / np.sqrt(len(drawn))
    np.testing.assert_allclose(mean, values, atol=tolerance)


@pytest.mark.parametrize(("code", "dtype"), FLOATS)
def test_a_block_can_be_made_nan(code: int, dtype: np.dtype[Any]) -> None:
    values = np.zeros(9, dtype)
    kernels.fill_nan(code, address_of(values), 8)
    assert np.isnan(values[:8].astype(np.float32)).all()
    assert values[8] == 0


_FLUSHED_X86 = 0x1F80 | 0x8040
_TOWARDS_ZERO_X86 = 0x1F80 | 0x6000
_FLUSHED_ARM = 1 << 24
_TOWARDS_ZERO_ARM = 3 << 22


@kernel
def _begin_unusual(mode: int) -> None:
    floats.restore_floats(mode)


@kernel
def _end_unusual() -> int:
    return floats.usual_floats()


@pytest.mark.skipif(not (floats._IS_X86 or floats._IS_ARM), reason="nobody has said how this processor is asked")
@pytest.mark.parametrize("mode", [(_FLUSHED_X86, _FLUSHED_ARM), (_TOWARDS_ZERO_X86, _TOWARDS_ZERO_ARM)])
@pytest.mark.parametrize(("code", "dtype"), FLOATS)
def test_what_a_thread_has_asked_of_its_floats_changes_no_bit(
    code: int, dtype: np.dtype[Any], mode: tuple[int, int]
) -> None:
    # All scales at which something in or next to the values is subnormal, and a few others.
    bits = np.arange(1, 1 << (15 if dtype.itemsize == 2 else 31), 97 if dtype.itemsize == 2 else 25_165_843)
    values = bits.astype(f"u{dtype.itemsize}").view(dtype)
    values = np.sort(values[np.isfinite(values.astype(np.float32))])
    numbers = np.random.default_rng(3).integers(-(1 << 31), 1 << 31, 64)
    tiny = np.array([1e-45, -3e-39, 1.2e-38, 1.0], np.float32)
    steps = {(e, bits): lane_scales.step(e, 3, bits) for e in (*range(40), 100, 127, 200, 254) for bits in (32, 16)}
    scales = {(e, w): lane_scales.full_scale(3, w) * 2.0 ** (126 - max(e, 1)) for e in range(255) for w in (32, 16, 8)}

    def everything() -> list[bytes]:
        made: list[bytes] = []
        for start in range(0, len(values), 8):
            block = np.ascontiguousarray(values[start : start + 8])
            exponent = kernels.scan(code, address_of(block), len(block))
            made.append(bytes([exponent]))
            for width in (32, 16, 8):
                frame, scale = np.zeros(8, ">u4"), scales[exponent, width]
                if width == 32:
                    kernels.pack(code, address_of(block), len(block), address_of(frame), 8, scale)
                else:
                    narrow.pack_narrow(code, width, 16, address_of(block), len(block), address_of(frame), 8, scale, 77)
                made.append(frame.tobytes())
        for (_, bits), step in steps.items():
            frame, back = numbers.astype(">i4"), np.zeros(64, dtype)
            if bits == 32:
                kernels.unpack(code, address_of(frame), 64, address_of(back), step)
            else:
                narrow.unpack_narrow(code, address_of(frame), 64, address_of(back), step)
            made.append(back.tobytes())
        sums = tiny.copy()
        put_sums(digits_of(sums), 1 / 3, sums)
        return [*made, sums.tobytes()]

    usual = everything()
    wanted = mode[0] if floats._IS_X86 else mode[1]
    _begin_unusual(wanted)
    try:
        unusual = everything()
    finally:
        after = _end_unusual()
    assert unusual == usual
    assert after & wanted == wanted  # the thread has its own way again

"""Hot loops over one block of integers, and of floats of which the largest or the smallest is wanted.

A lane is as wide as a value; of values from -8 to 7 half of each lane may travel, which the switch widens.  A *mapping*
says what a lane holds: the value as it is, or a signed integer that sorts as the value does.  A block of a sum that
does not fit its lanes is added again in *parts*, none of which can overflow: values of 8 and 16 bits in lanes of 32,
some of the values in each part; wider ones by halves, the low ones first, in lanes of 32 and 64 bits.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.memory import Scalar, bytes_at, halves_at, longs_at, swap, words_at
from switchsum_switch.kernels.outlined import Outlined

from .dtypes import AS_IS, FLOAT_MAX, INT8, INT16, INT32, UNSIGNED

ALL_ZERO: Final = -1
"""Result of a scan of a block of zeros."""


@inner
def is_zero(dtype: int, source: int, count: int) -> bool:
    """Tell whether a block is all zero."""
    if dtype == INT8:
        return _is_zero(bytes_at(source, count))
    if dtype == INT16:
        return _is_zero(halves_at(source, count))
    if dtype == INT32:
        return _is_zero(words_at(source, count))
    return _is_zero(longs_at(source, count))


@inner
def _is_zero(values: npt.NDArray[Any]) -> bool:
    union = values.dtype.type(0)
    for i in range(values.size):
        union = values.dtype.type(union | values[i])
    return bool(union == 0)


@Outlined
def pack_integers(dtype: int, mapping: int, infinity: int, source: int, count: int, target: int, words: int) -> int:
    """Write a block of `count` values into the `words` 32-bit words of a frame; the rest become zero.

    A float is NaN if the bits of its magnitude are greater than `infinity`.
    """
    if dtype == INT8:
        _pack(mapping, infinity, bytes_at(source, count), bytes_at(target, count))
    elif dtype == INT16:
        _pack(mapping, infinity, halves_at(source, count), halves_at(target, count))
    elif dtype == INT32:
        _pack(mapping, infinity, words_at(source, count), words_at(target, count))
    else:
        _pack(mapping, infinity, longs_at(source, count), longs_at(target, count))
    used = count << (dtype - INT8)
    bytes_at(target + used, 4 * words - used)[:] = 0
    return 0


@Outlined
def pack_nibbles(source: int, count: int, target: int, words: int) -> int:
    """Write a block of `count` bytes, each from -8 to 7, into the `2 * words` bytes of a frame; the rest become zero.

    The upper half of byte j is value j, and the lower one value j + 2 * words.
    """
    half = 2 * words
    firsts = min(count, half)
    seconds = count - firsts
    values, frame = bytes_at(source, count), bytes_at(target, half)
    for i in range(seconds):
        frame[i] = np.uint8(np.uint8(values[i] << np.uint8(4)) | np.uint8(values[half + i] & np.uint8(15)))
    for i in range(seconds, firsts):
        frame[i] = np.uint8(values[i] << np.uint8(4))
    frame[firsts:] = 0
    return 0


@Outlined
def unpack_integers(dtype: int, mapping: int, source: int, count: int, target: int) -> int:
    """Write the first `count` lanes of a frame to the array."""
    if dtype == INT8:
        _unpack(mapping, bytes_at(source, count), bytes_at(target, count))
    elif dtype == INT16:
        _unpack(mapping, halves_at(source, count), halves_at(target, count))
    elif dtype == INT32:
        _unpack(mapping, words_at(source, count), words_at(target, count))
    else:
        _unpack(mapping, longs_at(source, count), longs_at(target, count))
    return 0


@inner
def _pack(mapping: int, infinity: int, values: npt.NDArray[Any], lanes: npt.NDArray[Any]) -> None:
    if mapping == AS_IS:
        for i in range(values.size):
            lanes[i] = swap(values[i])
        return
    top = np.uint64(1) << np.uint64(8 * values.itemsize - 1)
    low = top - np.uint64(1)
    for i in range(values.size):
        bits = np.uint64(values[i])
        if mapping == UNSIGNED:
            bits ^= top
        elif bits & low > np.uint64(infinity):
            bits = low if mapping == FLOAT_MAX else top
        elif bits & top:
            bits ^= low
        lanes[i] = bits
        lanes[i] = swap(lanes[i])


@inner
def _unpack(mapping: int, lanes: npt.NDArray[Any], values: npt.NDArray[Any]) -> None:
    if mapping == AS_IS:
        for i in range(values.size):
            values[i] = swap(lanes[i])
        return
    top = np.uint64(1) << np.uint64(8 * values.itemsize - 1)
    low = top - np.uint64(1)
    for i in range(values.size):
        bits = np.uint64(swap(lanes[i]))
        if mapping == UNSIGNED:
            bits ^= top
        elif bits & top:
            bits ^= low
        values[i] = bits


@inner
def parts_of(dtype: int) -> int:
    """Return how many parts a block of integers has."""
    return 4 if dtype == INT8 else 2


@Outlined
def pack_part(dtype: int, unsigned: int, part: int, source: int, count: int, target: int, words: int) -> int:
    """Write one part, from 0, of a block of `count` integers into the `words` 32-bit words of a frame."""
    frame = words_at(target, words)
    if dtype <= INT16:
        first, count = _range_of_part(part, count, words)
        if dtype == INT8:
            _pack_wider(unsigned != 0, bytes_at(source + first, count), frame)
        else:
            _pack_wider(unsigned != 0, halves_at(source + 2 * first, count), frame)
        frame[count:] = 0
    elif dtype == INT32:
        integers = words_at(source, count)
        for i in range(count):
            word = np.int64(integers[i]) if unsigned else np.int64(np.int32(integers[i]))
            frame[i] = swap(np.uint32(word >> 16 if part else word & 0xFFFF))
        frame[count:] = 0
    else:
        lanes, longs = longs_at(target, count), longs_at(source, count)
        for i in range(count):
            high = np.int64(longs[i] >> np.uint64(32)) if unsigned else np.int64(longs[i]) >> 32
            lanes[i] = swap(np.uint64(high if part else np.int64(longs[i]) & 0xFFFF_FFFF))
        frame[2 * count :] = 0
    return 0


@inner
def _range_of_part(part: int, count: int, words: int) -> tuple[Any, Any]:
    """Return the first value of a part, and how many it has."""
    first: Scalar = min(part * words, count)
    return first, min(words, count - first)


@inner
def _pack_wider(unsigned: bool, values: npt.NDArray[Any], frame: npt.NDArray[np.uint32]) -> None:
    sign = np.int64(0) if unsigned else np.int64(1) << (8 * values.itemsize - 1)
    for i in range(values.size):
        frame[i] = swap(np.uint32((np.int64(values[i]) ^ sign) - sign))


@Outlined
def unpack_part(
    dtype: int, unsigned: int, part: int, source: int, count: int, target: int, kept_at: int, words: int
) -> int:
    """Take the sums of one part of a block; 0 when one was beyond the dtype and became the nearest value, else 1.

    At `kept_at`, `words` 32-bit words hold the sums of low halves until those of high halves come.
    """
    if dtype <= INT16:
        first, count = _range_of_part(part, count, words)
        frame = words_at(source, count)
        if dtype == INT8:
            return int(_unpack_wider(unsigned != 0, frame, bytes_at(target + first, count)))
        return int(_unpack_wider(unsigned != 0, frame, halves_at(target + 2 * first, count)))
    if part == 0:
        sums, kept = words_at(source, words), words_at(kept_at, words)
        for i in range(words):
            kept[i] = sums[i]
        return 1
    if dtype == INT32:
        return int(_join(unsigned != 0, words_at(source, count), words_at(kept_at, count), words_at(target, count)))
    return int(_join(unsigned != 0, longs_at(source, count), longs_at(kept_at, count), longs_at(target, count)))


@inner
def _join(unsigned: bool, highs: npt.NDArray[Any], lows: npt.NDArray[Any], integers: npt.NDArray[Any]) -> bool:
    """Join the sums of both halves; a sum that does not fit becomes the nearest value, and the result is False."""
    bits = 4 * integers.itemsize
    least = np.int64(0) if unsigned else -(np.int64(1) << (bits - 1))
    most = (np.int64(1) << bits) - 1 + least
    mask = (np.int64(1) << bits) - 1
    fits = True
    for i in range(integers.size):
        high, low = _signed(swap(highs[i]), highs.itemsize), _signed(swap(lows[i]), lows.itemsize)
        high += low >> bits
        low &= mask
        if high < least or high > most:
            fits = False
            low = np.int64(0) if high < least else mask
            high = least if high < least else most
        integers[i] = np.uint64((high << bits) | low)
    return fits


@inner
def _signed(lane: Scalar, itemsize: int) -> Scalar:
    """Return the number that a lane of 32 or 64 bits holds."""
    return np.int64(np.int32(lane)) if itemsize == 4 else np.int64(lane)


@inner
def _unpack_wider(unsigned: bool, frame: npt.NDArray[np.uint32], values: npt.NDArray[Any]) -> bool:
    bits = 8 * values.itemsize
    least = np.int64(0) if unsigned else -(np.int64(1) << (bits - 1))
    most = (np.int64(1) << bits) - 1 + least
    fits = True
    for i in range(values.size):
        total = np.int64(np.int32(swap(frame[i])))
        limited: Scalar = min(max(total, least), most)
        fits &= limited == total
        values[i] = np.uint64(limited)
    return fits

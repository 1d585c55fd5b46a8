"""Places of rows as few bits, and what a few words say of many places: a digest, and about how many there are in all.

Places in rising order are coded as Elias and Fano did (1974): the lower bits of each as they are, side by side, and for
the upper ones a bit per place at (upper + number of places before).  With a share of d of the rows that is at most
log2(1/d) + 2 bits a place and some, wherever the places are, and how many follows from the number of places.

The number of places that some rank has is estimated as Flajolet and Martin did (PCSA, 1985), from words that are united
with "or".  The sum of all places' hashes is the same on all ranks if the places are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from switchsum_switch.kernels.decorators import inner, kernel
from switchsum_switch.kernels.floats import restore_floats, usual_floats
from switchsum_switch.kernels.loading import address_of
from switchsum_switch.kernels.memory import Scalar, floats_at, integers_at, long_at, longs_at
from switchsum_switch.kernels.plain import wrapping

from .bitmap import WORD_BITS, Indices, Words, ones, trailing_zeros, words_for
from .eights import EIGHT, FIRST_FACTOR, HALF, SECOND_FACTOR, hashed, packed, set_long, spread

Floats = npt.NDArray[np.float32]
Totals = npt.NDArray[np.float64]
Buckets = npt.NDArray[np.uint32]

SKETCH_WORDS: Final = 64
STRETCH_WORDS: Final = 4
"""A bit for each of 256 stretches, or fewer: where bitmaps have frames of zeros."""
_BUCKETS: Final = 2 * SKETCH_WORDS
"""Each has 32 bits. The estimate is off by 0.78 / sqrt(128) = 7 % on average."""
_BUCKET_SHIFT: Final = 64 - 7
_LAST_LEVEL: Final = 31
_CORRECTION: Final = 0.77351
"""Flajolet's and Martin's phi."""
_FEW_EMPTY: Final = 6
"""With more empty buckets than this, their number says more than the levels do."""
_OCTET: Final = 8
_SURELY: Final = 1024
"""With so many places one bucket of 3,000 lacks the lowest bit; with twice as many, the second bit, and so on."""
_SKIPPED: Final = 4
"""From so many such bits on, eights of places are looked at: nearly all have no place that sets another bit."""
_TOTALS: Final = EIGHT * EIGHT
"""Sums of hashes, side by side: a power of two."""


def shift_for(count: int, rows: int) -> int:
    """Return how many lower bits of each place are kept as they are."""
    return max(1, rows // max(1, count)).bit_length() - 1


@lru_cache
def _words(count: int, rows: int) -> tuple[int, int, int]:
    """Return how many words the lower bits take, and the upper ones, and how many bits of a place are lower ones."""
    shift = shift_for(count, rows)
    if count == 0:
        return 0, 0, shift
    return words_for(count * shift), words_for(count + (rows >> shift) + 1), shift


def octets_for(count: int, rows: int) -> int:
    """Return how many bytes so many places out of `rows` take."""
    lower, upper, _ = _words(count, rows)
    return (lower + upper) * WORD_BITS // _OCTET


def code(indices: Indices, rows: int) -> Words:
    """Return places in rising order as words."""
    lower, upper, shift = _words(len(indices), rows)
    words = np.zeros(lower + upper + 1, np.uint64)
    if len(indices):
        _write_places(indices, shift, lower, words)
    return words[:-1]


def decode(words: Words, count: int, rows: int) -> Indices:
    """Return the places that `code` has made these words of."""
    lower, upper, shift = _words(count, rows)
    assert len(words) == lower + upper
    indices = np.empty(count, np.int64)
    read = _read_places(words, address_of(words), lower, shift, rows, indices)
    assert read == count
    return indices


@kernel
@wrapping
def _write_places(indices: Indices, shift: int, lower: int, words: Words) -> None:
    """Write places into `words`, which are zero, and of which the first `lower` hold the lower bits.

    There is one word more than these need.
    """
    address, target = indices.ctypes.data, words.ctypes.data
    one, six, last_bit, width = np.uint64(1), np.uint64(6), np.uint64(63), np.uint64(shift)
    mask = (one << width) - one
    done: Scalar = np.int64(0)
    if 0 < shift <= EIGHT:
        # Eight places fill whole bytes; what is written beyond these are zeros, and the next eight overwrite them.
        for done in range(0, indices.size - EIGHT + 1, EIGHT):
            set_long(target + (done >> 3) * shift, packed(address + 8 * done, width))
        done = indices.size & -EIGHT
    bit = np.uint64(done) * width
    low_word = words[bit >> six] if bit & last_bit != 0 else np.uint64(0)
    for i in range(done, indices.size):
        low, offset = np.uint64(indices[i]) & mask, bit & last_bit
        low_word |= low << offset
        if offset + width > last_bit:
            words[bit >> six] = low_word
            low_word = (low >> one) >> (last_bit - offset)
        bit += width
    if bit & last_bit != 0:
        words[bit >> six] = low_word
    _write_upper(indices, address, shift, lower, words)


@inner
@wrapping
def _write_upper(indices: Indices, address: int, shift: int, lower: int, words: Words) -> None:
    """Set the bit of each place for its upper bits."""
    one, six, last_bit, width = np.uint64(1), np.uint64(6), np.uint64(63), np.uint64(shift)
    size, first, none = np.uint64(indices.size), np.uint64(lower), np.uint64(0)
    number, source, word, following = none, none, none, none
    while number < size:
        bit, end = (np.uint64(indices[number]) >> width) + number, number + np.uint64(EIGHT)
        begin, offset = bit >> six, bit & last_bit
        if end <= size and (np.uint64(indices[end - one]) >> width) + end - one - bit <= last_bit:
            # Two words are written again for each eight: when the next word begins, no processor foresees.
            bits = spread(address + np.int64(number << np.uint64(3)), width, bit - number)
            word = word if begin == source else following if begin == source + one else none
            word |= bits << offset
            following = (following if begin == source else none) | ((bits >> one) >> (last_bit - offset))
            source = begin
            words[first + source], words[first + source + one] = word, following
        else:
            end = min(end, size)
            for i in range(number, end):
                at = (np.uint64(indices[i]) >> width) + i
                source = at >> six
                words[first + source] |= one << (at & last_bit)
            word, following = words[first + source], none
        number = end


@kernel
@wrapping
def _read_places(words: Words, address: int, lower: int, shift: int, rows: int, indices: Indices) -> int:
    """Write places; return how many there are up to the first that is none of `rows`.

    `address` is that of `words`.  The eight bytes that begin with a place's lower bits are read at once: a word of the
    upper bits follows the last ones.
    """
    one, six, width = np.uint64(1), np.uint64(6), np.uint64(shift)
    mask, most, limit = (one << width) - one, np.uint64(indices.size), np.uint64(rows)
    count, bit = np.uint64(0), np.uint64(0)
    for i in range(lower, words.size):
        word = words[i]
        before = np.uint64(i - lower) << six
        while word != 0:
            if count == most:
                return int(count)
            low = (long_at(address + np.int64(bit >> np.uint64(3))) >> (bit & np.uint64(7))) & mask
            place = ((before + trailing_zeros(word) - count) << width) | low
            if place >= limit:
                return int(count)
            indices[count] = np.int64(place)
            count += one
            bit += width
            word &= word - one
    return int(count)


@inner
@wrapping
def _hash(place: Scalar) -> Scalar:
    """Return 64 bits that look random."""
    word = (np.uint64(place) + np.uint64(1)) * np.uint64(FIRST_FACTOR)
    word = (word ^ (word >> np.uint64(HALF))) * np.uint64(SECOND_FACTOR)
    return word ^ (word >> np.uint64(HALF))


def describe(indices: Indices, digest: Words, sketch: Words, stretches: Words, stretch: int) -> None:
    """Add up the hashes of places in order in the one word of `digest`, which is zero, and set bits in `sketch`.

    Set a bit in `stretches`, too, for each `stretch` rows that have a place.
    """
    sure = (len(indices) // _SURELY).bit_length() - 1
    room = _TOTALS + len(indices) // EIGHT if sure >= _SKIPPED else 0
    _describe(indices, digest, sketch.view(np.uint32), stretches, stretch, sure, np.empty(room, np.uint64))


@kernel
@wrapping
def _describe(
    indices: Indices, digest: Words, buckets: Buckets, stretches: Words, stretch: int, sure: int, room: Words
) -> None:
    """Set the lowest bit of each hash in its bucket: where there is `room`, eight places at once, as far as they go."""
    total: Scalar = np.uint64(0)
    size, beyond = np.uint64(indices.size), np.int64(0)
    done: Scalar = np.uint64(0)
    if room.size > 0:
        total = _describe_eights(indices, buckets, stretches, stretch, sure, room)
        done = size - size % np.uint64(EIGHT)
    for i in range(done, size):  # unsigned: no code looks whether it counts from the end
        place = indices[i]
        if place >= beyond:
            beyond = _set_stretch(place, stretches, stretch)
        word = _hash(place)
        total += word
        _set_lowest(word, buckets)
    digest[0] = total


@inner
@wrapping
def _describe_eights(
    indices: Indices, buckets: Buckets, stretches: Words, stretch: int, sure: int, room: Words
) -> Scalar:
    """Do so for eights of places, of which each bucket surely gets the lowest `sure` bits; return the sum of hashes.

    Which places set another bit, no processor foresees.  So they are noted, without a branch, and looked at afterwards.
    What was written a moment ago is slow to read: eight sums of eight places take turns.
    """
    totals, noted = room[:_TOTALS], room[_TOTALS:]
    address, sums = indices.ctypes.data, room.ctypes.data
    mask, count, beyond = np.uint64((1 << sure) - 1), np.uint64(0), np.int64(0)
    for i in range(totals.size):
        totals[i] = np.uint64(0)
    for i in range(buckets.size):
        buckets[i] |= np.uint32(mask)
    for i in range(0, indices.size - EIGHT + 1, EIGHT):
        if indices[i + EIGHT - 1] >= beyond:
            for j in range(i, i + EIGHT):
                beyond = _set_stretch(indices[j], stretches, stretch)
        marks = hashed(address + 8 * i, mask, sums + 8 * (i & (_TOTALS - EIGHT)))
        noted[count] = (np.uint64(i) << np.uint64(EIGHT)) | marks
        count += np.uint64(marks != 0)
    for i in range(np.int64(count)):
        first, marks = np.int64(noted[i] >> np.uint64(EIGHT)), noted[i] & np.uint64((1 << EIGHT) - 1)
        while marks != 0:
            _set_lowest(_hash(indices[first + np.int64(trailing_zeros(marks))]), buckets)
            marks &= marks - np.uint64(1)
    total = np.uint64(0)
    for i in range(totals.size):
        total += totals[i]
    return total


@inner
@wrapping
def _set_stretch(place: Scalar, stretches: Words, stretch: int) -> Scalar:
    """Set the bit of the stretch that a place is in; return where the next stretch begins."""
    at = place // stretch
    stretches[at >> 6] |= np.uint64(1) << np.uint64(at & 63)
    return (at + 1) * stretch


@inner
@wrapping
def _set_lowest(word: Scalar, buckets: Buckets) -> None:
    """Set the lowest bit of a hash in its bucket."""
    bits = np.uint32(word) | np.uint32(1 << _LAST_LEVEL)
    buckets[word >> np.uint64(_BUCKET_SHIFT)] |= bits & (np.uint32(0) - bits)


def stretch_of(rows: int, least: int) -> int:
    """Return how many rows a stretch has, of which a bit each tells where an array has rows: at least so many."""
    return max(least, -(-rows // (STRETCH_WORDS * WORD_BITS)))


def occupied(words: Words, rows: int, stretch: int) -> int:
    """Return how many rows lie in the stretches whose bits are set."""
    return min(rows, int(np.bitwise_count(words).sum()) * stretch)


def estimate(sketch: Words) -> int:
    """Return about how many places there are in a sketch of some ranks' places, united."""
    levels, empty = _levels_of(sketch)
    if empty > _FEW_EMPTY:
        return round(_BUCKETS * _harmonic(empty))
    return round(_BUCKETS / _CORRECTION * _powers()[levels % _BUCKETS] * (1 << levels // _BUCKETS))


@kernel
def _levels_of(sketch: Words) -> tuple[int, int]:
    """Return the sum of the lowest levels that no place of a bucket has, and how many buckets have no place."""
    levels: Scalar = np.int64(0)
    empty: Scalar = np.int64(0)
    for bucket in range(2 * sketch.size):
        bits = (sketch[bucket >> 1] >> np.uint64(32 * (bucket & 1))) & np.uint64(0xFFFF_FFFF)
        levels += np.int64(trailing_zeros(~bits))
        empty += bits == 0
    return levels, empty


@cache
def _harmonic(empty: int) -> float:
    """Return the sum of 1 / i from the number of empty buckets on."""
    return sum(1 / i for i in range(empty + 1, _BUCKETS + 1))


@cache
def _powers() -> Sequence[float]:
    """Return 2 to the powers of 0 / 128 to 127 / 128, by square roots, which are the same on every machine."""
    root = 2.0
    for _ in range(_BUCKETS.bit_length() - 1):
        root = math.sqrt(root)
    powers = [1.0]
    while len(powers) < _BUCKETS:
        powers.append(powers[-1] * root)
    return powers


class Part(NamedTuple):
    """A rank's rows: coded places of `size` of them, and their values side by side."""

    words: Words
    values: Floats
    size: int
    indices: Indices | None = None
    """The places themselves, where they are known, in place of `words`: this rank's need no decoding."""


_WORDS, _SIZE, _LOWER, _SHIFT, _COUNT, _VALUES, _DONE, _NEXT, _REST = range(9)
"""Columns of a table of parts: addresses and lengths, and how far a part has been read.

`_LOWER` words come before the upper bits. `_NEXT` is the word whose bits are being read, and `_REST` those left of it.
"""
_LISTED: Final = -1
"""In place of how many lower bits there are: places are 64-bit integers."""
AT_ONCE: Final = 4
"""Places of a word of 64 that are written together. Nobody foresees how many it has: a loop would often end wrongly."""
TILE: Final = 1 << 12
"""Sums of so many values, 32 kB, stay in a processor's first cache while the parts are added one after the other."""


def add(parts: Sequence[Part], rows: int, width: int, divisor: float) -> tuple[Indices, Floats]:
    """Return the rows that some part has, in order, and their sums over `divisor`.

    Each sum is made in float64 in the order of the parts, and rounded once. Zero is +0, and all NaN are the same NaN.
    """
    lines = []
    for part in parts:
        lower, upper, shift = _words(part.size, rows)
        assert part.values.size == part.size * width
        values = address_of(part.values)
        if part.indices is not None:
            assert len(part.indices) == part.size
            lines.append((address_of(part.indices), part.size, 0, _LISTED, part.size, values, 0, 0, 0))
            continue
        assert len(part.words) == lower + upper
        words = address_of(part.words)
        lines.append((words, lower + upper, lower, shift, part.size, values, 0, lower - 1, 0))
    table = np.array(lines, np.int64).reshape(len(parts), _REST + 1)
    most = min(rows, sum(part.size for part in parts))
    tile = max(WORD_BITS, TILE // max(1, width) // WORD_BITS * WORD_BITS)
    room = most + AT_ONCE
    indices, sums = np.empty(room, np.int64), np.empty((room, width), np.float32)
    totals, seen = np.zeros(tile * width), np.zeros(tile // WORD_BITS, np.uint64)
    found = _add_parts(table, rows, width, divisor, totals, seen, indices, sums)
    assert found >= 0
    indices, sums = indices[:found], sums[:found]
    return (indices, sums) if 2 * found >= most else (indices.copy(), sums.copy())


@kernel
@wrapping
def _add_parts(
    table: Indices, rows: int, width: int, divisor: float, totals: Totals, seen: Words, indices: Indices, sums: Floats
) -> int:
    """Add parts tile by tile, and write rows and sums; return how many rows there are, or -1: a part was not read."""
    mode = usual_floats()
    tile = seen.size * WORD_BITS
    found = 0
    for first in range(0, rows, tile):
        for i in range(table.shape[0]):
            if table[i, _SHIFT] == _LISTED:
                _add_listed(table[i], first, min(tile, rows - first), width, totals, seen)
            elif width == 1:
                _add_values(table[i], first, min(tile, rows - first), totals, seen)
            else:
                _add_rows(table[i], first, min(tile, rows - first), width, totals, seen)
        if width == 1:
            found = write_sums(seen, totals, divisor, first, found, indices, sums)
        else:
            found = _write_rows(seen, totals, divisor, first, found, indices, sums)
    restore_floats(mode)
    for i in range(table.shape[0]):
        if table[i, _DONE] != table[i, _COUNT]:
            return -1
    return found


@inner
@wrapping
def write_sums(
    seen: Words, totals: Totals, divisor: float, first: int, found: int, indices: Indices, sums: Floats
) -> int:
    """Write rows of a tile that begins at `first`, and their sums, behind `found` others; return how many there are.

    What is written too much of a word is overwritten by the next one, or behind the end.
    """
    one, end = np.uint64(1), np.uint64(1 << (WORD_BITS - 1))
    behind: Scalar = found
    for i in range(seen.size):
        word = seen[i]
        seen[i] = np.uint64(0)
        at = behind
        behind += np.int64(ones(word))
        while at < behind:
            for _ in range(AT_ONCE):
                place = WORD_BITS * i + np.int64(trailing_zeros(word | end))
                word &= word - one
                indices[at] = first + place
                sums[at, 0] = _plain(np.float32(totals[place] / divisor))
                totals[place] = 0.0
                at += 1
    return behind  # type: ignore[no-any-return]


@inner
@wrapping
def _write_rows(
    seen: Words, totals: Totals, divisor: float, first: int, found: int, indices: Indices, sums: Floats
) -> int:
    """Do the same where a row has any number of values, or sums are divided."""
    width = sums.shape[1]
    for i in range(seen.size):
        word = seen[i]
        seen[i] = np.uint64(0)
        while word != 0:
            at = WORD_BITS * i + np.int64(trailing_zeros(word))
            word &= word - np.uint64(1)
            indices[found] = first + at
            for j in range(width):
                sums[found, j] = _rounded(totals[at * width + j], divisor)
                totals[at * width + j] = 0.0
            found += 1
    return found


@inner
def _rounded(total: Scalar, divisor: float) -> Any:
    return _plain(np.float32(total / divisor if divisor != 1.0 else total))


@inner
def _plain(value: Scalar) -> Any:
    """Return a float32 with zero as +0, and one NaN for all."""
    return np.float32(value + np.float32(0)) if value == value else np.float32(np.nan)  # noqa: PLR0124


@inner
@wrapping
def _add_values(part: Indices, first: int, rows: int, totals: Totals, seen: Words) -> None:
    """Add the rows of a part that lie in a tile; a place that is in no tile ends the part.

    Indices are unsigned, for then no code looks whether they count from an array's end.
    """
    one, three, six, last_bit = np.uint64(1), np.uint64(3), np.uint64(6), np.uint64(63)
    size, count, begin, length = np.uint64(part[_SIZE]), np.uint64(part[_COUNT]), np.uint64(first), np.uint64(rows)
    words, values = longs_at(part[_WORDS], part[_SIZE]), floats_at(part[_VALUES], part[_COUNT])
    lows, shift = np.uint64(part[_WORDS]), np.uint64(part[_SHIFT])
    mask, before = (one << shift) - one, np.uint64(part[_LOWER]) << six
    done, source, word = np.uint64(part[_DONE]), np.uint64(part[_NEXT]), np.uint64(part[_REST])
    bit, is_inside = done * shift, True
    while is_inside:
        while word == 0 and source + one < size:
            source += one
            word = words[source]
        if word == 0 or done + ones(word) > count:
            break
        upper = (source << six) - before - done
        while word != 0:
            # The eight bytes that begin with a place's lower bits; a word of the upper bits follows the last ones.
            lower = (long_at(np.int64(lows + (bit >> three))) >> (bit & np.uint64(7))) & mask
            at = (((upper + trailing_zeros(word)) << shift) | lower) - begin
            if at >= length:
                is_inside = False
                break
            word &= word - one
            seen[at >> six] |= one << (at & last_bit)
            totals[at] += np.float64(values[done])
            done += one
            upper -= one
            bit += shift
    part[_DONE], part[_NEXT], part[_REST] = np.int64(done), np.int64(source), np.int64(word)


@inner
@wrapping
def _add_rows(part: Indices, first: int, rows: int, width: int, totals: Totals, seen: Words) -> None:
    """Add the rows of a part that lie in a tile; a place that is in no tile ends the part.

    Indices are unsigned, for then no code looks whether they count from an array's end.
    """
    one, three, six, last_bit = np.uint64(1), np.uint64(3), np.uint64(6), np.uint64(63)
    size, count, begin, length = np.uint64(part[_SIZE]), np.uint64(part[_COUNT]), np.uint64(first), np.uint64(rows)
    words, values = longs_at(part[_WORDS], part[_SIZE]), floats_at(part[_VALUES], part[_COUNT] * width)
    lows, shift, columns = np.uint64(part[_WORDS]), np.uint64(part[_SHIFT]), np.uint64(width)
    mask, before = (one << shift) - one, np.uint64(part[_LOWER]) << six
    done, source, word = np.uint64(part[_DONE]), np.uint64(part[_NEXT]), np.uint64(part[_REST])
    bit, is_inside = done * shift, True
    while is_inside:
        while word == 0 and source + one < size:
            source += one
            word = words[source]
        if word == 0 or done + ones(word) > count:
            break
        upper = (source << six) - before - done
        while word != 0:
            # The eight bytes that begin with a place's lower bits; a word of the upper bits follows the last ones.
            lower = (long_at(np.int64(lows + (bit >> three))) >> (bit & np.uint64(7))) & mask
            at = (((upper + trailing_zeros(word)) << shift) | lower) - begin
            if at >= length:
                is_inside = False
                break
            word &= word - one
            seen[at >> six] |= one << (at & last_bit)
            for j in range(columns):
                totals[at * columns + j] += np.float64(values[done * columns + j])
            done += one
            upper -= one
            bit += shift
    part[_DONE], part[_NEXT], part[_REST] = np.int64(done), np.int64(source), np.int64(word)


@inner
@wrapping
def _add_listed(part: Indices, first: int, rows: int, width: int, totals: Totals, seen: Words) -> None:
    """Add the rows of a part that lie in a tile; its places are listed, in order."""
    indices = integers_at(part[_WORDS], part[_COUNT])
    values, columns = floats_at(part[_VALUES], part[_COUNT] * width), np.uint64(width)
    done, count, end = np.uint64(part[_DONE]), np.uint64(part[_COUNT]), first + rows
    while done < count and indices[done] < end:
        at = np.uint64(indices[done] - first)
        seen[at >> np.uint64(6)] |= np.uint64(1) << (at & np.uint64(63))
        for j in range(columns):
            totals[at * columns + j] += np.float64(values[done * columns + j])
        done += np.uint64(1)
    part[_DONE] = np.int64(done)


def narrowed(sums: Floats, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return sums as floats of a dtype that is at most as wide."""
    if dtype == np.float32:
        return sums
    with np.errstate(over="ignore"):
        narrow: npt.NDArray[Any] = sums.astype(dtype)
    narrow += dtype.type(0)  # what was rounded to -0 becomes 0
    return narrow

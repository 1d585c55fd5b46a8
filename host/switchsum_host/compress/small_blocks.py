"""Scales of small blocks: the largest magnitude that any rank has in each, which all ranks agree on.

A block's magnitude travels as the upper bits of a float32, whose bits are in the order of the values. `agree_finely`
sends 16 of them. `agree` sends 8, counted from the largest block of all, which is agreed on before.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum_switch.kernels.decorators import kernel

from .base import LARGEST, Communicates, Floats

Scales = npt.NDArray[np.float64]
"""One for each block: at least its largest magnitude, 0 where there is next to nothing, NaN where a value is no number.

In float64, for the scale of the largest float32 may be a little beyond them.
"""
Tops = npt.NDArray[np.int16]
"""Upper bits of each block's largest magnitude, rounded up."""

FINE: Final = 16
"""Lower bits that are left out so that 16 remain: a scale is 0.8 % above the magnitude at most."""
COARSE: Final = 20
"""So that 3 bits of the fraction remain: a scale is an eighth above the magnitude at most."""
NO_NUMBER: Final = 0x7FFF
"""A top beyond all others: some value of the block is infinite or NaN."""
_LAST_CODE: Final = 255
"""Code, of 8 bits, for NO_NUMBER. Code 0 means that all values are zero, 1 that they are 2**31 times smaller than the
largest.
"""
_DIGIT_BITS: Final = 15
_DIGIT: Final = (1 << _DIGIT_BITS) - 1
"""The largest digit of a step's number: a positive int16."""
_INFINITY: Final = 0x7F80_0000
"""Bits of float32's; those of NaN are greater."""
_LEAST_SCALE: Final = 2.0**-96
"""A block whose values are all smaller counts as zero, for what it is multiplied by must be a finite float32."""


def agree_finely(comm: Communicates, values: Floats, block: int, blocks: int) -> Scales:
    """Return the scales of a row's blocks, those behind its end included, in 16 bits each."""
    return scales_of(comm.allreduce(magnitudes(values, block, blocks, FINE), "max"), FINE)


def agree_finely_in_step(comm: Communicates, values: Floats, block: int, blocks: int, step: int) -> tuple[Scales, int]:
    """Return these scales, and the number of this exchange, which all ranks have alike from now on.

    Each rank gives the number that it has counted.  If all have counted alike, it is that number.  A rank may have
    missed exchanges, or come in the place of another one, and has then counted fewer.  The number takes 4 bytes.
    """
    tops = np.concatenate([magnitudes(values, block, blocks, FINE), _digits_of(step)])
    tops = comm.allreduce(tops, "max")
    low, high = tops[blocks:].tolist()
    return scales_of(tops[:blocks], FINE), high << _DIGIT_BITS | low


def _digits_of(step: int) -> Tops:
    """Return a number's last 30 bits, of which ranks may take the maximum digit by digit."""
    return np.array([step & _DIGIT, step >> _DIGIT_BITS & _DIGIT], np.int16)


def agree(comm: Communicates, values: Floats, block: int) -> Scales:
    """Return the scales of a row's blocks, in 8 bits each."""
    tops = magnitudes(values, block, -(-values.size // block), COARSE)
    most = np.array([tops.max(where=tops < NO_NUMBER, initial=0)], np.int16)
    below = max(0, int(comm.allreduce(most, "max")[0]) - (_LAST_CODE - 1))
    codes = np.where(tops < NO_NUMBER, np.maximum(tops - below, np.minimum(tops, 1)), _LAST_CODE).astype(np.uint8)
    codes = comm.allreduce(codes, "max")
    agreed = np.where(codes < _LAST_CODE, codes + np.int16(below) * (codes > 0), NO_NUMBER).astype(np.int16)
    return scales_of(agreed, COARSE)


def magnitudes(values: Floats, block: int, blocks: int, shift: int) -> Tops:
    """Return the tops of a row's blocks, without the lowest `shift` bits, for a maximum over ranks."""
    tops = np.zeros(blocks, np.int16)
    find_tops(values.view(np.uint32), block, shift, tops)
    return tops


def scales_of(tops: Tops, shift: int) -> Scales:
    """Return what tops of such a shift are worth."""
    bits = np.where(tops == NO_NUMBER, 0, tops).astype(np.int64) << shift
    exponents = bits >> 23
    fractions = (bits & 0x7F_FFFF) + ((exponents > 0) << 23)
    scales: Scales = np.ldexp(fractions.astype(np.float64), np.maximum(exponents, 1).astype(np.int32) - 150)
    scales[scales < _LEAST_SCALE] = 0
    scales[tops == NO_NUMBER] = np.nan
    return scales


def factors_of(steps: float, scales: Scales) -> Floats:
    """Return what blocks are multiplied by to become numbers of steps: 0 where there is no scale."""
    has_scale = scales > 0  # which NaN is not
    factors: Floats = np.divide(steps, scales, out=np.zeros(len(scales)), where=has_scale).astype(np.float32)
    return factors


def units_of(scales: Scales, parts: int) -> Floats:
    """Return what one of so many parts of a scale is worth."""
    units: Floats = (np.minimum(scales, LARGEST) / parts).astype(np.float32)
    return units


def turn_of(rank: int, ranks: int) -> int:
    """Return how far round, of 2**32, a rank shifts what all ranks draw alike.

    So some ranks round up and others down. Take a value of `n` ranks that is anywhere between two steps. Its sum has a
    variance of ``(n + 1) / 12`` squared steps. If each rank draws for itself, it is ``n / 6`` (after Suresh et al.,
    Correlated Quantization, ICML 2022).  Each rank alone is right in the mean.
    """
    return (rank << 32) // ranks


@kernel
def find_tops(words: npt.NDArray[np.uint32], block: int, shift: int, tops: Tops) -> None:
    """Write the top of each block of float32, given as words, that begins before their end."""
    for index in range(-(-words.size // block)):
        start = index * block
        part = words[start : min(start + block, words.size)]
        most = np.uint32(0)
        for i in range(part.size):
            without_sign = np.uint32(part[i] << np.uint32(1))
            most = without_sign if without_sign > most else most  # max would take it for an int64
        if most >= _INFINITY << 1:
            tops[index] = NO_NUMBER
        else:  # the one above the largest finite float32, where that is rounded up to, is a number here
            tops[index] = ((np.int64(most) >> 1) + (1 << shift) - 1) >> shift

"""What ranks compute of averaged factors, each for itself: with the same bits on every kind of processor.

A library of linear algebra has code for each kind of processor, and adds in another order on each.  Ranks would get
averages with other last bits, and other vectors altogether where an average has fewer columns than it should.  Here the
order of all operations is written down.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from switchsum_switch.kernels.decorators import inner, kernel
from switchsum_switch.kernels.floats import restore_floats, usual_floats
from switchsum_switch.kernels.memory import Scalar

from .base import Floats

Doubles = npt.NDArray[np.float64]

_PASSES: Final = 2
"""Twice is enough: what one pass leaves of other columns by rounding, the second one takes away."""
_LEFT: Final = 1e-20
"""Least part of a column's square that must be left, for float32 has no more digits: the rest would be noise."""


def orthonormal(columns: Floats) -> Floats:
    """Return an orthonormal base of what columns span, by Gram and Schmidt's method in float64.

    A column that depends on those before it gets a direction of its own, so that an iteration does not lose it.

    Args:
        columns: Float32 with two axes, at least as many rows as columns.

    Returns:
        As many columns; NaN from the first one on that holds an infinity or NaN.

    Example:
        >>> import numpy as np
        >>> from switchsum_host.compress.factors import orthonormal
        >>> orthonormal(np.array([[0, 1], [2, 2]], np.float32)).tolist()
        [[0.0, 1.0], [1.0, 0.0]]

    """
    rows = np.ascontiguousarray(columns.T, np.float64)
    _orthonormalise(rows)
    return np.ascontiguousarray(rows.T, np.float32)


def product(left: Floats, right: Floats, values: Floats) -> None:
    """Write the first values of the matrix `left @ right.T`, row by row.

    Args:
        left: Float32 with two axes.
        right: The same, with as many columns.
        values: Where they are written; no more than the matrix has.

    """
    _multiply(np.ascontiguousarray(left), np.ascontiguousarray(right.T), values)


@kernel
def _orthonormalise(rows: Doubles) -> None:
    mode = usual_floats()
    for k in range(len(rows)):
        row = rows[k]
        before = _dot(row, row)
        after = _without_those_before(rows, k)
        # Not `<=`: of an infinity or NaN nothing is left but NaN, and then unit vectors would not help.
        if before == 0 or after < _LEFT * before:
            # Some unit vector leaves 1 / n of its square: k directions take k of the n that all of them have.
            for axis in range(row.size):
                row[:] = 0.0
                row[axis] = 1.0
                after = _without_those_before(rows, k)
                if 2 * row.size * after >= 1:
                    break
        length = np.sqrt(after)
        for i in range(row.size):
            row[i] /= length
    restore_floats(mode)


@inner
def _without_those_before(rows: Doubles, k: int) -> Scalar:
    """Take from row `k` what lies in the directions before it; return the square of what is left."""
    for _ in range(_PASSES):
        for other in range(k):
            part = _dot(rows[other], rows[k])
            for i in range(rows.shape[1]):
                rows[k, i] -= part * rows[other, i]
    return _dot(rows[k], rows[k])


@inner
def _dot(one: Doubles, other: Doubles) -> Scalar:
    total = 0.0
    for i in range(one.size):
        total += one[i] * other[i]
    return total


@kernel
def _multiply(left: Floats, right: npt.NDArray[Any], values: Floats) -> None:
    mode = usual_floats()
    columns = right.shape[1]
    for i in range(len(left)):
        to = values[i * columns : (i + 1) * columns]
        to[:] = 0.0
        for k in range(left.shape[1]):
            factor, row = left[i, k], right[k]
            for j in range(to.size):
                to[j] += factor * row[j]
    restore_floats(mode)

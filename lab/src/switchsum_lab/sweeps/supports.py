"""Which blocks of whose arrays are not zero, and the arrays.

A rank's values are all the same small whole number, so that every sum can be checked exactly, whatever the blocks.  For
figures of errors they are drawn from a normal distribution instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
Array = npt.NDArray[np.float32]

WHOLE: Final = "whole"
NORMAL: Final = "normal"
_VALUES: Final = 7
"""Ranks have values from 1 up to this one, in turn."""


def value_of(rank: int) -> float:
    """Return the value that a rank has wherever it has not zero."""
    return float(rank % _VALUES + 1)


def masks(*, ranks: int, values: int, block: int, density: float, overlap: str, seed: int) -> Iterator[Mask]:
    """Yield for each rank which of its blocks are not zero.

    With `overlap` random each block of each rank is drawn by itself, with all they are drawn once for all ranks, and
    with none ranks take blocks one after the other from a shuffled pack: two ranks have a block in common only where
    the pack is too small.
    """
    blocks = -(-values // block)
    random = np.random.default_rng(seed)
    if overlap == "none":
        order, each = random.permutation(blocks), round(density * blocks)
        for rank in range(ranks):
            mask = np.zeros(blocks, np.bool_)
            mask[order[np.arange(rank * each, (rank + 1) * each) % blocks]] = True
            yield mask
        return
    common = random.random(blocks) < density
    for _ in range(ranks):
        yield common if overlap == "all" or density >= 1 else random.random(blocks) < density


def spread(mask: Mask, rank: int, *, values: int, block: int) -> Array:
    """Return a rank's array."""
    blocks = np.where(mask, np.float32(value_of(rank)), np.float32(0))
    return np.ascontiguousarray(np.repeat(blocks, block)[:values])


def drawn(mask: Mask, rank: int, *, values: int, block: int, seed: int) -> Array:
    """Return a rank's array of normal values."""
    array = np.random.default_rng([seed, rank, 1]).standard_normal(values, np.float32)
    array[~np.repeat(mask, block)[:values]] = 0
    return array


def arrays(*, kind: str = WHOLE, **how: Any) -> tuple[list[Array], Array]:
    """Return each rank's array, and their sum; `kind` is what values are, and the rest the arguments of `masks`."""
    made = list(_each(kind, **how))
    return made, np.sum(made, axis=0, dtype=np.float32)


def _each(kind: str, **how: Any) -> Iterator[Array]:
    values, block = how["values"], how["block"]
    for rank, mask in enumerate(masks(**how)):
        if kind == WHOLE:
            yield spread(mask, rank, values=values, block=block)
        else:
            yield drawn(mask, rank, values=values, block=block, seed=how["seed"])


def own_and_sum(rank: int, *, kind: str = WHOLE, **how: Any) -> tuple[Array, Array]:
    """Return one rank's array, and the sum of all; of whole numbers the others' arrays are never made."""
    values, block = how["values"], how["block"]
    if kind != WHOLE:
        made, total = arrays(kind=kind, **how)
        return made[rank], total
    total, own = np.zeros(-(-values // block), np.float32), np.zeros(0, np.float32)
    for number, mask in enumerate(masks(**how)):
        total += np.where(mask, np.float32(value_of(number)), np.float32(0))
        if number == rank:
            own = spread(mask, rank, values=values, block=block)
    return own, np.repeat(total, block)[:values]

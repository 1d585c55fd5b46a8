"""Compressors around every multiple that they have: blocks, buckets, words, and the powers of two of rotations."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Final

import numpy as np
import pytest

from switchsum_host.api.communicator import Communicator
from switchsum_host.compress import BlockScaled, Compressor, Thc
from switchsum_host.compress.thc import BLOCK, LEAST_BLOCK, _root_mean_squares, lengths_of

from .checks import RANKS
from .test_compress import MAKERS, exchange, scale_of

SEED: Final = int(os.environ.get("SWITCHSUM_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
MULTIPLES: Final = (2, 4, 16, LEAST_BLOCK, 64, 100, 256, BLOCK, 2 * BLOCK)
OFF: Final = (-31, -1, 0, 1)
EVERY: Final = sorted({size + off for size in MULTIPLES for off in OFF} - set(range(-32, 1)))
FULLER: Final = {
    "thc": Thc,
    "thc of 4 bits": lambda: Thc(bits=4),
    "int8": BlockScaled,
}
"""Compressors with blocks of their own, which are tried around all multiples; others at some, drawn in each run."""


def sizes_for(name: str) -> list[int]:
    return EVERY if name in FULLER else sorted(random.Random(f"{SEED} {name}").sample(EVERY, 4))


@pytest.mark.parametrize("name", MAKERS)
def test_the_mean_is_that_of_what_ranks_say_at_every_size(ranks: list[Communicator], name: str) -> None:
    make: Callable[[], Compressor] = MAKERS[name]
    draw = np.random.default_rng(SEED)
    for size in sizes_for(name):
        arrays = [draw.standard_normal(size).astype(np.float32) for _ in range(RANKS)]
        results = exchange(ranks, [make() for _ in range(RANKS)], arrays)
        exact = np.mean([result.own.astype(np.float64) for result in results], axis=0)
        np.testing.assert_allclose(
            results[0].mean, exact, rtol=1e-5, atol=1e-6 * scale_of(arrays), err_msg=f"{size} values, seed {SEED}"
        )


def test_a_rotated_row_of_any_size_has_its_own_scales() -> None:
    # From 993 to 1,023 values on, the last block of 1,024 reaches behind the row's end.
    for size in range(1, 3 * BLOCK + 2):
        values, lengths = np.full(size, 2.0, np.float32), lengths_of(size)
        assert 0 <= lengths.sum() - size < LEAST_BLOCK
        spread = _root_mean_squares(values, lengths)
        ends = np.minimum(np.cumsum(lengths), size)
        held = np.diff(ends, prepend=0)
        np.testing.assert_allclose(spread, 2.0 * np.sqrt(held / lengths), rtol=1e-6)

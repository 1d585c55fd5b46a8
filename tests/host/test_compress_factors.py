"""What PowerSGD's ranks compute of averages, each for itself: orthonormal columns, and the same bits everywhere."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from typing import Any, Final

import numpy as np
import pytest

from support.timing import patience
from switchsum_host.compress import factors

LONG_S: Final = patience(60)
LIBRARIES: Final = ("SANDYBRIDGE", "HASWELL", "SKYLAKEX")
"""Kinds of processors for which OpenBLAS has code of its own, and other bits; where it has not, it takes no notice."""


def drawn(rows: int, columns: int, rank: int, seed: int) -> Any:
    """Return a matrix of such a rank."""
    random = np.random.default_rng([rows, columns, rank, seed])
    return (random.standard_normal((rows, rank)) @ random.standard_normal((rank, columns))).astype(np.float32)


@pytest.mark.parametrize("seed", range(20))
def test_columns_become_an_orthonormal_base_of_what_they_span(seed: int) -> None:
    random = np.random.default_rng(seed)
    columns = int(random.integers(1, 9))
    rows, rank = columns + int(random.integers(100)), int(random.integers(columns + 1))
    matrix = drawn(rows, columns, rank, seed) * np.float32(10.0 ** random.integers(-30, 30))
    base = factors.orthonormal(matrix).astype(np.float64)
    np.testing.assert_allclose(base.T @ base, np.eye(columns), atol=1e-6)
    scale = np.abs(matrix).max(initial=0)
    np.testing.assert_allclose(base @ (base.T @ matrix), matrix, atol=1e-5 * scale)


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_what_is_no_number_is_not_taken_for_a_direction(bad: float) -> None:
    matrix = drawn(7, 3, 3, 0)
    matrix[2, 1] = bad
    base = factors.orthonormal(matrix)
    assert np.isfinite(base[:, 0]).all()
    assert np.isnan(base[:, 1:]).all()


def test_a_product_may_end_within_a_row() -> None:
    left, right = drawn(6, 2, 2, 1), drawn(5, 2, 2, 2)
    values = np.full(28, np.nan, np.float32)
    factors.product(left, right, values)
    np.testing.assert_allclose(values, (left @ right.T).reshape(-1)[:28], rtol=1e-5)


def figures() -> str:
    """Return a digest of what ranks compute of some averages, one of which has fewer directions than columns."""
    digest = hashlib.sha256()
    for rank in (2, 4):
        random = np.random.default_rng(rank)
        thin = random.standard_normal((100, rank)).astype(np.float32)
        average = np.concatenate([thin, thin[:, : 4 - rank]], axis=1)  # no product, whose bits a library decides
        base = factors.orthonormal(average)
        values = np.empty(100 * 100, np.float32)
        factors.product(base, average, values)
        digest.update(base.tobytes() + values.tobytes())
    return digest.hexdigest()


def test_each_kind_of_processor_gets_the_same_bits() -> None:
    here = figures()
    for library in LIBRARIES:
        command = [sys.executable, "-c", "from tests.host import test_compress_factors as here; print(here.figures())"]
        environment = {**os.environ, "OPENBLAS_CORETYPE": library}
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LONG_S, check=True)
        assert ran.stdout.strip() == here, library

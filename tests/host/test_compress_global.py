"""The largest values of all ranks together: which ones travel, and how many."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from switchsum_host.api.communicator import Communicator
from switchsum_host.compress import ErrorFeedback, Exchanged, GlobalTopK
from switchsum_host.compress.global_topk import MANTISSA_BITS, Counts, counted, share
from switchsum_protocol.errors import UsageError

from .checks import RANKS

Array = npt.NDArray[Any]


def exchange(ranks: list[Communicator], arrays: list[Array], density: float) -> list[Exchanged]:
    with ThreadPoolExecutor(RANKS) as pool:
        return list(pool.map(lambda rank: GlobalTopK(density).exchange(ranks[rank], "x", arrays[rank]), range(RANKS)))


def sent(results: list[Exchanged]) -> list[int]:
    return [int(np.count_nonzero(result.own)) for result in results]


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_the_largest_of_all_ranks_travel(ranks: list[Communicator], scale: float) -> None:
    """A rank whose values are larger sends more of them, up to k."""
    random = np.random.default_rng(4)
    arrays = [random.standard_normal(5000).astype(np.float32) for _ in range(RANKS)]
    arrays[1] *= np.float32(scale)
    results = exchange(ranks, arrays, 0.02)
    assert 100 <= sum(sent(results)) < 100 + RANKS
    left = max(float(np.abs(array - result.own).max()) for array, result in zip(arrays, results, strict=True))
    least = min(float(np.abs(result.own[result.own != 0]).min()) for result in results if result.own.any())
    assert least >= left * (1 - 2.0**-MANTISSA_BITS)
    if scale > 1:
        assert sent(results)[1] >= 90


def test_equal_values_are_shared_out(ranks: list[Communicator]) -> None:
    results = exchange(ranks, [np.full(400, 2, np.float32) for _ in range(RANKS)], 0.1)
    assert sent(results) == [-(-40 // RANKS)] * RANKS


def test_no_more_travel_than_there_are(ranks: list[Communicator]) -> None:
    arrays = [np.zeros(300, np.float32) for _ in range(RANKS)]
    assert sent(exchange(ranks, arrays, 0.1)) == [0] * RANKS
    arrays[0][[3, 299]] = -1, 1e-42
    results = exchange(ranks, arrays, 0.1)
    assert sent(results) == [2] + [0] * (RANKS - 1)
    np.testing.assert_allclose(results[0].mean[3] * RANKS, -1, rtol=1e-6)


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_infinities_travel_first(ranks: list[Communicator], bad: float) -> None:
    arrays = [np.ones(300, np.float32) for _ in range(RANKS)]
    arrays[1][7] = bad
    for one in exchange(ranks, arrays, 1 / 300):
        np.testing.assert_equal(one.mean[7], bad)  # few values are added by the ranks, an infinity is not NaN then


def test_error_feedback_sends_the_rest_later(ranks: list[Communicator]) -> None:
    made = [ErrorFeedback(GlobalTopK(0.1)) for _ in range(RANKS)]
    gradients = [np.arange(1, 21, dtype=np.float32) + 100 * rank for rank in range(RANKS)]
    total = np.zeros(20, np.float32)
    for step in range(60):
        given = gradients if step == 0 else [np.zeros(20, np.float32)] * RANKS
        with ThreadPoolExecutor(RANKS) as pool:
            calls = [
                pool.submit(one.exchange, comm, "x", own) for one, comm, own in zip(made, ranks, given, strict=True)
            ]
        total += calls[0].result().mean
    np.testing.assert_allclose(total, np.mean(gradients, axis=0), rtol=1e-5)


def test_shares_add_up_to_k_whatever_the_ranks_have() -> None:
    random = np.random.default_rng(8)
    for k in (1, 10, 1000):
        own = [counted(random.standard_normal(k).astype(np.float32) * 10.0**power) for power in (-3, 0, 0, 1)]
        total: Counts = np.array(own).sum(axis=0, dtype=np.int32)
        assert k <= sum(share(one, total, k) for one in own) < k + len(own)
        assert share(own[0], own[0], k) == k


def test_a_share_is_above_zero_and_at_most_one() -> None:
    with pytest.raises(UsageError, match="density"):
        GlobalTopK(0)

"""Thresholds of Ok-Topk and Gaussiank on values whose largest ones are known."""

from __future__ import annotations

import numpy as np
import pytest

from checks.lab.thresholds import REUSED, Reused, gaussian

SIZE, K = 100_000, 1_000


def test_gaussianks_estimate_is_right_for_normal_values_and_off_for_others() -> None:
    normal = np.random.default_rng(1).standard_normal(SIZE, np.float32)
    assert gaussian(normal, K) == pytest.approx(K, rel=0.1)
    assert gaussian(3 * normal + 1, K) == pytest.approx(K, rel=0.1)
    few = np.zeros(SIZE, np.float32)
    few[: K // 4] = normal[: K // 4]
    assert gaussian(few, K) < K // 3  # there are no more
    assert gaussian(np.sign(normal) * np.abs(normal) ** np.float32(0.3), K) > 10 * K  # tails that are much lighter


def test_ok_topks_threshold_is_exact_when_it_is_found_and_moves_while_it_is_reused() -> None:
    magnitudes = np.abs(np.random.default_rng(2).standard_normal(SIZE, np.float32))
    reused = Reused(K)
    assert reused.count(magnitudes) == K
    later = [reused.count(np.float32(1.3) * magnitudes) for _ in range(REUSED - 1)]
    assert later[0] > 5 * K / 4
    assert sorted(later, reverse=True) == later
    assert reused.count(np.float32(1.3) * magnitudes) == K

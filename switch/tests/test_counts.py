"""Counts that several threads add to."""

from __future__ import annotations

import numpy as np

from switchsum_switch.state.counts import Counts


def test_shares_count_together() -> None:
    counts = Counts(3)
    first, second = counts.all(), counts.share()
    first[1] += np.array([1, 60], np.uint64)
    second[1] += np.array([2, 120], np.uint64)
    assert counts.read(1) == (3, 180)
    assert counts.all()[1].tolist() == [3, 180]
    assert counts.all() is first
    assert counts.read(1) == (3, 180), "what was moved is not counted twice"
    counts.all()[1] = 7, 8
    assert (counts.read(1), counts.read(0)) == ((7, 8), (0, 0))

"""Frames that come fast are let gather; few are looked at one by one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from switchsum_switch.daemon.pace import FAST, PERIOD_S, is_fast, new_pace, note_frames


def test_a_rate_is_fast_after_one_period_and_slow_after_another() -> None:
    pace, now = new_pace(), 100.0
    note_frames(pace, 0, now)
    for _ in range(20):
        now += PERIOD_S / 10
        note_frames(pace, int(FAST * PERIOD_S / 10) + 1, now)
    assert is_fast(pace)
    for _ in range(20):
        now += PERIOD_S / 10
        note_frames(pace, 1, now)
    assert not is_fast(pace)


def test_one_batch_after_a_pause_is_not_fast() -> None:
    pace = new_pace()
    note_frames(pace, 0, 50.0)
    note_frames(pace, 200, 51.0)
    assert not is_fast(pace)


def run(pace: npt.NDArray[np.float64], begin: float, seconds: float, awake: float, napping: float) -> float:
    """Let frames arrive at the rate `awake`, at `napping` while the switch naps; return for which part it naps."""
    step, naps = PERIOD_S / 10, 0
    for number in range(round(seconds / step)):
        naps += is_fast(pace)
        note_frames(pace, round((napping if is_fast(pace) else awake) * step), begin + number * step)
    return naps / round(seconds / step)


def test_senders_who_wait_for_answers_are_not_slowed_down_by_naps() -> None:
    pace = new_pace()
    assert run(pace, 10.0, 5.0, 40_000, 16_000) < 0.02
    assert run(pace, 15.0, 5.0, 40_000, 38_000) > 0.6, "links that are full anyway"


def test_a_burst_that_ends_ends_naps_for_a_moment_only() -> None:
    pace = new_pace()
    run(pace, 10.0, 2 * PERIOD_S, 90_000, 90_000)
    assert run(pace, 10.01, 2.0, 20_000, 20_000) > 0.9

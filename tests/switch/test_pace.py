"""Frames that come fast are let gather; few are looked at one by one."""

from __future__ import annotations

from switchsum.switch.pace import FAST, PERIOD_S, is_fast, new_pace, note_frames


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

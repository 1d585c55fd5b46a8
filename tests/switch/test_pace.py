"""Frames that come fast are let gather; few are looked at one by one."""

from __future__ import annotations

from switchsum.switch.pace import FAST, PERIOD_S, Pace


def test_a_rate_is_fast_after_one_period_and_slow_after_another() -> None:
    pace, now = Pace(), 100.0
    pace.note(0, now)
    for _ in range(20):
        now += PERIOD_S / 10
        pace.note(int(FAST * PERIOD_S / 10) + 1, now)
    assert pace.is_fast
    for _ in range(20):
        now += PERIOD_S / 10
        pace.note(1, now)
    assert not pace.is_fast


def test_one_batch_after_a_pause_is_not_fast() -> None:
    pace = Pace()
    pace.note(0, 50.0)
    pace.note(200, 51.0)
    assert not pace.is_fast

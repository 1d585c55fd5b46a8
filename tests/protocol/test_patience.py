"""How long a side looks for frames before it sleeps: as long as that pays."""

from __future__ import annotations

import time

import pytest

from switchsum.protocol.patience import (
    IN_A_ROW_S,
    LONGEST_AWAY_S,
    LONGEST_S,
    SHORTEST_AWAY_S,
    STOLEN_S,
    Patience,
    give_way,
    look_until,
    new_patience,
    note_wait,
    step_aside,
)


def yield_for_long(patience: Patience) -> float:
    """Yield as if that had taken long; return the time."""
    return give_way(patience, time.monotonic() - STOLEN_S)


def have_core_taken(patience: Patience) -> float:
    """Do so twice in a row."""
    yield_for_long(patience)
    return yield_for_long(patience)


def away_s(patience: Patience, now: float) -> float:
    """Return for how long from now on, to a thousandth of a second, nobody looks."""
    thousandths = range(round(3e3 * LONGEST_AWAY_S))
    return next(i / 1e3 for i in thousandths if look_until(patience, now + i / 1e3) > now + i / 1e3)


def test_short_waits_let_one_look_and_long_ones_do_not() -> None:
    patience = new_patience()
    assert look_until(patience, 1.0) == pytest.approx(1.0 + LONGEST_S)
    note_wait(patience, False, 2 * LONGEST_S)
    assert look_until(patience, 1.0) == pytest.approx(1.0 + LONGEST_S / 2)
    note_wait(patience, True, 2 * LONGEST_S)  # the time of others
    assert look_until(patience, 1.0) == pytest.approx(1.0 + LONGEST_S)
    for _ in range(10):
        note_wait(patience, False, 1.0)
    assert look_until(patience, 1.0) == 1.0
    note_wait(patience, False, LONGEST_S)
    assert look_until(patience, 1.0) == pytest.approx(1.0 + LONGEST_S)


def test_one_long_absence_is_nothing() -> None:
    patience = new_patience()
    now = yield_for_long(patience)
    assert look_until(patience, now) > now
    time.sleep(IN_A_ROW_S)
    now = yield_for_long(patience)
    assert look_until(patience, now) > now


def test_a_core_that_somebody_took_is_not_yielded_for_a_while() -> None:
    patience = new_patience()
    now = have_core_taken(patience)
    assert look_until(patience, now) == now
    note_wait(patience, False, 0.0)  # short waits, asleep, change nothing
    assert look_until(patience, now) == now
    assert away_s(patience, now) == pytest.approx(SHORTEST_AWAY_S, abs=1e-3)


def test_one_that_is_taken_again_is_kept_for_twice_as_long() -> None:
    patience = new_patience()
    aways = []
    for _ in range(8):
        now = have_core_taken(patience)
        aways.append(away_s(patience, now))
    assert aways == pytest.approx([min(SHORTEST_AWAY_S * 2**i, LONGEST_AWAY_S) for i in range(8)], abs=1e-3)


def test_after_some_time_in_peace_it_begins_anew() -> None:
    patience = new_patience()
    have_core_taken(patience)
    have_core_taken(patience)
    time.sleep(4 * SHORTEST_AWAY_S + 0.01)  # forbidden for two, and as long again in peace
    assert away_s(patience, have_core_taken(patience)) == pytest.approx(SHORTEST_AWAY_S, abs=1e-3)


def test_nobody_steps_aside_for_one_who_computes() -> None:
    patience = new_patience()
    step_aside(patience)
    have_core_taken(patience)
    before = patience.copy()
    step_aside(patience)
    assert (patience == before).all()

"""How long a side looks for frames before it sleeps: as long as that pays.  Time is what a test says."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import pytest

from switchsum_switch.process.patience import (
    IN_A_ROW_S,
    LONGEST_AWAY_S,
    LONGEST_S,
    SHORTEST_AWAY_S,
    STOLEN_S,
    Patience,
    give_way,
    look_until,
    new_patience,
    note_absence,
    note_wait,
    step_aside,
)


@dataclass
class Side:
    """A side and its clock."""

    patience: Patience = field(default_factory=new_patience)
    now: float = 1000.0

    def yield_core(self, away_s: float = 1.01 * STOLEN_S) -> float:
        """Yield the core, and have it again after some time; return the time."""
        before, self.now = self.now, self.now + away_s
        return note_absence(self.patience, before, self.now)

    def have_core_taken(self) -> float:
        """Yield for long, twice in a row."""
        self.yield_core()
        return self.yield_core()


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
    side = Side()
    assert look_until(side.patience, side.yield_core()) > side.now
    side.now += IN_A_ROW_S
    assert look_until(side.patience, side.yield_core()) > side.now


def test_short_absences_are_nothing() -> None:
    side = Side()
    for _ in range(100):
        assert look_until(side.patience, side.yield_core(0.99 * STOLEN_S)) > side.now


def test_a_core_that_somebody_took_is_not_yielded_for_a_while() -> None:
    side = Side()
    now = side.have_core_taken()
    assert look_until(side.patience, now) == now
    note_wait(side.patience, False, 0.0)  # short waits, asleep, change nothing
    assert look_until(side.patience, now) == now
    assert away_s(side.patience, now) == pytest.approx(SHORTEST_AWAY_S, abs=1e-3)


def test_one_that_is_taken_again_is_kept_for_twice_as_long() -> None:
    side = Side()
    aways = [away_s(side.patience, side.have_core_taken()) for _ in range(8)]
    assert aways == pytest.approx([min(SHORTEST_AWAY_S * 2**i, LONGEST_AWAY_S) for i in range(8)], abs=1e-3)


def test_after_some_time_in_peace_it_begins_anew() -> None:
    side = Side()
    side.have_core_taken()
    side.have_core_taken()
    side.now += 4 * SHORTEST_AWAY_S + 0.01  # forbidden for two, and as long again in peace
    assert away_s(side.patience, side.have_core_taken()) == pytest.approx(SHORTEST_AWAY_S, abs=1e-3)


def test_nobody_steps_aside_for_one_who_computes() -> None:
    side = Side(now=time.monotonic())
    step_aside(side.patience)
    assert give_way(side.patience, side.now) >= side.now
    side.now = time.monotonic() + 1000.0  # beyond whatever has happened to this process meanwhile
    side.have_core_taken()
    before = side.patience.copy()
    step_aside(side.patience)
    assert (side.patience == before).all()

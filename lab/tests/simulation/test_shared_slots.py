"""Jobs that share slots, in virtual time, under the real controller: what it costs, and that nothing is repeated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from checks.lab.shared_slots import CABLE, FEW, MANY, SOME, add


def test_a_job_that_nobody_disturbs_pays_little_and_repeats_nothing() -> None:
    own, shared = (add(1, 1_000_000, MANY, shares=shares) for shares in (False, True))
    assert (shared.taken, shared.repeats) == (0.0, 0)
    assert shared.seconds[0] < 1.05 * own.seconds[0]


@pytest.mark.parametrize("active", [2, 4])
def test_jobs_that_want_the_same_slots_add_exactly_and_repeat_next_to_nothing(active: int) -> None:
    found = add(active, 1_000_000, MANY, shares=True)
    assert found.taken > 0
    assert found.repeats < 1_000_000 / 1024 / 100


def test_eight_jobs_on_few_slots_take_no_longer_than_with_a_part_each_and_two_of_them_far_less() -> None:
    """A part holds a quarter of a round trip; 1.15 and 1 / 1.5 are asked for."""
    for active, most in ((8, 1.15), (2, 1 / 1.5)):
        own = add(active, 4_000_000, FEW // 8, shares=False, slots=FEW)
        shared = add(active, 4_000_000, FEW, shares=True, slots=FEW)
        assert shared.repeats == 0
        assert max(shared.seconds) < most * max(own.seconds)


def test_slots_of_a_jobs_own_are_used_beside_shared_ones() -> None:
    """Two jobs have a part each, and share what the six others would have."""
    own = add(2, 1_000_000, FEW // 8, shares=False, slots=FEW)
    mixed = add(2, 1_000_000, 6 * FEW // 8, shares=True, own=FEW // 8, slots=6 * FEW // 8)
    assert mixed.repeats == 0
    assert max(mixed.seconds) < max(own.seconds) / 1.5


def test_eight_jobs_that_may_use_a_round_trip_of_slots_each_take_no_longer_than_with_a_part_each() -> None:
    own = add(8, 4_000_000, SOME // 8, shares=False, slots=SOME)
    shared = add(8, 4_000_000, SOME // 4, shares=True, slots=SOME)
    assert max(shared.seconds) < 1.15 * max(own.seconds)


def test_a_lost_frame_costs_a_shared_job_few_repeats() -> None:
    found = add(1, 1_000_000, MANY, shares=True, link=replace(CABLE, loss=0.001))
    assert 0 < found.repeats < 200

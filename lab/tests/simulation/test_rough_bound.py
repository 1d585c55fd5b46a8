"""The bound of rough networks: closed forms, what makes it longer, and cells as lines of JSON."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.rough.bound import Limits, Phase, fullest_column, mean_lateness_s, mean_tries, shortest_s
from checks.rough.cells import Cell, Trouble
from checks.rough.drawing import KINDS, cells, draw

LINE = Limits(frame_s=1e-3, trip_s=10e-3, window=64)
LIMITS = st.builds(
    Limits,
    frame_s=st.floats(1e-6, 1e-2),
    trip_s=st.floats(1e-5, 1.0),
    window=st.integers(1, 256),
    first=st.integers(1, 256),
    short=st.integers(0, 256),
    bucket_frames=st.floats(0, 500),
)
PHASE = st.builds(
    lambda since, lasts, factor: Phase(since_s=since, until_s=since + lasts, factor=factor),
    st.floats(0, 1),
    st.floats(1e-3, 1),
    st.sampled_from([0.0, 0.1, 0.5]),
)


def test_a_full_window_takes_as_long_as_the_line() -> None:
    assert shortest_s(LINE, 1000) == pytest.approx(1000 * 1e-3 + 10e-3 - 1e-3)
    assert shortest_s(LINE, 1) == pytest.approx(10e-3)


def test_a_small_window_takes_a_trip_for_each_round() -> None:
    small = replace(LINE, trip_s=1.0, window=10)
    assert shortest_s(small, 100) == pytest.approx(9 * 1.0 + 9e-3 + 1.0)


def test_a_window_that_doubles_takes_a_trip_for_each_step() -> None:
    slow = replace(LINE, frame_s=1e-9, trip_s=1.0, window=64, first=1)
    assert shortest_s(slow, 127) == pytest.approx(7.0, rel=1e-6)  # 1 + 2 + 4 + ... + 64
    assert shortest_s(slow, 128) == pytest.approx(8.0, rel=1e-6)


def test_a_bucket_lets_so_many_frames_pass_and_fills_while_nothing_goes() -> None:
    assert shortest_s(replace(LINE, bucket_frames=300), 1000) == pytest.approx(shortest_s(LINE, 700))
    paced = replace(LINE, trip_s=1.0, window=100, first=100, bucket_frames=100)
    assert shortest_s(paced, 1000) == pytest.approx(10.0)  # full again in each round trip


def test_the_first_rounds_of_floats_take_trips_and_no_line() -> None:
    assert shortest_s(replace(LINE, short=64), 1000) == pytest.approx(shortest_s(LINE, 1000) + 10e-3)


def test_what_stands_still_makes_it_so_much_longer_unless_it_comes_too_late() -> None:
    still = replace(LINE, phases=(Phase(since_s=0.5, until_s=5.5),))
    assert shortest_s(still, 1000) == pytest.approx(shortest_s(LINE, 1000) + 5.0)
    assert shortest_s(still, 100) == shortest_s(LINE, 100)
    slower = replace(LINE, phases=(Phase(since_s=0.5, until_s=1.5, factor=0.1),))
    assert shortest_s(slower, 1000) == pytest.approx(shortest_s(LINE, 1000) + 0.9)
    faster = replace(LINE, window=256, first=256, phases=(Phase(since_s=0.5, until_s=9.0, factor=10.0),))
    assert shortest_s(faster, 1000) == pytest.approx(0.5 + 0.05 + 10e-3, abs=10e-3)


@given(limits=LIMITS, contributions=st.integers(1, 5000))
def test_no_sum_is_shorter_than_its_line_and_its_rounds(limits: Limits, contributions: int) -> None:
    found = shortest_s(limits, contributions)
    line = (contributions - limits.bucket_frames - 1) * limits.frame_s
    refilled = found  # a bucket earns as long as the sum lasts
    assert found >= min(line, line + limits.trip_s) - refilled * (limits.bucket_frames > 0)
    assert found >= math.ceil(contributions / limits.window) * limits.trip_s * (1 - 1e-9)


@given(limits=LIMITS, contributions=st.integers(1, 2000), phases=st.lists(PHASE, max_size=3))
def test_troubles_never_help_and_cost_no_more_than_they_last(
    limits: Limits, contributions: int, phases: list[Phase]
) -> None:
    free = replace(limits, bucket_frames=0.0)
    usual = shortest_s(free, contributions)
    troubled = shortest_s(replace(free, phases=tuple(phases)), contributions)
    assert usual * (1 - 1e-9) <= troubled <= usual + sum(one.until_s - one.since_s for one in phases) + 1e-9


def test_tries_are_those_of_the_unluckiest_member() -> None:
    assert mean_tries(0.0, 2, 8) == 1.0
    assert mean_tries(0.5, 1, 1) == pytest.approx(2.0, abs=1e-4)
    fails = 1 - 0.7**2
    drawn = sum(1 - (1 - fails**times) ** 4 for times in range(200))
    assert mean_tries(0.3, 2, 4) == pytest.approx(drawn, abs=1e-4)


@pytest.mark.parametrize("late", [0.001, 0.05, 0.5])
@pytest.mark.parametrize(("frames", "late_by_s", "most_s"), [(1, 1.0, 9.0), (12, 3.0, 1.0), (20, 0.5, 1.0)])
def test_the_lateness_of_a_round_is_the_mean_of_what_is_drawn(
    late: float, frames: int, late_by_s: float, most_s: float
) -> None:
    random = np.random.default_rng(3)
    drawn = np.where(random.random((100_000, frames)) < late, random.random((100_000, frames)) * late_by_s, 0.0)
    latest = np.minimum(drawn.max(axis=1), most_s)
    error = 5 * latest.std() / math.sqrt(len(latest)) + 1e-9
    assert mean_lateness_s(late, late_by_s, frames, most_s) == pytest.approx(latest.mean(), abs=error)


def test_late_frames_cost_time_where_the_window_sets_the_pace_and_none_where_the_link_does() -> None:
    far = Cell(kind="twice", trip_s=0.1, slots=8, blocks=800, late=0.05, late_by_s=0.3, numbers="int8")
    assert far.bound_s == pytest.approx(100 * (far.trip_alone_s + far.lateness_s), rel=1e-3)
    assert 0.1 < far.lateness_s / far.trip_alone_s < 1.0
    slow = replace(far, rate_bps=1e6, slots=256)
    assert slow.bound_s < replace(slow, late=0.0).bound_s + 10 * slow.lateness_s


@pytest.mark.parametrize(("blocks", "slots", "part"), [(2453, 128, 0.36), (1000, 256, 0.6), (90, 100, 0.2)])
def test_the_fullest_column_is_the_median_of_what_is_drawn(blocks: int, slots: int, part: float) -> None:
    random = np.random.default_rng(7)
    length = -(-blocks // slots)
    most = [(random.random((length, min(slots, blocks))) < part).sum(axis=0).max() for _ in range(2001)]
    assert fullest_column(blocks, slots, part) == np.median(most)


def test_a_sparse_sum_takes_as_long_as_its_fullest_column() -> None:
    far = Cell(kind="sparse", trip_s=0.1, density=0.2, slots=128, blocks=2453, hosts=2)
    assert far.bound_s == pytest.approx(13 * far.trip_alone_s)
    slow = replace(far, trip_s=1e-5, rate_bps=1e6)
    assert slow.bound_s > slow.full_blocks * slow.frame_s > 13 * slow.trip_alone_s


def test_a_seed_draws_the_same_cells_from_any_number_on_and_all_kinds_come() -> None:
    drawn = dict(cells(7, 0, 300))
    assert [drawn[number] for number in range(250, 300)] == [cell for _, cell in cells(7, 250, 50)]
    assert {cell.kind for cell in drawn.values()} == {*KINDS}
    assert draw(7, 3, ("queue",)).kind == "queue"


@pytest.mark.parametrize("number", range(40))
def test_a_cell_is_read_back_from_its_line(number: int) -> None:
    cell = draw(11, number)
    assert Cell.read(cell.text) == cell
    assert 0 < cell.untroubled_s <= cell.bound_s * (1 + 1e-9) or any(one.factor > 1 for one in cell.troubles)


def test_a_cell_with_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValueError, match="a cell has no colour"):
        Cell.read('{"kind": "plain", "colour": "red"}')


def test_troubles_come_in_parts_of_the_bound_and_a_clock_takes_no_time() -> None:
    plain = Cell(kind="plain", rate_bps=1e8, blocks=1000)
    still = replace(plain, troubles=(Trouble("host", 0.5, 3.0), Trouble("clock", 0.2, 5.0)))
    [phase] = still.phases
    assert phase.since_s == pytest.approx(plain.bound_s / 2)
    assert still.bound_s == pytest.approx(plain.bound_s + 3.0)


def test_the_slowest_link_of_a_cell_is_its_trunk_or_a_hosts_link() -> None:
    racks = Cell(kind="plain", shape="racks", rate_bps=1e8, host_times=10)
    assert racks.frame_s == pytest.approx(8 * racks.frame_bytes / 1e8)
    assert replace(racks, jobs=3).frame_s == pytest.approx(3 * racks.frame_s)
    spines = replace(racks, shape="two spines")
    assert spines.frame_s == pytest.approx(racks.frame_s / 2)
    assert replace(spines, host_times=1.0).frame_s == pytest.approx(racks.frame_s)

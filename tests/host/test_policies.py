"""What a worker decides in bad networks, by traces of numbers: the functions of `engine.policies` alone."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from switchsum_host.engine.policies import delivery, flight, losses, pacing, round_trips, silence, timer, window
from switchsum_host.engine.policies.window import Window
from switchsum_switch.kernels.records import Record, dtype_of

SEED_OF_THE_DAY = int(datetime.now(UTC).strftime("%Y%m%d"))


def python(function: Any) -> Any:
    """Return a policy's function as Python wrote it: its callees are compiled, and it is not."""
    return getattr(function, "py_func", function)


@pytest.fixture(autouse=True)
def _in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have functions of policies call one another in Python, for nothing but kernels calls the compiled ones."""
    modules = (delivery, flight, losses, pacing, round_trips, silence, timer, window)
    for module in modules:
        for name, value in vars(module).items():
            if hasattr(value, "py_func"):
                monkeypatch.setattr(module, name, value.py_func)


def known(record: type[Record], **facts: Any) -> Any:
    """Return a record with these facts, and all others 0."""
    made: Any = np.zeros(1, dtype_of(record)).view(np.recarray)[0]
    for name, value in facts.items():
        made[name] = value
    return made


def random_rounds(seed: int) -> list[float]:
    """Return times of rounds on a path of random length, some of which waited for others."""
    draw = random.Random(seed)
    trip_s = 10 ** draw.uniform(-5, 0)
    return [trip_s * (1 + draw.expovariate(4)) * (draw.choice((1, 1, 1, 20))) for _ in range(200)]


@pytest.mark.parametrize("seed", [1, 2, 3, SEED_OF_THE_DAY])
def test_time_outs_are_those_of_rfc_6298_within_three_shortest_rounds(seed: int) -> None:
    """The oracle is the RFC's pseudocode, section 2, with exact fractions of its gains."""
    clock = known(timer.Timer, timeout_s=1.0, timeout_max_s=8.0, timeout_min_s=1e-3, pause_max_s=1.0)
    smoothed = variation = None
    least_s = math.inf
    for elapsed in random_rounds(seed):
        if smoothed is None or variation is None:
            smoothed, variation = elapsed, elapsed / 2
        else:
            variation = 0.75 * variation + 0.25 * abs(smoothed - elapsed)
            smoothed = 0.875 * smoothed + 0.125 * elapsed
        least_s = min(least_s, elapsed)
        timer.smooth(clock, 0, elapsed)
        timer.set_timeout(clock, least_s)
        expected = min(smoothed + 4 * variation, 3 * least_s)
        assert clock["timeout_s"] == pytest.approx(min(max(expected, min(2 * least_s, 1e-3)), 8.0))
        assert timer.pause_s(clock) <= timer.longest_pause_s(clock) <= 2.0


@pytest.mark.parametrize("seed", [1, 2, 3, SEED_OF_THE_DAY])
def test_the_shortest_round_of_a_round_trip_is_kept_and_a_late_rank_is_no_queue(seed: int) -> None:
    draw = random.Random(seed)
    trips = known(round_trips.RoundTrips, **round_trips.UNKNOWN)
    least, now = math.inf, 0.0
    for _ in range(50):
        times = [0.01 * (1 + draw.random()) for _ in range(draw.randint(4, 20))]
        times.append(5.0)  # it waited for a late rank
        for elapsed in times:
            round_trips.note_round(trips, elapsed, True)
        least = min(least, *times)
        now += max(times)
        round_trips.end_round_trip(trips, 64, 4, now)
        assert trips["least_s"] == least
        assert trips["recent_s"] == min(times)
        assert trips["recent_s"] <= trips["usual_s"] <= 0.02
        assert not round_trips.is_queued(trips, round_trips.STANDING_S) or min(times) > 1.5 * least


def play_window(seed: int, capacity: float, trips: int) -> list[float]:
    """Return the window after each of some round trips over a link that marks what is beyond its capacity."""
    here = known(Window, **window.initial(0.25, 0.3), limit=16.0, most=256, first=16)
    times = known(round_trips.RoundTrips, **round_trips.UNKNOWN)
    draw = random.Random(seed)
    sequence = 0
    limits: list[float] = []
    for _ in range(trips):
        in_flight = int(here["limit"])
        for place in range(in_flight):
            sequence += 1
            is_marked = place >= capacity * draw.uniform(0.95, 1.05)
            window.note_result(here, is_marked)
            round_trips.note_round(times, 0.01, True)
            if sequence > here["ends"]:
                round_trips.end_round_trip(times, in_flight, 4, 0.01 * len(limits))
                window.end_round_trip(here, times, 256, sequence + in_flight)
            if is_marked:
                window.note_mark(here, in_flight, sequence, sequence + in_flight)
            else:
                window.grow(here, times, in_flight)
        limits.append(float(here["limit"]))
    return limits


@pytest.mark.parametrize("seed", [1, 2, SEED_OF_THE_DAY])
@pytest.mark.parametrize("capacity", [20.0, 60.0, 200.0])
def test_a_window_stays_about_what_the_link_holds(seed: int, capacity: float) -> None:
    limits = play_window(seed, capacity, 200)
    assert all(1.0 <= limit <= 256 for limit in limits)
    assert limits[:3] == [min(16 * 2**n, 256) for n in (1, 2, 3)] or capacity < 64, "slow start doubles it"
    steady = limits[50:]
    assert 0.5 * capacity < min(steady)
    assert max(steady) < 1.6 * capacity + 2
    assert 0.65 * capacity < sum(steady) / len(steady) < 1.25 * capacity


@pytest.mark.parametrize("seed", [1, 2, SEED_OF_THE_DAY])
@pytest.mark.parametrize(("loss", "sent", "overflows"), [(0.4, 1.7, True), (0.0, 1.0, False), (0.3, 0.5, False)])
def test_a_path_overflows_where_more_is_sent_than_results_can_come(
    seed: int, loss: float, sent: float, overflows: bool
) -> None:
    """A link of a thousand frames a second: what comes at its rate was too much; what comes with gaps was not."""
    draw = random.Random(seed)
    here = known(delivery.Delivery)
    now, found = 0.0, []
    for _ in range(20):
        for _ in range(100):
            now += 1e-3
            here["sent"] += draw.random() < sent - 1 if sent > 1 else 0
            here["sent"] += draw.random() < min(sent, 1.0)
            lost = draw.random() < loss
            here["lost"] += lost
            if overflows or not lost:  # a full link brings a result in each turn, whatever was lost before it
                delivery.note_delivered(here, now)
        found.append(delivery.end_round_trip(here, 4, now))
    assert all(one > 0 for one in found[1:]) == overflows
    assert any(found[1:]) == overflows


def test_a_burst_is_spread_over_a_part_of_the_shortest_round_and_only_where_many_were_lost() -> None:
    pace = known(pacing.Pace)
    pacing.note_burst(pace, 3, 16.0, 4)
    assert pace["trips"] == 0
    pacing.note_sent(pace, 0.1, 16.0, 0.0, 1e-4, 1.0)
    assert pacing.is_time(pace, 1.0), "nothing is spread"
    pacing.note_burst(pace, 12, 16.0, 4)
    now = 1.0
    for _ in range(16):
        assert pacing.is_time(pace, now)
        pacing.note_sent(pace, 0.1, 16.0, 0.0, 1e-4, now)
        assert not pacing.is_time(pace, now)
        now = float(pace["next_at"])
    assert now - 1.0 == pytest.approx(0.1 / 4, rel=0.02)
    before = now
    pacing.note_sent(pace, 0.1, 16.0, 0.0, 0.05, now)
    assert pace["next_at"] == before, "a driver that looks late at its clock cannot spread so short a round"
    for _ in range(int(pace["trips"])):
        pacing.end_round_trip(pace)
    assert pacing.is_time(pace, 0.0)


@pytest.mark.parametrize(("rate", "apart_s"), [(200.0, 0.1 / 64), (2000.0, 1 / 2500)])
def test_contributions_leave_hardly_faster_than_results_come_where_the_path_holds_many(
    rate: float, apart_s: float
) -> None:
    """A window of 16 in a quarter of 0.1 s, or 1.25 times the rate: a path that holds 20 is short, 200 are many."""
    pace = known(pacing.Pace, trips=16)
    pacing.note_sent(pace, 0.1, 16.0 if rate == 200.0 else 512.0, rate, 0.0, 1.0)
    assert float(pace["next_at"]) - 1.0 == pytest.approx(apart_s)


def test_losses_of_several_full_round_trips_count_together_and_those_by_chance_do_not() -> None:
    for lost, overflows in ((2, True), (1, False)):
        path = known(delivery.Delivery, rate=200.0, began_at=1.0)
        found = []
        for trip in range(1, 9):
            path["came"], path["sent"], path["lost"], path["fastest"] = 20, 23, lost, 200.0
            found.append(delivery.end_round_trip(path, 4, 1.0 + trip / 10))
        assert any(found) == overflows, "four ranks lose 1.7 of twenty by chance"
        assert found[0] == 0.0, "two may be chance in a single round trip"


def test_time_in_which_nothing_is_in_flight_is_no_part_of_a_round_trip() -> None:
    path = known(delivery.Delivery, began_at=1.0, came_at=2.0)
    delivery.note_sent(path, 1, 5.0)
    delivery.note_sent(path, 2, 6.0)
    assert (float(path["began_at"]), int(path["sent"])) == (4.0, 2)


@pytest.mark.parametrize(("has_started", "least"), [(1, 28.0), (0, 10.0)])
def test_a_window_that_overflows_becomes_what_fills_the_path_and_a_smaller_one_is_left_alone(
    has_started: int, least: float
) -> None:
    """A row of fits ends at 1 + 9 contributions; after slow start one takes 0.3 away at most."""
    path = known(Window, **{**window.initial(1 / 16, 0.3), "limit": 40.0, "most": 64, "has_started": has_started})
    window.fit(path, 9.0, 0.0)
    assert (float(path["limit"]), int(path["has_started"])) == (least, 1)
    for _ in range(4):
        window.fit(path, 9.0, 0.0)
    assert path["limit"] == 10.0
    window.fit(path, 63.0, 0.5)
    assert path["limit"] == 10.0


TIMEOUT_S = 0.2


def play_flight(lost: set[int], sent: int, trip_s: float, timeouts: int = 1) -> tuple[int, float]:
    """Send contributions, some of which are lost; return repeats, and when all results have come that ever will.

    Each time-out repeats two, over a link that takes a contribution in a hundredth of the trip.  Frames do not overtake
    one another.
    """
    here = known(flight.Flight)
    last = {number: number + 1 for number in range(sent)}
    due = {number: trip_s * (1 + number / 100) for number in range(sent) if number not in lost}
    repeats, sequence, link_at = 0, sent, trip_s * sent / 100

    def repeat(number: int) -> None:
        nonlocal repeats, sequence, link_at
        repeats, sequence, link_at = repeats + 1, sequence + 1, max(link_at, now) + trip_s / 100
        last[number] = sequence
        due[number] = min(due.get(number, math.inf), link_at + trip_s)

    def newest() -> None:
        suspects = [one for one in last if last[one] <= here["suspect"]]
        if suspects:
            repeat(max(suspects, key=last.__getitem__))
        flight.note_newest(here, sequence if suspects else 0)

    for count in range(timeouts):
        now = TIMEOUT_S * (2.0 ** (count + 1) - 1)
        flight.note_timeout(here, sequence, len(last))
        for number in sorted(last)[2 * count : 2 * count + 2]:
            repeat(number)
    while last and (due or flight.awaits_newest(here)):
        number = min(due, key=due.__getitem__, default=-1)
        if flight.awaits_newest(here) and here["newest_at"] <= due.get(number, math.inf):
            now = float(here["newest_at"])
            newest()
            continue
        now = due.pop(number)
        step = flight.note_result(here, last[number], last.pop(number) > sent, 0.1 * trip_s, now)
        if step == flight.Step.NEWEST:
            newest()
        elif step == flight.Step.MORE:
            for one in sorted(one for one in last if last[one] <= here["suspect"])[: flight.REPEATED]:
                repeat(one)
    return repeats, now


@pytest.mark.parametrize("sent", [9, 30, 128])
def test_a_flight_that_is_lost_comes_back_within_a_few_round_trips(sent: int) -> None:
    """Two come back for each answer: after a round trip for the newest one, as many as slow start has."""
    repeats, took_s = play_flight(set(range(sent)), sent, 0.01)
    assert repeats == sent
    assert took_s < TIMEOUT_S + 0.01 * (4 + math.log2(sent)) + 0.01 * sent / 100


@pytest.mark.parametrize("timeouts", [1, 3])
@pytest.mark.parametrize("seed", [1, 2, 3, SEED_OF_THE_DAY])
def test_a_path_that_is_only_slow_has_no_more_than_its_newest_repeated(seed: int, timeouts: int) -> None:
    draw = random.Random(seed)
    trip_s, sent = draw.uniform(2.0, 20.0), draw.randrange(9, 200)
    assert play_flight(set(), sent, trip_s, timeouts)[0] <= 2 * timeouts + 1


@pytest.mark.parametrize("seed", [1, 2, 3, SEED_OF_THE_DAY])
def test_a_flight_of_which_anything_comes_is_not_lost(seed: int) -> None:
    """Results pass what is lost, and have it repeated: here nothing does, and no more is repeated than was."""
    draw = random.Random(seed)
    sent = draw.randrange(9, 200)
    came = draw.randrange(2, sent)
    assert play_flight(set(range(sent)) - {came}, sent, 0.3)[0] <= 3


def test_few_contributions_in_flight_are_never_suspect() -> None:
    assert play_flight(set(range(8)), 8, 0.01)[0] == 2


def test_what_the_switch_holds_answers_nothing_and_another_time_out_begins_anew() -> None:
    here = known(flight.Flight)
    flight.note_timeout(here, 40, 20)
    assert flight.note_result(here, 41, False, 0.01, 1.0) == flight.Step.NOTHING
    assert not flight.awaits_newest(here)
    flight.note_result(here, 42, True, 0.01, 1.0)
    assert flight.note_result(here, 43, True, 0.01, 1.005) == flight.Step.NOTHING, "others may follow"
    assert flight.note_result(here, 44, True, 0.01, 1.01) == flight.Step.NEWEST
    flight.note_newest(here, 45)
    flight.note_timeout(here, 50, 20)
    assert (int(here["suspect"]), int(here["newest"])) == (50, 0)


def test_a_silent_tree_is_looked_at_less_and_less_often_until_it_is_heard() -> None:
    here = known(silence.Silence)
    clock = known(timer.Timer, timeout_s=0.1, timeout_max_s=8.0, timeout_min_s=1e-3, pause_max_s=1.0)
    pauses = []
    for now in (1.0, 2.0, 3.0):
        pauses.append(float(timer.silence_s(clock, here["times"])))
        silence.note_timeout(here, now)
        assert float(here["heard_at"]) == now
    assert pauses == pytest.approx([0.2, 0.4, 0.8])
    silence.note_heard(here, 7.0)
    assert (float(here["heard_at"]), int(here["times"])) == (7.0, 0)


def test_the_way_over_the_fallback_holds_half_of_what_fills_it() -> None:
    path = known(Window, limit=4.0, most=4)
    window.bound(path, 100.0, 4, 64)
    assert path["most"] == 50
    path["limit"] = 50.0
    window.bound(path, 3.0, 4, 64)
    assert (int(path["most"]), float(path["limit"])) == (4, 4.0)


def test_answers_of_a_moment_count_once() -> None:
    trips = known(round_trips.RoundTrips, usual_s=0.1, recent_s=0.1, in_order_s=0.1, least_s=0.01, came_at=9.0)
    for number in range(10):
        round_trips.note_answer(trips, 1e-3, 0, 10.0 + number / 1000)
    assert float(trips["usual_s"]) == pytest.approx(0.05, rel=0.02)
    assert round_trips.longest_s(trips, 4, 0) >= 0.025, "no answer takes more than half of what rounds took away"


def test_many_members_lose_frames_by_chance_in_most_rounds_and_are_not_paced() -> None:
    pace = known(pacing.Pace)
    pacing.note_burst(pace, 100, 128.0, 64)
    assert pace["trips"] == 0


@pytest.mark.parametrize(("waited_s", "in_tree", "lost"), [(2.9, 0, False), (3.1, 0, True), (3.1, 1, False)])
def test_a_frame_that_was_passed_long_ago_is_lost_where_no_other_switch_passes_its_repeat_on(
    waited_s: float, in_tree: int, lost: bool
) -> None:
    assert losses.takes_credit(known(losses.Doubt), waited_s, 1.0, 4, in_tree) == lost

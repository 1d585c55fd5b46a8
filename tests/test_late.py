"""Who is late in a job, from when its ranks began each collective and how long it took there, by their own clocks."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from switchsum.view import spans
from switchsum.view.late import find_late, more_said, said, shares, shares_now, steps_of
from switchsum.view.words import duration
from switchsum_controller.jobs.late_calls import MOST_OPEN, Calls
from switchsum_protocol import rpc
from switchsum_protocol.reports import CallSpan

MS = 1_000_000
NAMES = [
    "allreduce (average) of float32[4096]",
    "allreduce (average) of float32[1000000]",
    "allreduce (sum) of float32[1]",
]


class Ranks:
    """Ranks of a job whose clocks differ by days, and which compute, add and wait in a time that is made up."""

    def __init__(self, ranks: int, seed: int = 0, *, tells: bool = True) -> None:
        self.random = random.Random(seed)
        self.offsets = [self.random.randrange(10**15) for _ in range(ranks)]
        self.at = [0] * ranks
        self.rows: list[list[list[int]]] = [[] for _ in range(ranks)]
        self.calls = Calls(ranks)
        self.serial, self.waited, self.tells = 0, True, tells

    def add(self, kind: int, moving_ns: int, *, waits: bool = True) -> None:
        """Have all ranks begin a collective when they are there; with `waits` they go on when it has ended."""
        end = max(self.at) + moving_ns
        for rank, at in enumerate(self.at):
            waited = self.tells and self.waited
            self.rows[rank].append([self.serial, kind, at + self.offsets[rank], end - at, int(waited)])
        self.waited = waits
        if waits:
            self.at = [end] * len(self.at)
        self.serial += 1

    def compute(self, durations: list[int]) -> None:
        """Let time pass on each rank."""
        self.at = [at + duration for at, duration in zip(self.at, durations, strict=True)]

    def report(self, now: float) -> None:
        """Tell the controller, the ranks in an order of chance, each as far as it is."""
        for rank in self.random.sample(range(len(self.at)), len(self.at)):
            reported = self.random.randrange(len(self.rows[rank]) + 1)
            self.calls.take(rank, self.rows[rank][:reported], NAMES, now)
            del self.rows[rank][:reported]

    def report_all(self, now: float) -> None:
        for rank, rows in enumerate(self.rows):
            self.calls.take(rank, rows, NAMES, now)
            rows.clear()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("tells", [True, False])
def test_a_late_rank_is_named_with_its_call_and_what_it_costs(seed: int, tells: bool) -> None:
    """Each step has two buckets that move while ranks compute and a last one that is waited for, as DDP's have."""
    chance = random.Random(seed)
    culprit, place, delay = chance.randrange(4), chance.randrange(3), chance.randint(5, 50) * MS
    job = Ranks(4, seed, tells=tells)
    for step in range(100):
        for call in range(3):
            own = (delay if call == place else 0, (30 if call == 0 else 4) * MS)
            job.compute([own[1] + chance.randrange(MS // 2) + (rank == culprit) * own[0] for rank in range(4)])
            job.add(call, 6 * MS, waits=call == 2)
        if step % 20 == 19:
            job.report(step / 20)
    job.report_all(5.0)
    reported = job.calls.report(5.0)
    steps, period = steps_of(reported)
    assert period == 3
    assert sum(one.rank == culprit and one.place == place for one in steps) >= 95
    found = find_late(reported)
    assert found is not None
    assert (found.rank, found.place, found.kind, found.steps) == (culprit, place, NAMES[place], 100)
    assert found.times >= 95
    assert abs(found.late_s - delay / 1e9) < 2e-3
    step_ns = 44.5 * MS
    assert abs(found.gain - delay / step_ns) < 0.1 * found.gain + 0.02
    [others, own_share] = [shares(reported.spans[0], rank)["waiting"] for rank in ((culprit + 1) % 4, culprit)]
    assert others > 0.8 * delay / (step_ns + delay) > own_share
    without = f"{duration(found.step_s)} a step, {duration(found.step_s / (1 + found.gain))} without it."
    assert said(found, f"rank {culprit}") == (
        f"Rank {culprit} is {duration(found.late_s)} late in {found.times} of the last 100 steps: {without}"
    )
    assert more_said(found, "sleeps", 0.5).startswith(f"This has gone on for at least {found.since_s:.0f} s.")
    assert 3 <= found.since_s <= 5


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("ranks", [2, 5])
def test_nobody_is_named_where_each_is_the_last_by_chance(seed: int, ranks: int) -> None:
    job = Ranks(ranks, seed)
    for _ in range(100):
        job.compute([10 * MS + round(job.random.expovariate(1 / (3 * MS))) for _ in range(ranks)])
        job.add(0, MS)
    job.report_all(1.0)
    assert find_late(job.calls.report(1.0)) is None


def test_a_rank_that_was_late_is_forgotten_and_one_that_becomes_it_is_named() -> None:
    """After a day, and within 20 seconds."""
    job = Ranks(3)
    now = 0.0

    def steps(seconds: int, culprit: int) -> None:
        nonlocal now
        for _ in range(seconds):
            for _ in range(10):
                job.compute([80 * MS + 20 * MS * (rank == culprit) for rank in range(3)])
                job.add(0, MS)
            now += 1.0
            job.report_all(now)

    def named() -> int | None:
        found = find_late(job.calls.report(now))
        return None if found is None else found.rank

    steps(20, culprit=-1)
    now += 86_400
    assert named() is None
    steps(20, culprit=2)
    assert named() == 2
    steps(20, culprit=0)
    assert named() == 0
    steps(20, culprit=-1)
    assert named() is None
    minute, all_of_it = job.calls.report(now).spans[1:]
    assert minute.late_s[2] == pytest.approx(4.0, rel=0.05)
    assert all_of_it.late_s[2] == pytest.approx(4.0, rel=0.05)
    now += 700
    assert job.calls.report(now).spans[2].calls == 0


def test_shares_of_time_add_up_to_one_and_are_those_of_each_rank() -> None:
    job = Ranks(2)
    for _ in range(50):
        job.compute([2 * MS, 6 * MS])
        job.add(1, 2 * MS)
    job.report_all(0.0)
    [span, *_] = job.calls.report(0.0).spans
    assert [shares(span, 0)[name] for name in ("computing", "moving", "waiting")] == pytest.approx([0.25, 0.25, 0.5])
    assert [shares(span, 1)[name] for name in ("computing", "moving", "waiting")] == pytest.approx([0.75, 0.25, 0.0])
    [kind] = span.kinds
    assert (kind.name, kind.calls, kind.late_rank) == (NAMES[1], 50, 1)
    assert (kind.moving_s, kind.waiting_s, kind.late_s) == pytest.approx((0.1, 0.1, 0.2))
    ten, minute, _ = spans.as_data(job.calls.report(0.0))
    assert (ten["seconds"], minute["seconds"], ten["calls"]) == (10.0, 60.0, 50)
    assert minute["ranks"][0] == {"rank": 0, "computing": 0.25, "moving": 0.25, "waiting": 0.5}
    shown = {"collective": NAMES[1], "calls": 50, "moving_ms": 2.0, "waiting_ms": 2.0, "late_rank": 1, "late_ms": 4.0}
    assert minute["collectives"] == [pytest.approx(shown, abs=0.1)]
    tables = spans.tables(job.calls.report(0.0))
    waits = {"waits, 10 s": "50 %", "waits, 1 min": "50 %", "waits, 10 min": "50 %"}
    assert tables["ranks"][0] == {"rank": 0, **waits, "moves, 10 s": "25 %", "computes, 10 s": "25 %"}
    [of_minute] = tables["collectives of the last 1 min, each call on average"]
    assert (of_minute["last"], of_minute["others wait for it"]) == ("rank 1", "4 ms")
    assert spans.tables(Calls(2).report(0.0)) == {}


def test_a_call_and_a_pause_that_are_not_over_count_for_the_time_they_have_lasted() -> None:
    job = Ranks(2)
    for _ in range(50):
        job.compute([2 * MS, 6 * MS])
        job.add(1, 2 * MS)
    job.report_all(0.0)
    [span, *_] = job.calls.report(0.0).spans
    waits, pauses = rpc.WorkerInfo(rank=0, age_s=0.1, waiting_s=5.0), rpc.WorkerInfo(rank=0, age_s=0.1, idle_s=5.0)
    assert shares_now(span, waits) == pytest.approx({"computing": 0.125, "moving": 0.125, "waiting": 0.75})
    assert shares_now(span, pauses) == pytest.approx({"computing": 0.625, "moving": 0.125, "waiting": 0.25})
    assert shares_now(span, replace(waits, waiting_s=0.5)) == shares(span, 0)
    assert shares_now(CallSpan(seconds=10.0), replace(waits, waiting_s=14.0))["waiting"] == 1.0
    assert shares_now(span, replace(waits, age_s=-1.0)) == shares(span, 0)


def test_rows_of_calls_that_some_ranks_left_out_are_compared_where_all_have_them() -> None:
    job = Ranks(3)
    for _ in range(640):
        job.compute([MS, 2 * MS, MS])
        job.add(2, MS // 10)
    for rank, sieve in enumerate((0, 1, 3)):
        job.calls.take(rank, [row for row in job.rows[rank] if row[0] // 64 & sieve == 0], NAMES, 0.0)
    reported = job.calls.report(0.0)
    assert [row[0] for row in reported.recent] == [serial for serial in range(640) if serial // 64 % 4 == 0]
    found = find_late(reported)
    assert found is not None
    assert (found.rank, found.calls_per_step) == (1, 1)


def test_what_a_rank_never_tells_of_takes_bounded_memory() -> None:
    calls = Calls(2)
    calls.take(0, [[serial, 0, serial, 1, 0] for serial in range(3 * MOST_OPEN)], NAMES, 0.0)
    calls.take(1, [[serial, 0, serial, 1, 0] for serial in range(3 * MOST_OPEN)], NAMES, 0.0)
    assert calls.report(0.0).recent[0][0] > 2 * MOST_OPEN - 1
    assert find_late(Calls(3).report(0.0)) is None


def test_a_member_that_lies_about_its_times_is_not_named_and_breaks_nothing() -> None:
    calls = Calls(2)
    for serial in range(40):
        calls.take(0, [(serial, 0, serial * 10 * MS, 5 * MS, 1)], NAMES, 100.0)
        calls.take(1, [(serial, 0, 10**15 - serial, 0, 1)], NAMES, 100.0)  # its clock goes back
    reported = calls.report(100.0)
    assert reported.spans[0].time_s[1] == 0.0
    assert find_late(reported) is None

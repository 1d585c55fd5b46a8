"""How often slots are read."""

from __future__ import annotations

from switchsum.testing.clock import VirtualClock
from switchsum.view.pace import LONG_WAIT_S, SHARE, Pace
from switchsum_protocol import rpc


def wants(pace: Pace, *waiting_s: float, job: str = "a", age_s: float = 0.1) -> bool:
    pace.begin(["a"])
    return pace.wants(job, [rpc.WorkerInfo(rank=at, age_s=age_s, waiting_s=one) for at, one in enumerate(waiting_s)])


def test_reading_takes_the_stated_share_of_the_time_while_nobody_waits() -> None:
    clock = VirtualClock()
    pace = Pace(clock)
    assert wants(pace, 0.0)
    pace.read(0.03)
    assert not wants(pace, 0.0)
    clock.advance_to(clock.now_s + 0.03 / SHARE - 0.01)
    assert not wants(pace, 0.0, LONG_WAIT_S / 2)
    clock.advance_to(clock.now_s + 0.02)
    assert wants(pace, 0.0)


def test_slots_of_several_jobs_share_the_time() -> None:
    clock = VirtualClock()
    pace = Pace(clock)
    assert wants(pace, 0.0)
    pace.read(0.01)
    pace.read(0.02)
    clock.advance_to(clock.now_s + 0.02 / SHARE + 0.1)
    assert not wants(pace, 0.0)
    clock.advance_to(clock.now_s + 0.01 / SHARE)
    assert wants(pace, 0.0)


def test_slots_are_read_where_a_rank_waits_and_where_a_job_is_new() -> None:
    pace = Pace(VirtualClock())
    pace.read(1.0)
    assert wants(pace, 0.0)  # new
    assert not wants(pace, 0.0)
    assert wants(pace, 0.0, LONG_WAIT_S)
    assert not wants(pace, LONG_WAIT_S, age_s=-1.0)  # it has never reported
    pace.begin([])  # the job ends, and another one gets its name
    assert wants(pace, 0.0)

"""Queues with rates, as a test holds them in its hand: how long frames wait, in which order they go, which are dropped.

The program tells each frame what it hears of its queue; the right answers follow from the rates.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from switchsum_switch import Switch
from switchsum_switch.queues.queues import CAPACITY_FRAMES

from .conftest import PROGRAMS
from .test_programs_queueing import REPORT

PORT = 3
"""Where the program sends all frames."""
PAYLOAD = 71
FRAME_BYTES = REPORT.size + PAYLOAD


@pytest.fixture(params=["interpreter", "native", "traced"])
def switch(request: pytest.FixtureRequest) -> Switch:
    if request.param == "traced":
        return Switch.from_file(PROGRAMS / "queueing.json", priority_queues=3, traced=True)
    return Switch.from_file(PROGRAMS / "queueing.json", priority_queues=3, engine=request.param)


def frame(priority: int = 0, number: int = 0) -> bytes:
    return bytes([priority]).ljust(REPORT.size, b"\0") + bytes([number]) * PAYLOAD


@dataclass(frozen=True)
class Report:
    """What a frame that has left says."""

    number: int
    priority: int
    enq_depth: int
    deq_depth: int
    enqueued_us: int
    waited_us: int
    egress_us: int


def report(made: bytes) -> Report:
    fields = [int.from_bytes(field, "big") if isinstance(field, bytes) else field for field in REPORT.unpack_from(made)]
    priority, enq_depth, deq_depth, enqueued_us, waited_us, _, egress_us = fields
    return Report(made[-1], priority, enq_depth, deq_depth, enqueued_us, waited_us, egress_us)


def test_without_rates_nothing_waits(switch: Switch) -> None:
    for number in range(200):
        [(port, made)] = switch.process(1, frame(0, number))
        assert (port, report(made)) == (PORT, Report(number, 0, 0, 0, 0, 0, 0))
    assert switch.queue(PORT).frames == 0


def test_frames_leave_at_the_rate_of_their_queue_and_hear_how_they_waited(switch: Switch) -> None:
    """1,000 frames a second: of 5 that come at 2 s the first goes at once, and then one each millisecond."""
    switch.advance(2)
    switch.queue(PORT).rate_pps = 1000
    at_once = [left for number in range(5) for left in switch.process(1, frame(0, number))]
    assert [report(made).number for _, made in at_once] == [0]
    assert (switch.queue(PORT).frames, switch.queue(PORT).bytes) == (4, 4 * FRAME_BYTES)
    assert switch.advance(0.000_999) == []
    later = switch.advance(0.1)
    assert [at for at, _, _ in later] == pytest.approx([2.001, 2.002, 2.003, 2.004])
    assert [report(made) for _, _, made in later] == [
        Report(1, 0, 0, 3, 2_000_000, 1000, 2_001_000),
        Report(2, 0, 1, 2, 2_000_000, 2000, 2_002_000),
        Report(3, 0, 2, 1, 2_000_000, 3000, 2_003_000),
        Report(4, 0, 3, 0, 2_000_000, 4000, 2_004_000),
    ]
    assert len(switch.process(1, frame())) == 1  # the queue has rested


def test_a_snapshot_is_restored_without_the_frames_that_wait(switch: Switch) -> None:
    switch.queue(PORT).rate_pps = 1000
    kept = switch.snapshot()
    assert [len(switch.process(1, frame(0, number))) for number in range(4)] == [1, 0, 0, 0]
    switch.trace(1, frame())
    assert switch.queue(PORT).frames == 3
    switch.restore(kept)
    assert switch.queue(PORT).frames == 0
    assert switch.advance(1) == []
    assert len(switch.process(1, frame(0, 9))) == 1


def test_bits_a_second_count_bytes(switch: Switch) -> None:
    switch.queue(PORT).rate_bps = 8 * FRAME_BYTES * 100
    for _ in range(4):
        switch.process(1, frame())
    assert [at for at, _, _ in switch.advance(1)] == pytest.approx([0.01, 0.02, 0.03])


def test_a_full_queue_drops(switch: Switch) -> None:
    queue = switch.queue(PORT)
    queue.rate_pps = 10
    for number in range(CAPACITY_FRAMES + 8):  # one goes at once
        switch.process(1, frame(0, number))
    assert (queue.frames, queue.dropped) == (CAPACITY_FRAMES, 7)
    left = switch.advance(100)
    assert [report(made).number for _, _, made in left] == [*range(1, CAPACITY_FRAMES + 1)]
    assert max(report(made).enq_depth for _, _, made in left) == CAPACITY_FRAMES - 1
    queue.depth_frames = 2
    for _ in range(5):
        switch.process(1, frame())
    assert (queue.frames, queue.dropped) == (2, 9)


def test_a_queue_may_be_short_in_bytes(switch: Switch) -> None:
    queue = switch.queue(PORT)
    queue.rate_pps, queue.depth_bytes = 10, 3 * FRAME_BYTES + 1
    for _ in range(8):
        switch.process(1, frame())
    assert (queue.frames, queue.bytes, queue.dropped) == (3, 3 * FRAME_BYTES, 4)


def test_the_highest_priority_goes_first_where_a_port_has_one_rate(switch: Switch) -> None:
    switch.queue(PORT).rate_pps = 1000
    switch.process(1, frame(0, 99))
    for number in range(3):
        for priority in (0, 2, 1):
            switch.process(1, frame(priority, number))
    left = [report(made) for _, _, made in switch.advance(0.0045)]
    assert [(one.priority, one.number) for one in left] == [(2, 0), (2, 1), (2, 2), (1, 0)]
    switch.process(1, frame(2, 3))  # overtakes all that wait
    left = [report(made) for _, _, made in switch.advance(1)]
    assert [(one.priority, one.number) for one in left] == [(2, 3), (1, 1), (1, 2), (0, 0), (0, 1), (0, 2)]
    assert [one.enq_depth for one in left] == [0, 1, 2, 0, 1, 2]  # of its own queue


def test_rates_of_queues_are_their_own(switch: Switch) -> None:
    """As in BMv2: two queues of 1,000 frames a second each let 2,000 go."""
    for priority in (0, 2):
        switch.queue(PORT, priority).rate_pps = 1000
    sent = [switch.process(1, frame(priority, number)) for number in range(3) for priority in (0, 1, 2)]
    # Queue 1 has no rate: nothing waits there.
    assert [len(left) for left in sent] == [1, 1, 1, 0, 1, 0, 0, 1, 0]
    left = switch.advance(1)
    assert [(round(at * 1000), report(made).priority) for at, _, made in left] == [(1, 2), (1, 0), (2, 2), (2, 0)]


def test_frames_that_were_due_leave_at_their_time_whoever_moved_the_clock(switch: Switch) -> None:
    switch.queue(PORT).rate_pps = 100
    switch.process(1, frame(0, 0))
    switch.process(1, frame(0, 1))
    switch.clock.advance(1)
    left = [report(made) for _, made in switch.process(1, frame(0, 2))]
    assert [(one.number, one.egress_us) for one in left] == [(1, 10_000), (2, 1_000_000)]


def test_a_rate_that_is_taken_away_lets_go_what_waits_in_order(switch: Switch) -> None:
    switch.queue(PORT).rate_pps = 1
    for number in range(4):
        switch.process(1, frame(0, number))
    switch.queue(PORT).rate_pps = 0
    switch.process(1, frame(0, 4))
    assert [(at, report(made).number) for at, _, made in switch.advance(1)] == [(1, 1), (1, 2), (1, 3), (1, 4)]
    assert len(switch.process(1, frame(0, 5))) == 1
    assert switch.queue(PORT).frames == 0


def test_other_ports_do_not_wait(switch: Switch) -> None:
    switch.queue(PORT + 1).rate_pps = 1
    assert all(len(switch.process(1, frame())) == 1 for _ in range(3))


def test_a_dry_run_goes_through_the_queue_and_leaves_it_as_it_was(switch: Switch) -> None:
    switch.queue(PORT).rate_pps = 1
    switch.process(1, frame())
    assert switch.trace(1, frame()).find("send")
    assert switch.queue(PORT).frames == 0
    assert switch.advance(10) == []


def test_what_cannot_be_is_named(switch: Switch) -> None:
    with pytest.raises(ValueError, match="no port 512"):
        switch.queue(512)
    with pytest.raises(ValueError, match="no queue 3: a port has 3"):
        switch.queue(PORT, 3)
    with pytest.raises(ValueError, match="0 or more, not -1"):
        switch.queue(PORT).rate_pps = -1
    with pytest.raises(ValueError, match="0 or more, not nan"):
        switch.queue(PORT).rate_bps = float("nan")
    with pytest.raises(ValueError, match="does not run back"):
        switch.advance(-1)
    switch.queue(PORT).rate_pps = 5
    assert repr(switch.queue(PORT)) == "<queue of port 3: 0 of 192 frames, 5 frames/s>"


def test_frames_of_a_poisson_source_wait_as_long_as_each_other_makes_them() -> None:
    """Lindley: a frame waits for what the one before it waited, and for its service, less the time between them."""
    switch = Switch.from_file(PROGRAMS / "queueing.json")
    queue, service_s, draw = switch.queue(PORT), 0.001, random.Random(7)
    queue.rate_pps, queue.depth_frames = 1 / service_s, 10_000
    expected, waits, before = [0.0], [report(switch.process(1, frame())[0][1]).waited_us], switch.clock.now_us()
    for _ in range(1000):
        waits += [report(made).waited_us for _, _, made in switch.advance(draw.expovariate(0.8 / service_s))]
        waits += [report(made).waited_us for _, made in switch.process(1, frame())]
        now = switch.clock.now_us()
        expected.append(max(0.0, expected[-1] + 1e6 * service_s - (now - before)))
        before = now
    waits += [report(made).waited_us for _, _, made in switch.advance(10)]
    assert max(expected) > 3000
    assert waits == pytest.approx(expected)

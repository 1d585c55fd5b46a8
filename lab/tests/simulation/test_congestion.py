"""Congestion in virtual time: real workers obey the marks of simulated queues, alone and beside other jobs."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean

import pytest

from checks.lab.sharing import CABLE, add, beside, share, tree
from switchsum_lab.simulation.conditions import SwitchTiming

SIZE = 600_000


def test_queues_do_not_overflow_and_marks_keep_them_short() -> None:
    """The links above carry half of what workers send, and ports hold 88 frames: without marks round trips tell."""
    planned = tree(2, 4, mbit=200.0, above_mbit=100.0)
    large = add(planned, replace(CABLE, queue_bytes=1_000_000), SIZE)
    small = add(planned, replace(CABLE, queue_bytes=100_000), SIZE)
    marked = add(planned, replace(CABLE, queue_bytes=100_000, mark_bytes=10_000), SIZE)
    for found in (large, small, marked):
        assert (found.dropped, found.repeats) == (0, 0)
        assert found.seconds <= 1.05 * large.seconds
    assert marked.marked > 0
    assert marked.longest_bytes < large.longest_bytes / 2 < 50_000


def test_marks_cost_nothing_on_a_link_that_is_free() -> None:
    planned = tree(1, 3, mbit=200.0, above_mbit=200.0)
    plain, marking = (add(planned, replace(CABLE, mark_bytes=mark), SIZE) for mark in (None, 20_000))
    assert marking.marked == 0
    assert marking.seconds == plain.seconds


def test_jobs_share_a_link_and_drop_nothing() -> None:
    found, without = share(8, 1.0), share(8, 0.1, mark_bytes=None)
    assert found.dropped == 0.0
    assert without.dropped > 0.01
    assert found.furthest < 0.2 < without.furthest
    assert sum(found.mbit) > 0.9 * 200 * 1024 / 1114


@pytest.mark.parametrize("delay_s", [3e-6, 5e-6, 8e-6])
@pytest.mark.parametrize("count", [7, 8, 9])
def test_many_jobs_have_equal_shares(count: int, delay_s: float) -> None:
    """A job whose first contributions were lost at once, and came back one by one, had nothing for seconds."""
    found = share(count, 4.0, delay_s=delay_s)
    assert found.furthest < 0.1
    assert found.dropped == 0.0


def test_the_program_marks_in_virtual_time() -> None:
    """Links of 64 packets as on BMv2, no link that marks: the P4 program sees its queues."""
    found = share(8, 0.5, mark_bytes=None, timing=SwitchTiming())
    assert found.marked > 0
    assert found.dropped == 0.0
    assert sum(found.mbit) > 0.9 * 200 * 1024 / 1114
    assert share(4, 0.1, mark_bytes=None).marked == 0, "else packets wait behind egress"


@pytest.mark.parametrize("head_start", [0.0, pytest.param(0.5, marks=pytest.mark.slow)])
def test_beside_tcp_that_obeys_marks_each_has_a_third(head_start: float) -> None:
    """On average of some lengths of the queue: in which order frames meet for ever after differs by a tenth or two.

    Where both begin at once the job has two thirds, and a single stream a little more than a fifth.
    """
    found = [beside(0.5, obeys=True, warm=0.5, head_start=head_start, frames=frames) for frames in (56, 60, 64, 72, 80)]
    assert mean(one.job for one in found) > 200 / 3
    assert mean(one.stream for one in found) > 0.32 * 200
    assert min(min(one.job, one.stream) for one in found) > 200 / (4 if head_start else 5)
    assert min(one.job + one.stream for one in found) > 190


@pytest.mark.parametrize("mark_bytes", [20_000, pytest.param(40_000, marks=pytest.mark.slow)])
def test_beside_tcp_that_ignores_marks_each_has_a_third(mark_bytes: int) -> None:
    """Also where the queue is no longer marked each time that the stream has halved its window: from 40 kB on."""
    found = [beside(2.0, obeys=False, warm=2.0, frames=frames, mark_bytes=mark_bytes) for frames in (56, 64, 80)]
    assert mean(one.job for one in found) > 200 / 3
    assert mean(one.stream for one in found) > 200 / 3
    assert min(min(one.job, one.stream) for one in found) > 200 / 4
    assert min(one.job + one.stream for one in found) > 190


def test_many_jobs_whose_frames_are_all_marked_try_seldom() -> None:
    """Thirty-two jobs with one frame each in flight fill more of the queue than goes by unmarked."""
    found = share(32, 2.0)
    assert found.dropped < 0.01
    assert sum(found.mbit) > 0.95 * 200 * 1024 / 1114

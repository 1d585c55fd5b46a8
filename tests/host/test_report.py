"""What a worker says of itself to its controller."""

from __future__ import annotations

import os

import numpy as np

from switchsum.host.api.communicator import Communicator
from switchsum.host.api.report import Reporter
from switchsum.protocol.reports import MOST_TEXT, WorkerReport

from .checks import on_all


class Clock:
    """Seconds that a test sets."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def told(reporter: Reporter) -> WorkerReport:
    report = reporter("digits", 7)
    assert report is not None
    return report


def test_a_report_says_what_is_waited_for_and_how_long(fresh_ranks: list[Communicator]) -> None:
    clock = Clock()
    reporter = Reporter(fresh_ranks[0], host="h" * 200, link="shm:x", clock=clock)
    clock.now_s += 3
    on_all(fresh_ranks, lambda communicator: communicator.allreduce(np.ones(1000, np.float32)))
    idle = told(reporter)
    assert (idle.job, idle.nonce, idle.host, idle.link) == ("digits", 7, "h" * MOST_TEXT, "shm:x")
    assert idle.pid == os.getpid()
    assert (idle.begun, idle.finished, idle.waiting_s, idle.idle_s) == (1, 1, 0, 0)
    statistics = fresh_ranks[0].statistics()
    assert (idle.frames_sent, idle.bytes_sent) == (statistics.frames_sent, statistics.bytes_sent)
    assert (idle.frames_received, idle.repeats) == (statistics.frames_received, statistics.repeats)
    clock.now_s += 2
    assert told(reporter).idle_s == 2
    waits = fresh_ranks[0].allreduce_async(np.ones(1000, np.float32))
    assert told(reporter).waiting_s == 0  # it has just begun
    clock.now_s += 5
    report = told(reporter)
    assert (report.begun, report.finished, report.waiting_s, report.idle_s) == (2, 1, 5, 0)
    assert "float32[1000]" in report.operation
    assert report.waiting_slots > 0
    on_all(fresh_ranks[1:], lambda communicator: communicator.allreduce_async(np.ones(1000, np.float32)))
    del waits


def test_a_closed_communicator_says_nothing_and_is_not_kept(fresh_ranks: list[Communicator]) -> None:
    reporter = Reporter(fresh_ranks[0], host="", link="")
    fresh_ranks[0].close()
    assert reporter("digits", 7) is None
    fresh_ranks.clear()
    assert reporter("digits", 7) is None

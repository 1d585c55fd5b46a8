"""What a worker says of itself to its controller."""

from __future__ import annotations

import base64
import itertools
import os
import struct
import time
from functools import partial

import numpy as np

from switchsum.host.api.communicator import Communicator
from switchsum.host.api.report import Reporter, ended_calls
from switchsum.protocol.member_rpc import MOST_TEXT
from switchsum.protocol.reports import WorkerReport

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


def calls_of(report: WorkerReport) -> list[tuple[int, ...]]:
    return list(struct.iter_unpack("<5q", base64.b64decode(report.calls)))


def test_a_report_has_each_collective_that_has_ended_once_with_its_name_and_times(
    fresh_ranks: list[Communicator],
) -> None:
    reporter = Reporter(fresh_ranks[0], host="", link="", clock=Clock())
    began = time.monotonic_ns()
    for size in (10, 3000, 10):
        on_all(fresh_ranks, partial(Communicator.allreduce, array=np.ones(size, np.float32)))
    report = told(reporter)
    calls = calls_of(report)
    assert [call[0] for call in calls] == [0, 1, 2]
    names = [report.kinds[call[1]] for call in calls]
    assert ["float32[10]" in name for name in names] == [True, False, True]
    assert [call[2] for call in calls] == sorted(call[2] for call in calls)
    assert all(began <= call[2] < time.monotonic_ns() and call[3] > 0 for call in calls)
    assert sum(call[3] for call in calls) <= time.monotonic_ns() - began
    assert [call[4] for call in calls][1:] == [1, 1]
    assert calls_of(told(reporter)) == []
    handles = [one.allreduce_async(np.ones(10, np.float32)) for one in fresh_ranks[1:]]
    mine = fresh_ranks[0].allreduce_async(np.ones(10, np.float32))
    for handle in (mine, *handles):
        handle.wait()
    assert [call[0] for call in calls_of(told(reporter))] == [3]


def test_of_very_many_collectives_all_ranks_keep_the_same_ones(fresh_ranks: list[Communicator]) -> None:
    kept: list[set[int]] = []
    for number, rank in enumerate(fresh_ranks):
        clock = Clock()
        told(reporter := Reporter(rank, host="", link="", clock=clock))
        state = rank.queue.driver.engine.state.core[0]["calls"]
        clock.now_s += 1.0
        begun = 128 << number  # as if so many were begun in that second
        reporter._calls(state, begun, clock.now_s)
        assert state["sieve"] == (1 << number) - 1
    on_all(fresh_ranks, lambda one: [one.barrier() for _ in range(200)])
    for rank in fresh_ranks:
        rows, _, _ = ended_calls(rank.queue.driver.engine.state.core[0]["calls"], 0)
        kept.append({int(row[0]) for row in rows})
    assert kept[-1]
    for more, fewer in itertools.pairwise(kept):
        assert fewer <= more | {serial for serial in fewer if serial < min(more)}
    assert kept[-1] <= {serial for serial in range(200) if serial // 64 % (1 << (len(fresh_ranks) - 1)) == 0}

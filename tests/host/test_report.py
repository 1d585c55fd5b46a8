"""What a worker says of itself to its controller."""

from __future__ import annotations

import base64
import itertools
import os
import struct
import time
from functools import partial

import numpy as np
import pytest

from switchsum_host.api.communicator import Communicator
from switchsum_host.api.report import Reporter, ended_calls
from switchsum_host.engine.operation import KNOWN, Operation
from switchsum_protocol.member_rpc import MOST_TEXT
from switchsum_protocol.reports import WorkerReport

from .checks import engine_of, on_all


class Clock:
    """Seconds that a test sets."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def reported(reporter: Reporter) -> WorkerReport:
    report = reporter("digits", 7)
    assert report is not None
    return report


def test_a_report_says_what_is_waited_for_and_how_long(fresh_ranks: list[Communicator]) -> None:
    clock = Clock()
    reporter = Reporter(fresh_ranks[0], engine_of(fresh_ranks[0]), host="h" * 200, link="shm:x", clock=clock)
    clock.now_s += 3
    on_all(fresh_ranks, lambda communicator: communicator.allreduce(np.ones(1000, np.float32)))
    idle = reported(reporter)
    assert (idle.job, idle.nonce, idle.host, idle.link) == ("digits", 7, "h" * MOST_TEXT, "shm:x")
    assert idle.pid == os.getpid()
    assert (idle.begun, idle.finished, idle.waiting_s, idle.idle_s) == (1, 1, 0, 0)
    statistics = fresh_ranks[0].statistics()
    assert (idle.frames_sent, idle.bytes_sent) == (statistics.frames_sent, statistics.bytes_sent)
    assert (idle.frames_received, idle.repeats) == (statistics.frames_received, statistics.repeats)
    assert (idle.sparse_rows, idle.sparse_all_rows) == (0, 0)
    clock.now_s += 2
    assert reported(reporter).idle_s == 2
    waits = fresh_ranks[0].allreduce_async(np.ones(1000, np.float32))
    assert reported(reporter).waiting_s == 0  # it has just begun
    clock.now_s += 5
    report = reported(reporter)
    assert (report.begun, report.finished, report.waiting_s, report.idle_s) == (2, 1, 5, 0)
    assert "float32[1000]" in report.operation
    assert report.waiting_slots > 0
    on_all(fresh_ranks[1:], lambda communicator: communicator.allreduce_async(np.ones(1000, np.float32)))
    del waits


def test_a_closed_communicator_says_nothing_and_is_not_kept(fresh_ranks: list[Communicator]) -> None:
    reporter = Reporter(fresh_ranks[0], engine_of(fresh_ranks[0]), host="", link="")
    fresh_ranks[0].close()
    assert reporter("digits", 7) is None
    fresh_ranks.clear()
    assert reporter("digits", 7) is None


def test_a_report_that_cannot_be_made_is_left_out_and_said_once(
    fresh_ranks: list[Communicator], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the thread of heartbeats would end, and the rank lose its place."""
    reporter = Reporter(fresh_ranks[0], engine_of(fresh_ranks[0]), host="", link="")

    def fail(_: int) -> str:
        raise AttributeError("no logger")

    with monkeypatch.context() as patched:
        patched.setattr(fresh_ranks[0], "purpose_of", fail)
        on_all(fresh_ranks, lambda communicator: communicator.allreduce(np.ones(1000, np.float32)))
        assert reporter("digits", 7) is None
        on_all(fresh_ranks, lambda communicator: communicator.allreduce(np.ones(1000, np.float32)))
        assert reporter("digits", 7) is None
    assert reported(reporter).begun == 2
    said = capsys.readouterr().err
    assert said.count("the report for the controller could not be made: AttributeError: no logger") == 1


def calls_of(report: WorkerReport) -> list[tuple[int, ...]]:
    return list(struct.iter_unpack("<5q", base64.b64decode(report.calls)))


def test_a_report_has_each_collective_that_has_ended_once_with_its_name_and_times(
    fresh_ranks: list[Communicator],
) -> None:
    reporter = Reporter(fresh_ranks[0], engine_of(fresh_ranks[0]), host="", link="", clock=Clock())
    began = time.monotonic_ns()
    for size in (10, 3000, 10):
        on_all(fresh_ranks, partial(Communicator.allreduce, array=np.ones(size, np.float32)))
    report = reported(reporter)
    calls = calls_of(report)
    assert [call[0] for call in calls] == [0, 1, 2]
    names = [report.kinds[call[1]] for call in calls]
    assert ["float32[10]" in name for name in names] == [True, False, True]
    assert [call[2] for call in calls] == sorted(call[2] for call in calls)
    assert all(began <= call[2] < time.monotonic_ns() and call[3] > 0 for call in calls)
    assert sum(call[3] for call in calls) <= time.monotonic_ns() - began
    assert [call[4] for call in calls][1:] == [1, 1]
    assert calls_of(reported(reporter)) == []
    handles = [one.allreduce_async(np.ones(10, np.float32)) for one in fresh_ranks[1:]]
    mine = fresh_ranks[0].allreduce_async(np.ones(10, np.float32))
    for handle in (mine, *handles):
        handle.wait()
    assert [call[0] for call in calls_of(reported(reporter))] == [3]


def test_of_very_many_collectives_all_ranks_keep_the_same_ones(fresh_ranks: list[Communicator]) -> None:
    kept: list[set[int]] = []
    for number, rank in enumerate(fresh_ranks):
        clock = Clock()
        reported(reporter := Reporter(rank, engine_of(rank), host="", link="", clock=clock))
        state = engine_of(rank).state.core[0]["calls"]
        clock.now_s += 1.0
        begun = 128 << number  # as if so many were begun in that second
        reporter._calls(state, rank.purpose_of, begun, clock.now_s)
        assert state["sieve"] == (1 << number) - 1
    on_all(fresh_ranks, lambda one: [one.barrier() for _ in range(200)])
    for rank in fresh_ranks:
        rows, _, _ = ended_calls(engine_of(rank).state.core[0]["calls"], 0)
        kept.append({int(row[0]) for row in rows})
    assert kept[-1]
    for more, fewer in itertools.pairwise(kept):
        assert fewer <= more | {serial for serial in fewer if serial < min(more)}
    assert kept[-1] <= {serial for serial in range(200) if serial // 64 % (1 << (len(fresh_ranks) - 1)) == 0}


def test_what_a_collective_is_for_is_told_with_its_kind(fresh_ranks: list[Communicator]) -> None:
    """Of calls that are alike otherwise."""
    reported(reporter := Reporter(fresh_ranks[0], engine_of(fresh_ranks[0]), host="", link=""))

    def call(rank: Communicator) -> None:
        for bucket in range(3):
            first = rank.begun
            rank.allreduce(np.ones(10, np.float32))
            if bucket < 2:
                rank.note_purpose(f"bucket {bucket}", first)

    on_all(fresh_ranks, call)
    report = reported(reporter)
    kinds = [report.kinds[call[1]] for call in calls_of(report)]
    assert kinds == [f"allreduce (sum) of float32[10]{said}" for said in (", bucket 0", ", bucket 1", "")]
    assert fresh_ranks[0].purpose_of(10**6) == ""


def test_the_latest_operations_have_their_names() -> None:
    for size in range(1, 1100):
        Operation.of(np.zeros(size, np.float32)).make_record(256, 2)
    assert len(KNOWN) <= 1024
    assert any(one.size == 1099 for one in KNOWN.values())


def test_a_report_has_the_rows_of_sparse_sums(fresh_ranks: list[Communicator]) -> None:
    reporter = Reporter(fresh_ranks[0], engine_of(fresh_ranks[0]), host="h", link="shm:x")
    own = {id(one): np.arange(10 * rank, 10 * rank + 20) for rank, one in enumerate(fresh_ranks)}
    on_all(fresh_ranks, lambda one: one.allreduce_sparse(own[id(one)], np.ones(20, np.float32), 1000))
    report = reported(reporter)
    union = 20 + 10 * (len(fresh_ranks) - 1)
    assert (report.sparse_rows, report.sparse_union_rows, report.sparse_all_rows) == (20, union, 1000)

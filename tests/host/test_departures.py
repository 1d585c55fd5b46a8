"""A rank that leaves early, in order, is named by those that wait for it; one that has done its part is not missed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from switchsum.testing.cluster import ClusterConfig
from switchsum.testing.local import LocalMembership, communicators
from switchsum_host.api.communicator import Communicator
from switchsum_protocol.errors import CollectiveTimeout, WorkerLost

from .checks import failures, on_all

RANKS = 3
LEFT = 2
JOB = """
import sys
import numpy as np
import switchsum

with switchsum.connect() as comm:
    values = np.ones(100_000, np.float32)
    comm.allreduce(values)
    if comm.rank != {left}:
        try:
            comm.allreduce(values)
        except switchsum.WorkerLost as error:
            assert error.rank == {left}, error
            print(error, flush=True)
        else:
            sys.exit(3)
"""


def note(ranks: list[Communicator], left: frozenset[int], loads: int = 0) -> None:
    for one in ranks:
        membership = one.queue.membership
        assert isinstance(membership, LocalMembership)
        membership.left, membership.loads = left, loads


def add(communicator: Communicator) -> float:
    return float(communicator.allreduce(np.ones(5000, np.float32))[-1])


def test_who_waits_for_a_rank_that_has_left_hears_it_long_before_the_time_out() -> None:
    ranks = communicators(RANKS)  # whose time-out is longer than this test may take
    assert on_all(ranks, add) == [RANKS] * RANKS
    ranks[LEFT].close()
    note(ranks[:LEFT], frozenset({LEFT}))
    found = failures(ranks[:LEFT], add)
    assert [type(error) for error in found] == [WorkerLost] * LEFT
    assert [getattr(error, "rank", None) for error in found] == [LEFT] * LEFT
    assert f"rank {LEFT} has left the job without an error" in str(found[0])


def test_a_rank_that_has_done_its_part_is_not_missed() -> None:
    ranks = communicators(RANKS, loss=0.2, seed=3)
    for left in (LEFT, 1):
        values = [np.ones(5000, np.float32) for _ in ranks]
        under_way = [one.allreduce_async(array) for one, array in zip(ranks, values, strict=True)]
        under_way[left].wait()
        ranks[left].close()
        note(ranks[:left], frozenset({left}))
        for handle in under_way[:left]:
            handle.wait()
        assert {float(array[-1]) for array in values} == {len(ranks)}
        ranks = communicators(left, loss=0.2, seed=4)


def test_nothing_is_concluded_where_the_switch_was_restarted() -> None:
    config = ClusterConfig(workers=RANKS, lanes_per_frame=256, window_slots=16, timeout_s=4.0)
    ranks = communicators(RANKS, config=config)
    assert on_all(ranks, add) == [RANKS] * RANKS
    note(ranks[:LEFT], frozenset({LEFT}), loads=1)
    assert [type(error) for error in failures(ranks[:LEFT], add)] == [CollectiveTimeout] * LEFT


@pytest.mark.timeout(600)
def test_ranks_of_a_job_hear_it_from_controller_and_switch(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(JOB.format(left=LEFT))
    command = [sys.executable, "-m", "switchsum", "run", "-n", str(RANKS), "--", sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(f"rank {LEFT} has left the job without an error") == RANKS - 1

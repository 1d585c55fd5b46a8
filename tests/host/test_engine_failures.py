"""The worker's engine where ranks disagree, are late or never come, or where the switch is silent."""

from __future__ import annotations

import numpy as np
import pytest

from switchsum.testing.cluster import Cluster, ClusterConfig
from switchsum.testing.network import Impairment, LinkConditions
from switchsum.testing.tree import Tree
from switchsum_host.engine.engine import Failed
from switchsum_host.engine.operation import Operation
from switchsum_host.engine.state import Count
from switchsum_protocol.errors import CollectiveTimeout, NotAdmitted, OperationMismatch, SwitchLost, UsageError
from switchsum_protocol.frame import Reason
from switchsum_protocol.slot_rules import ReferenceSwitch

from .known import Known

RNG = np.random.default_rng(11)


def errors(cluster: Cluster, *, limit_s: float = 30.0) -> list[Exception | None]:
    """Run until every engine has given up."""
    done = {rank for rank, worker in enumerate(cluster.workers) if worker.error}
    while len(done) < len(cluster.workers) and cluster.clock.now_s < limit_s:
        at = min(cluster.network.next_at, *(worker.wake_at for worker in cluster.workers))
        cluster.clock.advance_to(at)
        cluster.network.deliver()
        for worker in cluster.workers:
            worker.run()
        done = {rank for rank, worker in enumerate(cluster.workers) if worker.error}
    return [worker.error for worker in cluster.workers]


@pytest.mark.parametrize(
    "other",
    [
        Operation(kind="barrier"),
        Operation.of(np.ones(100, np.int32)),
        Operation.of(np.ones(99, np.float32)),
        Operation.of(np.ones((10, 10), np.float32)),
        Operation.of(np.ones(100, np.float32), operator="average"),
    ],
    ids=str,
)
def test_different_operations_fail_on_every_rank(other: Operation) -> None:
    cluster = Cluster(ClusterConfig(workers=4))
    for rank in range(4):
        values = np.ones(100, np.float32)
        mine = Operation.of(values) if rank != 2 else other
        added = None if mine.dtype is None else np.ones(mine.size, mine.dtype)
        cluster.workers[rank].engine.submit(mine, added, cluster.clock.now_s)
    assert [type(error) for error in errors(cluster)] == [OperationMismatch] * 4
    with pytest.raises(UsageError, match="given up"):
        cluster.submit(0, np.ones(1, np.float32))


def test_operations_in_another_order_fail_on_every_rank() -> None:
    cluster = Cluster(ClusterConfig(workers=2))
    sizes = [(5, 9), (9, 5)]
    for rank in range(2):
        for size in sizes[rank]:
            cluster.submit(rank, np.ones(size, np.float32))
    assert [type(error) for error in errors(cluster)] == [OperationMismatch] * 2


def test_a_rank_that_never_comes_is_named_by_all() -> None:
    cluster = Cluster(ClusterConfig(workers=4, timeout_s=2.0))
    for rank in (0, 1, 3):
        cluster.submit(rank, np.ones(100, np.float32))
    with pytest.raises(CollectiveTimeout, match="rank 2"):
        cluster.run(lambda: False)
    assert 2.0 <= cluster.clock.now_s < 2.5
    found = [error for error in errors(cluster, limit_s=4.0) if error]
    assert len(found) == 3
    assert all(isinstance(error, CollectiveTimeout) and error.missing == (2,) for error in found)


def test_a_rank_that_never_comes_is_named_although_another_one_has_just_left() -> None:
    cluster = Cluster(ClusterConfig(workers=4, timeout_s=2.0))
    for rank in (0, 1, 3):
        cluster.submit(rank, np.ones(100, np.float32))
    with pytest.raises(TimeoutError):
        cluster.run(lambda: False, limit_s=1.99)
    engine = cluster.workers[0].engine
    assert [missing for *_, missing in engine.held_slots(earlier=False)] == [[2]] * len(engine.held_slots())
    engine.rank_left()  # the time-out comes before the next answer
    assert engine.held_slots(earlier=False) == []
    assert {rank for *_, missing in engine.held_slots() for rank in missing} == {2}
    engine.poll(2.1)
    (failed,) = (event for event in engine.events() if isinstance(event, Failed))
    assert isinstance(failed.error, CollectiveTimeout)
    assert failed.error.missing == (2,)


def test_an_operation_whose_rounds_come_may_take_longer_than_the_timeout() -> None:
    slow = Impairment(delay_s=0.4)
    cluster = Cluster(ClusterConfig(workers=2, timeout_s=2.0, window_slots=1), links=LinkConditions(up=slow, down=slow))
    arrays = [np.ones(4 * 8, np.float32) for _ in range(2)]
    cluster.allreduce(arrays)
    assert cluster.clock.now_s > 3.0
    assert (arrays[0] == 2).all()


def test_waiting_for_a_late_rank_costs_few_frames() -> None:
    cluster = Cluster(ClusterConfig(workers=3, window_slots=64))
    arrays = [RNG.standard_normal(64 * 8 * 4).astype(np.float32) for _ in range(3)]
    for rank in range(2):
        cluster.submit(rank, arrays[rank])
    with pytest.raises(TimeoutError):
        cluster.run(lambda: False, limit_s=1.0)
    counts = cluster.workers[0].engine.counts
    assert 10 <= counts[Count.PROBES] <= 40  # two in each time-out, 64 slots notwithstanding
    assert counts[Count.HELD] == counts[Count.PROBES]
    cluster.submit(2, arrays[2])
    began = cluster.clock.now_s
    cluster.run(lambda: all(worker.finished for worker in cluster.workers))
    assert cluster.clock.now_s - began < 2e-3  # nobody waits for a timer now


def test_a_late_rank_is_no_queue() -> None:
    """Rounds that waited for it look like none, and do not make the window smaller."""
    cluster = Cluster(ClusterConfig(workers=2, window_slots=64, first_window=64))
    known = Known(cluster.workers[0].engine)
    values = np.ones(64 * cluster.config.lanes_per_frame, np.int32)  # each round has lanes
    cluster.allreduce([values.copy() for _ in range(2)])
    for _ in range(5):
        limit = known["limit"]
        cluster.submit(0, values.copy())
        with pytest.raises(TimeoutError):
            cluster.run(lambda: False, limit_s=0.1)
        cluster.submit(1, values.copy())
        cluster.run(lambda: not any(worker.engine.under_way for worker in cluster.workers))
        assert known["limit"] >= limit
        assert known["in_order_s"] < 0.01


class Silent:
    """A switch that is gone."""

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        return []


def test_a_switch_that_never_answers_is_lost() -> None:
    cluster = Cluster(ClusterConfig(workers=2, timeout_s=2.0), switch=Silent())
    for rank in range(2):
        cluster.submit(rank, np.ones(100, np.float32))
    assert [type(error) for error in errors(cluster)] == [SwitchLost] * 2
    assert cluster.clock.now_s < 2.5


def test_a_switch_is_given_up_sooner_than_a_late_rank() -> None:
    cluster = Cluster(ClusterConfig(workers=2, timeout_s=100.0, switch_timeout_s=2.0), switch=Silent())
    for rank in range(2):
        cluster.submit(rank, np.ones(100, np.float32))
    assert [type(error) for error in errors(cluster)] == [SwitchLost] * 2
    assert cluster.clock.now_s < 2.5
    cluster = Cluster(ClusterConfig(workers=2, timeout_s=20.0, switch_timeout_s=2.0))
    cluster.submit(0, np.ones(100, np.float32))
    assert type(errors(cluster)[0]) is CollectiveTimeout
    assert cluster.clock.now_s > 19


def test_a_switch_that_refuses_is_reported() -> None:
    switch = ReferenceSwitch(lanes_per_frame=8)
    cluster = Cluster(ClusterConfig(workers=2, epoch=1), switch=switch)
    switch.members.clear()
    cluster.submit(0, np.ones(100, np.float32))
    with pytest.raises(NotAdmitted, match="not admitted"):
        cluster.run(lambda: False)
    assert switch.events[Reason.NOT_ADMITTED] > 0


@pytest.mark.parametrize(
    ("absent", "said", "ranks"),
    [(2, "the switch waits for rank 2 (", (2,)), (0, "the switch waits for ranks at other switches", ())],
)
def test_over_a_tree_ranks_at_the_own_switch_are_named_and_others_are_not_guessed(
    absent: int, said: str, ranks: tuple[int, ...]
) -> None:
    config = ClusterConfig(workers=4, timeout_s=2.0, at_leaf=2)
    cluster = Cluster(config, switch=Tree(config, leaves=2))
    for rank in {0, 1, 2, 3} - {absent}:
        cluster.submit(rank, np.ones(100, np.float32))
    with pytest.raises(CollectiveTimeout):
        cluster.run(lambda: False)
    found = errors(cluster, limit_s=4.0)[3]
    assert isinstance(found, CollectiveTimeout)
    assert said in str(found)
    assert found.missing == ranks

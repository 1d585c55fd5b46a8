"""Jobs that share slots, on terrible networks: sums are exact, whoever takes a slot from whom, and nobody hangs."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import pytest

from switchsum.testing.clock import VirtualClock
from switchsum.testing.cluster import Cluster, ClusterConfig, run_together
from switchsum.testing.network import Impairment, LinkConditions
from switchsum.testing.sharing import Sharing
from switchsum_host.engine.state import Count
from switchsum_protocol.frame import Header, Operator
from switchsum_protocol.shared_rules import Owner, SharedSwitch
from switchsum_protocol.slot_rules import COMBINATIONS

LANES = 8
WORKERS = 3
TERRIBLE = Impairment(loss=0.05, duplication=0.05, reordering=0.05, jitter_s=1e-4)


class Jobs:
    """Jobs on one switch, all of whose slots are the same few ones."""

    def __init__(
        self,
        *,
        jobs: int = 2,
        slots: int = 4,
        own: int = 0,
        seed: int = 0,
        terrible: bool = True,
        limit_s: float = 60.0,
    ) -> None:
        self.clock = VirtualClock()
        chance = 0.05 if terrible else 0.0
        self.sharing = Sharing(self.clock, lanes_per_frame=LANES, loss=chance, duplication=chance, seed=seed)
        way = TERRIBLE if terrible else Impairment()
        self.clusters = []
        for job in range(jobs):
            config = ClusterConfig(
                workers=WORKERS, lanes_per_frame=LANES, window_slots=slots + own, job=7 + job, shares_slots=True,
                own_slots=own, own_first_slot=40 + own * job,
            )  # fmt: skip
            side = self.sharing.join(config)
            links = LinkConditions(up=way, down=way)
            self.clusters.append(Cluster(config, links=links, seed=seed + job, switch=side, clock=self.clock))
        self.random = np.random.default_rng(seed)
        self.limit_s = limit_s

    def begin(self, job: int, dtype: Any = np.int32, operator: str = "sum", size: int = 100) -> list[tuple[int, Any]]:
        """Begin an allreduce of all ranks of a job; return serial number and array of each."""
        random = self.random
        if dtype is np.float32:
            arrays = [random.standard_normal(size).astype(dtype) for _ in range(WORKERS)]
        else:
            arrays = [random.integers(-1000, 1000, size, dtype) for _ in range(WORKERS)]
        for array in arrays:
            array[: size // 2] *= random.integers(2)
        cluster = self.clusters[job]
        self.expected = arrays
        kept = [array.copy() for array in arrays]
        begun = [(cluster.submit(rank, array, operator), array) for rank, array in enumerate(arrays)]
        return [(serial, (array, kept)) for serial, array in begun]

    def finish(self, begun: dict[int, list[tuple[int, Any]]]) -> None:
        """Let jobs run until what they have begun is done."""

        def is_done() -> bool:
            return all(
                serial in worker.finished
                for job, each in begun.items()
                for (serial, _), worker in zip(each, self.clusters[job].workers, strict=True)
            )

        run_together(self.clusters, is_done, limit_s=self.limit_s)

    def count(self, job: int, count: Count) -> int:
        return sum(int(worker.engine.counts[count]) for worker in self.clusters[job].workers)


def check(begun: list[tuple[int, Any]], operator: str = "sum") -> None:
    """See that all ranks have the exact result."""
    kept = begun[0][1][1]
    results = [array for _, (array, _) in begun]
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])
    if kept[0].dtype == np.float32:
        np.testing.assert_allclose(results[0], sum(one.astype(np.float64) for one in kept), atol=1e-5)
    else:
        np.testing.assert_array_equal(results[0], reduce(COMBINATIONS[Operator[operator.upper()]], kept))


KINDS: list[tuple[Any, str]] = [(np.float32, "sum"), *((np.int32, one.name.lower()) for one in Operator)]


@pytest.mark.parametrize(("dtype", "operator"), KINDS)
def test_two_jobs_in_the_same_slots_add_exactly(dtype: Any, operator: str) -> None:
    jobs = Jobs(seed=3)
    for _ in range(3):
        begun = {job: jobs.begin(job, dtype, operator) for job in range(2)}
        jobs.finish(begun)
        for each in begun.values():
            check(each, operator)
    assert sum(jobs.count(job, Count.TAKEN) for job in range(2)) > 0


@pytest.mark.parametrize(("dtype", "operator"), KINDS)
def test_jobs_with_slots_of_their_own_share_the_others_and_add_exactly(dtype: Any, operator: str) -> None:
    jobs = Jobs(seed=5, own=2)
    for size in (200, 2 * LANES, 200):
        begun = {job: jobs.begin(job, dtype, operator, size) for job in range(2)}
        jobs.finish(begun)
        for each in begun.values():
            check(each, operator)
    assert sum(jobs.count(job, Count.TAKEN) for job in range(2)) > 0


def test_what_fits_into_slots_of_a_jobs_own_waits_for_nobody_and_needs_no_fallback() -> None:
    jobs = Jobs(own=2, terrible=False)
    long = jobs.begin(0, size=100 * LANES)
    run_together(jobs.clusters, lambda: len(jobs.sharing.here.owners) == 4)
    jobs.clusters[0].workers.clear()  # they keep all shared slots
    jobs.sharing.is_there = False
    for _ in range(5):
        begun = {1: jobs.begin(1, size=2 * LANES)}
        jobs.finish(begun)
        check(begun[1])
    assert len(long) == WORKERS
    assert jobs.count(1, Count.TAKEN) == 0
    assert jobs.count(1, Count.ROUNDS) == 5 * 2 * WORKERS, "integers need no round that claims the slot"


def test_a_slot_is_named_by_the_number_that_the_switch_has_for_it() -> None:
    jobs = Jobs(jobs=1, own=2, terrible=False)
    cluster = jobs.clusters[0]
    for rank in range(WORKERS - 1):
        cluster.submit(rank, np.ones(20 * LANES, np.int32))
    run_together(jobs.clusters, lambda: jobs.clock.now_s > 1.0)
    held = {slot for slot, _, _ in cluster.workers[0].engine.held_slots()}
    assert held == {40, 41, *range(5, 9)}


@pytest.mark.parametrize("seed", range(6))
def test_sums_are_exact_while_slots_are_stolen(seed: int) -> None:
    jobs = Jobs(seed=seed, jobs=3, slots=2)
    process = jobs.sharing.process

    def steal(port: int, frame: bytes) -> Any:
        if jobs.random.random() < 0.1:
            jobs.sharing.steal()
        return process(port, frame)

    jobs.sharing.process = steal  # type: ignore[method-assign]
    for _ in range(3):
        begun = {job: jobs.begin(job, size=200) for job in range(3)}
        jobs.finish(begun)
        for each in begun.values():
            check(each)
    assert all(jobs.count(job, Count.TAKEN) for job in range(3))


def test_who_finds_the_slots_free_is_added_in_them() -> None:
    jobs = Jobs(jobs=1, terrible=False)
    begun = jobs.begin(0, size=400)
    jobs.finish({0: begun})
    check(begun)
    assert jobs.count(0, Count.TAKEN) == 0
    assert jobs.sharing.there.events.total() < jobs.sharing.here.events.total() / 2


def test_a_slot_that_becomes_free_is_taken_in_the_midst_of_an_operation() -> None:
    jobs = Jobs(terrible=False)
    short = jobs.begin(0, size=8 * LANES)
    run_together(jobs.clusters, lambda: len(jobs.sharing.here.owners) == 4)
    long = jobs.begin(1, size=100 * LANES)
    jobs.finish({0: short, 1: long})
    rounds, taken = jobs.count(1, Count.ROUNDS), jobs.count(1, Count.TAKEN)
    assert 0 < taken < rounds / 2
    check(short)
    check(long)


def test_few_contributions_are_on_the_way_to_the_fallback_and_the_others_follow_in_turn() -> None:
    jobs = Jobs(slots=16, terrible=False)
    jobs.begin(0, size=400 * LANES)
    run_together(jobs.clusters, lambda: len(jobs.sharing.here.owners) == 16)
    jobs.clusters[0].workers.clear()  # they keep all slots
    begun = jobs.begin(1, size=400 * LANES)
    engines = [worker.engine for worker in jobs.clusters[1].workers]
    most = 0

    def is_done() -> bool:
        nonlocal most
        most = max(most, *(int(engine.state.paths["in_flight"][1]) for engine in engines))
        pairs = zip(begun, jobs.clusters[1].workers, strict=True)
        return all(serial in worker.finished for (serial, _), worker in pairs)

    run_together(jobs.clusters, is_done)
    check(begun)
    assert most == 4
    assert jobs.count(1, Count.TAKEN) > 1200
    assert jobs.count(1, Count.PROBES) + jobs.count(1, Count.OVERTAKEN) == 0


@pytest.mark.parametrize("which", ["here", "there"])
def test_a_switch_that_is_cleared_costs_no_sum(which: str) -> None:
    jobs = Jobs(seed=1)
    begun = {job: jobs.begin(job, size=400) for job in range(2)}
    run_together(jobs.clusters, lambda: jobs.clock.now_s > 2e-3)
    getattr(jobs.sharing, which).clear()
    for cluster in jobs.clusters:
        for worker in cluster.workers:
            worker.engine.restarted(jobs.clock.now_s)
    jobs.finish(begun)
    for each in begun.values():
        check(each)


def test_a_job_that_is_killed_keeps_its_slots_for_a_while_and_others_go_on() -> None:
    jobs = Jobs(seed=2, terrible=False)
    jobs.begin(0, size=400)
    run_together(jobs.clusters, lambda: jobs.clock.now_s > 5e-4)
    jobs.clusters[0].workers.clear()
    begun = jobs.begin(1, size=400)
    jobs.finish({1: begun})
    check(begun)
    assert jobs.count(1, Count.TAKEN) > 0
    jobs.clock.advance_to(jobs.clock.now_s + 20.0)
    before = jobs.count(1, Count.TAKEN)
    begun = jobs.begin(1, size=400)
    jobs.finish({1: begun})
    check(begun)
    assert jobs.count(1, Count.TAKEN) == before


def test_a_job_waits_while_its_fallback_is_away_and_then_goes_on() -> None:
    jobs = Jobs(seed=4, terrible=False)
    jobs.sharing.is_there = False
    begun = jobs.begin(0)
    with pytest.raises(TimeoutError):
        run_together(jobs.clusters, lambda: False, limit_s=1.0)
    jobs.sharing.is_there = True
    jobs.finish({0: begun})
    check(begun)


@pytest.mark.parametrize("seed", range(5))
def test_who_has_the_last_result_may_leave_at_once(seed: int) -> None:
    """The others get it, though it was lost and another job has the slot."""
    jobs = Jobs(seed=seed, slots=1)
    first = jobs.begin(0, size=LANES)
    ranks = jobs.clusters[0].workers
    run_together(
        jobs.clusters, lambda: any(serial in one.finished for (serial, _), one in zip(first, ranks, strict=True))
    )
    staying = [(one, first[rank]) for rank, one in enumerate(ranks) if first[rank][0] not in one.finished]
    jobs.clusters[0].workers[:] = [one for one, _ in staying]
    second = jobs.begin(1, size=LANES)
    waited_for = [*staying, *zip(jobs.clusters[1].workers, second, strict=True)]
    run_together(jobs.clusters, lambda: all(serial in one.finished for one, (serial, _) in waited_for), limit_s=30.0)
    check(first)
    check(second)


class NotEmptied(SharedSwitch):
    """Leaves in a slot that is taken what was there."""

    def empty(self, slot: int) -> None:
        pass


class Everybodys(SharedSwitch):
    """Adds whoever's contribution in a slot that somebody owns."""

    def is_added_here(self, owner: Owner | None, header: Header) -> bool:
        return owner is not None


@pytest.mark.parametrize("broken", [NotEmptied, Everybodys])
def test_a_rule_that_is_left_out_is_noticed(broken: type[SharedSwitch]) -> None:
    noticed = 0
    for seed in range(6):
        jobs = Jobs(seed=seed, slots=1, limit_s=20.0)
        jobs.sharing.here.__class__ = broken
        try:
            for _ in range(3):
                begun = {job: jobs.begin(job) for job in range(2)}
                jobs.finish(begun)
                for each in begun.values():
                    check(each)
        except Exception:  # a wrong sum, a mismatch, a time-out
            noticed += 1
    assert noticed

"""A switch that is restarted while allreduces run, and has forgotten every round."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchsum.testing.cluster import Cluster, ClusterConfig
from switchsum.testing.network import Impairment, LinkConditions
from switchsum_host.engine.state import Count
from switchsum_protocol.slot_rules import ReferenceSwitch

from .checks import check_sums

Array = npt.NDArray[Any]
BLOCKS = 60
LANES = 8


class Mortal(ReferenceSwitch):
    """A switch that dies before some of its frames, and is back with its entries after some more."""

    def __init__(self, deaths: set[int], away_frames: int = 0) -> None:
        super().__init__(lanes_per_frame=LANES)
        self._deaths = deaths
        self._away_frames = away_frames
        self._away = 0
        self._frames = 0
        self.restarts = 0

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        if self._away:
            self._away -= 1
            return []
        self._frames += 1
        if self._frames in self._deaths:
            self.clear()
            self.restarts += 1
            self._away = self._away_frames
        return super().process(port, frame)


class Run:
    """Allreduces one after the other: each rank begins the next when it has the last result, whoever lacks it still."""

    def __init__(self, cluster: Cluster, switch: Mortal, inputs: list[list[Array]], notice_s: float) -> None:
        self._cluster = cluster
        self._switch = switch
        self._inputs = inputs
        self._outputs = [[array.copy() for array in arrays] for arrays in inputs]
        self._begun = [0] * len(cluster.workers)
        self._notice_s = notice_s
        self._told = [0] * len(cluster.workers)
        self._seen, self._since = 0, 0.0

    def go(self) -> None:
        """Run all of them, and check them."""
        self._cluster.run(self._advance)
        for arrays, results in zip(self._inputs, self._outputs, strict=True):
            check_sums(arrays, results, LANES)

    def _advance(self) -> bool:
        """Do what is due; return whether all is done."""
        now = self._cluster.clock.now_s
        if self._switch.restarts != self._seen:
            self._seen, self._since = self._switch.restarts, now
        for rank, worker in enumerate(self._cluster.workers):
            # Heartbeats bring the news to one worker after the other.
            if self._told[rank] != self._seen and now >= self._since + self._notice_s * (1 + rank):
                self._told[rank] = self._seen
                worker.engine.restarted(now)
                worker.run()
            if len(worker.finished) == self._begun[rank] < len(self._inputs):
                self._cluster.submit(rank, self._outputs[self._begun[rank]][rank])
                self._begun[rank] += 1
                worker.run()
        return all(len(worker.finished) == len(self._inputs) for worker in self._cluster.workers)


def draw(random: np.random.Generator, workers: int, operations: int) -> list[list[Array]]:
    drawn = []
    for _ in range(operations):
        size = int(random.integers(1, BLOCKS * LANES))
        kind = np.int32 if random.random() < 0.5 else np.float32
        arrays = [(random.standard_normal(size) * 1e4).astype(kind) for _ in range(workers)]
        for array in arrays:
            array[random.random(size // LANES + 1)[np.arange(size) // LANES] < 0.5] = 0
        drawn.append(arrays)
    return drawn


def run_through(
    deaths: set[int],
    *,
    seed: int = 0,
    loss: float = 0.0,
    away_frames: int = 0,
    window: int = 8,
    workers: int = 3,
    notice_s: float = 0.05,
    late_s: float = 1e-3,
) -> Cluster:
    """Run allreduces over a mortal switch, and check them."""
    switch = Mortal(deaths, away_frames)
    bad = Impairment(loss=loss, reordering=loss, duplication=loss, reordering_s=late_s)
    config = ClusterConfig(workers=workers, window_slots=window, lanes_per_frame=LANES, timeout_s=50.0, reading_s=1e-5)
    cluster = Cluster(config, links=LinkConditions(up=bad, down=bad), switch=switch, seed=seed)
    for rank in range(workers):
        switch.admit(config.member(rank))
    Run(cluster, switch, draw(np.random.default_rng(seed), workers, 6), notice_s).go()
    return cluster


@pytest.mark.parametrize("window", [1, 8])
def test_a_restart_before_any_frame(window: int) -> None:
    for death in range(1, 200, 9):
        run_through({death}, window=window)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32 - 1),
    deaths=st.sets(st.integers(1, 900), min_size=1, max_size=8),
    away_frames=st.sampled_from([0, 3, 40]),
    loss=st.sampled_from([0.0, 0.02, 0.1]),
    window=st.sampled_from([1, 3, 16]),
    workers=st.integers(2, 5),
    notice_s=st.sampled_from([1e-4, 0.02, 0.3]),
    late_s=st.sampled_from([1e-3, 0.5]),
)
def test_sums_are_right_whenever_the_switch_is_restarted(
    seed: int,
    deaths: set[int],
    away_frames: int,
    loss: float,
    window: int,
    workers: int,
    notice_s: float,
    late_s: float,
) -> None:
    run_through(
        deaths,
        seed=seed,
        loss=loss,
        away_frames=away_frames,
        window=window,
        workers=workers,
        notice_s=notice_s,
        late_s=late_s,
    )


def test_a_rank_that_is_through_still_helps_one_that_is_not() -> None:
    """The last result reaches all ranks but one, and the switch is restarted before that one can ask for it again."""
    switch = Mortal(set())
    cluster = Cluster(ClusterConfig(workers=3, lanes_per_frame=LANES, timeout_s=50.0), switch=switch)
    for rank in range(3):
        switch.admit(cluster.config.member(rank))
    arrays = [np.full(LANES, rank + 1, np.int32) for rank in range(3)]
    for rank in range(3):
        cluster.submit(rank, arrays[rank])
    cluster.network.connect(3, LinkConditions(down=Impairment(loss=1.0)), cluster.workers[2].take)
    cluster.run(lambda: all(worker.finished for worker in cluster.workers[:2]))
    switch.clear()
    cluster.network.connect(3, LinkConditions(), cluster.workers[2].take)
    with pytest.raises(TimeoutError):
        cluster.run(lambda: bool(cluster.workers[2].finished), limit_s=2.0)
    for worker in cluster.workers[:2]:
        worker.engine.restarted(cluster.clock.now_s)
        assert worker.engine.awaits_switch
    cluster.run(lambda: bool(cluster.workers[2].finished), limit_s=2.0)
    assert (arrays[2] == 6).all()
    cluster.run(lambda: not any(worker.engine.awaits_switch for worker in cluster.workers), limit_s=2.0)
    # What is owed is repeated once it is answered, too, but each time after a pause that is twice as long.
    sent = cluster.network.sent
    for _ in range(2):
        with pytest.raises(TimeoutError):
            cluster.run(lambda: False, limit_s=1000.0)
        assert sent < cluster.network.sent < sent + 200
    # It is paid when the next round begins: whoever does so has the last result.
    for rank in range(3):
        cluster.submit(rank, arrays[rank])
    cluster.run(lambda: all(len(worker.finished) == 2 for worker in cluster.workers), limit_s=2.0)
    sent = cluster.network.sent
    with pytest.raises(TimeoutError):
        cluster.run(lambda: False, limit_s=1000.0)
    assert cluster.network.sent == sent


class Stranded:
    """Two workers of whom rank 1 has lost the last result, and whatever the switch has ever sent to rank 0."""

    def __init__(self, *, takes: bool) -> None:
        """Let rank 0 take that result, or keep it on the way."""
        self.cluster = Cluster(ClusterConfig(workers=2, lanes_per_frame=LANES, timeout_s=1e6))
        self.array = np.full(LANES, 2, np.int32)
        self.copies: list[bytes] = []
        first, second = self.cluster.workers

        def take(frame: bytes) -> None:
            self.copies.append(frame)
            if takes:
                first.take(frame)

        self.cluster.network.connect(first.port, LinkConditions(), take)
        self.cluster.network.connect(second.port, LinkConditions(down=Impairment(loss=1.0)), second.take)
        self.cluster.submit(0, np.full(LANES, 1, np.int32))
        self.cluster.submit(1, self.array)
        self.cluster.run(lambda: bool(self.copies if not takes else first.finished))

    def restart(self) -> None:
        """Restart the switch, tell both workers, and lose nothing from now on."""
        for worker in self.cluster.workers:
            self.cluster.network.connect(worker.port, LinkConditions(), worker.take)
        switch = self.cluster.network.switch
        assert isinstance(switch, ReferenceSwitch)
        switch.clear()
        for worker in self.cluster.workers:
            worker.engine.restarted(self.cluster.clock.now_s)

    def cut_first_off(self, loss: float = 1.0) -> None:
        """Lose what rank 0 sends."""
        first = self.cluster.workers[0]
        self.cluster.network.connect(first.port, LinkConditions(up=Impairment(loss=loss)), first.take)

    def await_the_last(self) -> None:
        """Wait until rank 1 has its sum."""
        self.cluster.run(lambda: bool(self.cluster.workers[1].finished), limit_s=30.0)
        assert (self.array == 3).all()


def test_an_old_copy_of_the_last_result_does_not_pay_what_a_restarted_switch_is_owed() -> None:
    run = Stranded(takes=True)
    run.restart()
    for copy in run.copies:
        run.cluster.workers[0].take(copy)
    run.await_the_last()


def test_an_old_copy_that_comes_again_and_again_keeps_nobody_waiting() -> None:
    run = Stranded(takes=True)
    run.restart()
    run.cut_first_off()
    for _ in range(10):
        run.cluster.workers[0].take(run.copies[-1])
        with pytest.raises(TimeoutError):
            run.cluster.run(lambda: False, limit_s=0.3)
    run.cut_first_off(loss=0.0)
    run.await_the_last()


def test_who_gets_an_old_result_after_a_restart_still_owes_that_round() -> None:
    """Rank 0 waited when it was told, and then took a result of which the restarted switch knows nothing."""
    run = Stranded(takes=False)
    run.restart()
    run.cut_first_off()
    run.cluster.workers[0].run()
    run.cut_first_off(loss=0.0)
    run.cluster.workers[0].take(run.copies[0])
    run.cluster.workers[0].run()
    assert run.cluster.workers[0].finished
    run.await_the_last()


def test_without_a_restart_nothing_is_recalled() -> None:
    cluster = run_through(set(), loss=0.001)
    assert all(worker.engine.counts[Count.RECALLED] == 0 for worker in cluster.workers)


def test_rows_that_moved_are_sent_from_where_they_are() -> None:
    cluster = Cluster(ClusterConfig(workers=2, lanes_per_frame=LANES, reading_s=1e3))
    arrays = [np.arange(LANES * 40, dtype=np.int32) for _ in range(2)]
    for rank in range(2):
        cluster.submit(rank, arrays[rank])
    # Nobody lets go of any row, so the third round of every slot is blocked.
    with pytest.raises(TimeoutError):
        cluster.run(lambda: False, limit_s=0.5)
    assert all(worker.engine.state.core[0]["progress"]["blocked"] > 0 for worker in cluster.workers)
    for worker in cluster.workers:
        worker.relink()
    cluster.run(lambda: all(worker.finished for worker in cluster.workers))
    assert (arrays[0] == 2 * np.arange(LANES * 40)).all()

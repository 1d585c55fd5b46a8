"""What goes wrong with hosts, switches and links for a time, to the picosecond: pauses, clocks, batches, own queues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from switchsum.topologies import Cable
from switchsum.topologies import Network as Planned
from switchsum_lab.simulation import jobs
from switchsum_lab.simulation.conditions import CableConditions, HostTiming
from switchsum_lab.simulation.network import Network
from switchsum_lab.simulation.placement import place
from switchsum_protocol.errors import UsageError

from .rig import QUICK, frame, numbers, pair

LINK = CableConditions(rate_bps=1e8, delay_s=1e-5, overhead_bytes=0)
HOSTS = ("h0", "h1", "h2")
BITS = 8 * (90 + 1024)


def star(mbit: float = 100.0, **cable: float) -> Planned:
    cables = [Cable(ends=(host, "s1"), mbit=mbit) for host in HOSTS[:-1]]
    cables.append(Cable(ends=(HOSTS[-1], "s1"), mbit=mbit, **cable))
    return Planned(switches=("s1",), hosts=HOSTS, cables=tuple(cables))


def job_of(
    link: CableConditions = LINK, timings: Mapping[str, HostTiming] | None = None, planned: Planned | None = None
) -> tuple[Network, jobs.Job]:
    planned = planned or star()
    network = jobs.build(planned, link, lanes=256, seed=3)
    return network, jobs.Job(network, planned, HOSTS, link, lanes=256, window_slots=32, timings=timings or {})


def arrays(blocks: int) -> list[npt.NDArray[np.int32]]:
    return [np.full(256 * blocks, rank + 1, np.int32) for rank in range(len(HOSTS))]


def seconds(job: jobs.Job, blocks: int = 500) -> float:
    own = arrays(blocks)
    ended = job.allreduce(own, until_s=60.0)
    assert ended.is_complete
    assert all((array == 6).all() for array in own)
    return ended.seconds


USUAL_S = 500 * BITS / 1e8


@pytest.mark.parametrize("node", ["h1", "s1"])
def test_a_node_that_stands_still_takes_nothing_and_loses_nothing(node: str) -> None:
    network, job = job_of()
    network.pause(node, (0.02, 1.02))
    took = seconds(job)
    in_flight_s = 64 * BITS / 1e8  # frames on their way when it stops go on, and those repeated meanwhile wait, too
    assert USUAL_S + 1.0 - in_flight_s < took < USUAL_S + 1.1
    assert all(link.lost == link.dropped == 0 for link in network.links.values())


def test_a_pause_that_comes_after_the_end_changes_nothing() -> None:
    plain, job = job_of()
    seconds(job)
    network, paused = job_of()
    network.pause("h1", (50.0, 51.0))
    seconds(paused)
    assert network.now == plain.now


def test_a_node_that_is_none_and_a_pause_that_ends_before_it_begins_are_refused() -> None:
    network, _ = job_of()
    with pytest.raises(UsageError, match="no node h9"):
        network.pause("h9", (0.0, 1.0))
    with pytest.raises(UsageError, match="ends before it begins"):
        network.pause("h1", (1.0, 1.0))


def test_a_link_is_down_between_two_times_and_up_afterwards() -> None:
    network, job = job_of()
    network.links["h0->s1"].interrupt((0.02, 0.3))
    took = seconds(job)
    assert network.links["h0->s1"].lost > 0
    assert 0.3 < took < 0.3 + USUAL_S + 0.3
    with pytest.raises(UsageError, match="already has outages"):
        network.links["h0->s1"].interrupt((1.0, 2.0))


def test_receivers_that_work_in_batches_make_each_round_trip_longer() -> None:
    timings = dict.fromkeys(HOSTS, HostTiming(batch_s=10e-3))
    plain, batched = seconds(job_of()[1], 320), seconds(job_of(timings=timings)[1], 320)
    assert plain + 9 * 5e-3 < batched < plain + 10 * 15e-3  # ten rounds of the window


def test_a_clock_that_jumps_repeats_what_has_not_been_answered() -> None:
    _, usual = job_of()
    seconds(usual)
    network, job = job_of(timings={"h0": HostTiming(jumps=((0.02, 5.0),))})
    assert seconds(job) < USUAL_S + 0.05
    assert job.workers[0].repeats > usual.workers[0].repeats
    assert all(worker.repeats == 0 for worker in usual.workers)
    assert network.now > 0.02


def test_hosts_drop_what_their_own_queue_does_not_hold_and_the_sum_ends() -> None:
    network, job = job_of(replace(LINK, host_queue_frames=8))
    seconds(job)
    assert all(network.links[f"{host}->s1"].dropped > 0 for host in HOSTS)
    assert all(network.links[f"{host}->s1"].most_queued == 8 for host in HOSTS)
    assert all(network.links[f"s1->{host}"].dropped == 0 for host in HOSTS)


def test_an_engine_is_told_of_each_frame_that_its_host_has_sent_or_dropped() -> None:
    network, job = job_of(replace(LINK, host_queue_frames=8))
    seconds(job)
    network.run(network.now + 1.0)
    for host, worker in zip(HOSTS, job.workers, strict=True):
        link = network.links[f"{host}->s1"]
        sending = worker.engine.state.core[0]["sending"]
        assert sending["sequence"] == link.frames + link.dropped
        record = network.world.links[link.number]
        assert record["settled"] == link.dropped


def test_a_cable_may_have_a_delay_of_its_own() -> None:
    near, far = (seconds(job_of(planned=star(**own))[1], 1) for own in ({}, {"delay_ms": 30.0}))
    assert far - near == pytest.approx(2 * (0.03 - 1e-5), rel=1e-3)


def test_a_rate_changes_for_the_frames_that_begin_afterwards() -> None:
    network, first, second = pair(replace(QUICK, steps=((2.5e-6, 0.1), (22.5e-6, 2.0))))
    for number in range(5):
        first.send(frame(number), at=0.0)
    network.run()
    gaps = np.diff([at_s for at_s, _ in second.received])
    assert np.round(gaps * 1e6, 3).tolist() == [1.0, 10.0, 10.0, 0.5]


def test_frames_that_arrive_twice_are_the_same_and_later() -> None:
    network, first, second = pair(replace(QUICK, twice=0.5, late_by_s=1e-4), seed=2)
    for number in range(200):
        first.send(frame(number), at=number * 1e-5)
    network.run()
    counts = np.bincount(numbers(second), minlength=200)
    assert set(counts.tolist()) == {1, 2}
    assert 70 < (counts == 2).sum() < 130
    assert all(data == frame(int.from_bytes(data[-4:])) for _, data in second.received)


def test_sums_are_right_where_most_frames_arrive_twice() -> None:
    _, job = job_of(replace(LINK, twice=0.9, late=0.2, late_by_s=2e-3))
    seconds(job)


@pytest.mark.parametrize(
    "facts",
    [
        {"twice": 1.5},
        {"steps": ((-1.0, 1.0),)},
        {"steps": ((1.0, 0.0),)},
        {"host_queue_frames": 0},
        {"host_queue_bytes": 0},
        {"outages": ((2.0, 1.0),)},
    ],
)
def test_links_that_are_none_are_refused(facts: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        CableConditions(**facts)  # type: ignore[arg-type]


@pytest.mark.parametrize("facts", [{"batch_s": -1.0}, {"jumps": ((-1.0, 1.0),)}])
def test_hosts_that_are_none_are_refused(facts: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        HostTiming(**facts)  # type: ignore[arg-type]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("leaves", "ranks", "blocks", "loss", "pauses", "most_s"),
    [(1, 5, 51, 0.01, (0.003, 0.01), 11.0), (2, 6, 12, 0.02, (0.01, 0.02), 24.0)],
    ids=["single switch", "tree"],
)
def test_time_outs_do_not_follow_one_another_where_ranks_are_late(
    leaves: int, ranks: int, blocks: int, loss: float, pauses: tuple[float, float], most_s: float
) -> None:
    # Processes that share cores stand still now and then, and frames are lost: a sum waits for the last rank each time.
    hosts = [f"h{rank}" for rank in range(ranks)]
    names = [f"l{leaf}" for leaf in range(leaves)]
    cables = [Cable(ends=(host, names[rank % leaves]), mbit=1e4) for rank, host in enumerate(hosts)]
    if leaves > 1:
        cables += [Cable(ends=(name, "root"), mbit=1e4) for name in names]
        names.append("root")
    planned = Planned(switches=tuple(names), hosts=tuple(hosts), cables=tuple(cables))
    link = CableConditions(rate_bps=1e10, delay_s=5e-6, loss=loss)
    network = jobs.build(planned, link, lanes=256, seed=0)
    job = jobs.Job(network, planned, hosts, link, lanes=256, window_slots=128, first_window=128, loss_cut=0.0)
    random = np.random.default_rng(0)
    for host in hosts:
        spans = random.exponential(np.tile(pauses, (int(2 * most_s / sum(pauses)), 1))).cumsum()
        network.pause(host, *((since, until) for since, until in spans.reshape(-1, 2).tolist()))
    for call in range(150):
        network.world.wait_for(job.numbers)
        job.begin([np.full(256 * blocks, rank + 1, np.int32) for rank in range(ranks)])
        left = ranks
        while left > 0:
            network.run(network.now + 0.1)
            left -= job.note_finished()
            assert network.now < most_s, f"{call} of 150 small sums"


@pytest.mark.timeout(300)
def test_time_outs_do_not_double_where_they_fill_token_buckets() -> None:
    # Four trees share the hosts' links, whose queues hold less than the trees' windows.  A lost burst of one tree waits
    # for a time-out.  Then its answers come far sooner than any round before, and repeats look needless.
    hosts, rate_bps, lanes, blocks = ("h0", "h1", "h2", "h3"), 1e7, 2048, 100
    planned = Planned(switches=("s1",), hosts=hosts, cables=tuple(Cable(ends=(host, "s1"), mbit=10) for host in hosts))
    queue = int(rate_bps / 8 * 0.1) + 32_768
    link = CableConditions(
        rate_bps=rate_bps,
        delay_s=5e-5,
        queue_bytes=queue,
        host_queue_bytes=queue,
        bucket_bytes=32_768,
        burst_rate_bps=1e13,
        overhead_bytes=0,
    )
    network = jobs.build(planned, link, lanes=lanes)
    placed = place(planned, hosts, jobs.SLOTS)
    share = jobs.Share(placed=replace(placed, trees=4 * list(placed.trees)))
    job = jobs.Job(network, planned, hosts, link, lanes=lanes, window_slots=512, share=share)
    took = []
    for call in range(8):
        network.world.wait_for(job.numbers)
        began = network.now
        job.begin([np.full(lanes * blocks, rank + 1, np.int32) for rank in range(len(hosts))])
        left = len(hosts)
        while left > 0:
            network.run(network.now + 0.1)
            left -= job.note_finished()
        took_s, line_s = network.world.finished_s(job.numbers) - began, blocks * 8 * (90 + 4 * lanes) / rate_bps
        assert took_s < 3 * line_s, f"sum {call} of 8"
        took.append(took_s / line_s)
    assert np.mean(took) < 1.5, "no more than a few time-outs in all"


@pytest.mark.timeout(300)
def test_time_outs_do_not_follow_one_another_in_a_tree_that_loses_frames() -> None:
    # A rank that waits for its repeat begins the next sum late, and all rounds of the others wait for it.
    hosts = tuple(f"h{rank}" for rank in range(8))
    leaves = ("l0", "l1", "l2", "l3")
    cables = [Cable(ends=(host, leaves[rank // 2]), mbit=1e4) for rank, host in enumerate(hosts)]
    cables += [Cable(ends=(leaf, "root"), mbit=1e4) for leaf in leaves]
    planned = Planned(switches=("root", *leaves), hosts=hosts, cables=tuple(cables))
    link = CableConditions(rate_bps=1e10, delay_s=2.5e-6, loss=0.05)
    network = jobs.build(planned, link, lanes=256, seed=0)
    job = jobs.Job(network, planned, hosts, link, lanes=256, window_slots=64, seed=0)
    for call in range(150):
        network.world.wait_for(job.numbers)
        job.begin([np.full(256 * (12 if call % 2 else 1), rank + 1, np.float32) for rank in range(8)], lanes="int32")
        left = len(job.workers)
        while left > 0:
            job.look_after()
            network.run(min(network.now + 1.0, job.due_s))
            left -= job.note_finished()
            assert network.now < 10.0, f"{call} of 150 small sums"

"""Jobs of real workers over real programs: sums, times, losses, trees, and runs that are the same to the last bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from switchsum.topologies import Cable, Network
from switchsum_lab.simulation import jobs
from switchsum_lab.simulation.conditions import CableConditions, HostCost
from switchsum_protocol.errors import SwitchLost, UsageError

CABLE = CableConditions(delay_s=5e-6, queue_bytes=1 << 20, overhead_bytes=0)
FRAME_BITS = 8 * (90 + 1024)


def star(hosts: int, mbit: float) -> Network:
    names = tuple(f"h{number}" for number in range(hosts))
    return Network(switches=("s1",), hosts=names, cables=tuple(Cable(ends=(name, "s1"), mbit=mbit) for name in names))


def two_leaves(mbit: float, above: float) -> Network:
    hosts = tuple(f"h{number}" for number in range(6))
    cables = [Cable(ends=(name, f"leaf{number // 3}"), mbit=mbit) for number, name in enumerate(hosts)]
    cables += [Cable(ends=(f"leaf{number}", "root"), mbit=above) for number in range(2)]
    return Network(switches=("root", "leaf0", "leaf1"), hosts=hosts, cables=tuple(cables))


def run(planned: Network, link: CableConditions, values: int, **options: object) -> tuple[jobs.Job, jobs.Ended]:
    """Add arrays of floats over a network, and look at the sums."""
    network = jobs.build(planned, link, lanes=256, seed=5)
    job = jobs.Job(network, planned, planned.hosts, link, lanes=256, **options)  # type: ignore[arg-type]
    arrays = [np.full(values, rank + 1, np.float32) for rank in range(len(planned.hosts))]
    ended = job.allreduce(arrays, until_s=5.0)
    assert ended.is_complete
    total = sum(range(1, len(planned.hosts) + 1))
    for array in arrays:
        np.testing.assert_allclose(array, total, rtol=1e-6)
        assert array.tobytes() == arrays[0].tobytes()
    return job, ended


def test_a_job_takes_as_long_as_its_links_say() -> None:
    job, ended = run(star(4, 200.0), CABLE, 250_000)
    blocks = 250_000 / 256
    assert ended.seconds == pytest.approx(blocks * FRAME_BITS / 200e6, rel=0.08)  # and the first, empty rounds
    assert job.repeats == 0
    assert job.network.links["h0->s1"].frames >= blocks


@pytest.mark.parametrize("seed", [5, 14, 39])
def test_a_lost_tail_costs_some_rounds_and_no_millisecond(seed: int) -> None:
    """Of these runs a frame near the end is lost, which no later one overtakes."""

    def seconds(loss: float) -> float:
        fast = replace(CABLE, loss=loss, delay_s=1e-6)
        network = jobs.build(star(2, 100e3), fast, lanes=256, seed=seed)
        job = jobs.Job(network, star(2, 100e3), ["h0", "h1"], fast, lanes=256)
        ended = job.allreduce([np.full(100_000, rank, np.float32) for rank in range(2)])
        assert ended.is_complete
        assert (job.repeats > 0) == (loss > 0)
        return ended.seconds

    assert seconds(0.005) < 1.6 * seconds(0.0)


def test_two_runs_are_the_same_and_another_seed_is_another_run() -> None:
    lossy = replace(CABLE, loss=0.01)

    def digest(seed: int) -> tuple[str, float, int]:
        planned = star(3, 1000.0)
        network = jobs.build(planned, lossy, lanes=256, seed=seed)
        job = jobs.Job(network, planned, planned.hosts, lossy, lanes=256)
        ended = job.allreduce([np.full(60_000, rank, np.float32) for rank in range(3)])
        return network.digest, ended.seconds, job.repeats

    first = digest(1)
    assert first[2] > 0
    assert digest(1) == first
    assert digest(2)[0] != first[0]


def test_what_is_lost_is_repeated_over_a_tree() -> None:
    job, ended = run(two_leaves(1000.0, 1000.0), replace(CABLE, loss=0.02, late=0.02, late_by_s=50e-6), 40_000)
    assert job.repeats > 10
    assert len(job.trees) == 1
    assert sum(link.lost for link in job.network.links.values()) > 10
    assert ended.seconds > 40_000 / 256 * FRAME_BITS / 1e9


@pytest.mark.parametrize(("size", "most_s"), [(64 * 256, 2e-3), (200 * 256, 5e-3)])
def test_time_outs_do_not_feed_one_another_where_nearly_all_rounds_lose_a_frame(size: int, most_s: float) -> None:
    """Of 272 contributions one is lost in 94 of 100 rounds; those who wait for its repeat lose frames as well.

    A sum of one window ends before time-outs have grown; one of several took minutes.
    """
    leaves = tuple(f"leaf{number}" for number in range(16))
    hosts = tuple(f"h{number}" for number in range(256))
    cables = [Cable(ends=(name, leaves[number // 16]), mbit=100e3) for number, name in enumerate(hosts)]
    cables += [Cable(ends=(leaf, "root"), mbit=100e3) for leaf in leaves]
    planned = Network(switches=("root", *leaves), hosts=hosts, cables=tuple(cables))
    job, ended = run(planned, CableConditions(loss=0.01), size)
    assert job.repeats > 10_000
    assert ended.seconds < most_s  # it never took less than half a second when time-outs followed the rounds alone


def test_a_job_over_several_trees_uses_the_links_of_each() -> None:
    cables = [Cable(ends=(f"h{number}", f"leaf{number % 2}"), mbit=200.0) for number in range(4)]
    cables += [Cable(ends=(leaf, spine), mbit=100.0) for leaf in ("leaf0", "leaf1") for spine in ("spine0", "spine1")]
    hosts = tuple(f"h{number}" for number in range(4))
    fabric = Network(switches=("leaf0", "leaf1", "spine0", "spine1"), hosts=hosts, cables=tuple(cables))
    job, ended = run(fabric, CABLE, 250_000)
    assert len(job.trees) == 2
    frames = [job.network.links[f"leaf0->{spine}"].frames for spine in ("spine0", "spine1")]
    assert min(frames) >= 0.4 * sum(frames)
    assert ended.seconds == pytest.approx(250_000 / 256 * FRAME_BITS / 200e6, rel=0.1)


def test_the_slowest_link_of_a_tree_bounds_it() -> None:
    _, quick = run(two_leaves(1000.0, 1000.0), CABLE, 100_000)
    job, slow = run(two_leaves(1000.0, 250.0), CABLE, 100_000)
    assert slow.seconds > 3.5 * quick.seconds
    assert job.network.links["leaf0->root"].bytes < 1.2 * 100_000 * 4 * 1114 / 1024


def test_ranks_may_share_one_array() -> None:
    planned = two_leaves(1000.0, 1000.0)
    network = jobs.build(planned, CABLE, lanes=256)
    job = jobs.Job(network, planned, planned.hosts, CABLE, lanes=256)
    array = np.linspace(-1, 1, 50_000, dtype=np.float32)
    expected = array.astype(np.float64) * 6
    assert job.allreduce([array] * 6).is_complete
    np.testing.assert_allclose(array, expected, atol=1e-6)


def test_hosts_whose_processor_is_slow_bound_the_job() -> None:
    _, ended = run(star(2, 10_000.0), CABLE, 50_000, cost=HostCost(frame_s=5e-6))
    frames = 2 * (50_000 / 256 + 64)  # sent and received, each slot's first and empty round among them
    assert ended.seconds == pytest.approx(frames * 5e-6, rel=0.03)


def test_a_switch_that_is_out_of_reach_is_an_error() -> None:
    planned = star(2, 1000.0)
    link = replace(CABLE, outages=((0.0, 100.0),))
    network = jobs.build(planned, link, lanes=256)
    job = jobs.Job(network, planned, planned.hosts, link, lanes=256, switch_timeout_s=0.5)
    with pytest.raises(SwitchLost):
        job.allreduce([np.ones(100, np.float32)] * 2)
    assert network.now < 2.0


def test_a_time_that_is_over_gives_the_results_so_far() -> None:
    planned = star(2, 100.0)
    network = jobs.build(planned, CABLE, lanes=256)
    job = jobs.Job(network, planned, planned.hosts, CABLE, lanes=256)
    ended = job.allreduce([np.ones(100_000, np.float32)] * 2, until_s=10e-3)
    assert (ended.is_complete, ended.finished, network.now) == (False, 0, 10e-3)
    assert 0 < network.links["h0->s1"].bytes < 200_000


def test_what_is_no_job_is_refused() -> None:
    planned = star(2, 100.0)
    for hosts, options in (((), {}), (("h0",), {}), (("h0", "h1"), {"window_slots": 5000})):
        network = jobs.build(planned, CABLE, lanes=256)
        with pytest.raises(UsageError):
            jobs.Job(network, planned, hosts, CABLE, lanes=256, **options)  # type: ignore[arg-type]

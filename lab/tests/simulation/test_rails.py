"""Hosts with links to several switches: sums over all of them, and over those that are left."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from switchsum.topologies import Cable, Network
from switchsum_lab.simulation import jobs, peers
from switchsum_lab.simulation.conditions import CableConditions
from switchsum_lab.simulation.scenario import Scenario, ideals, simulate

CABLE = CableConditions(delay_s=1e-6)
SIZE = 100_000


def rails(hosts: int, rates: tuple[float, ...], *, spine: bool = False) -> Network:
    """Return hosts that have a link to each of several switches, which may have one above them."""
    names = tuple(f"h{number}" for number in range(hosts))
    switches = tuple(f"s{rail}" for rail in range(len(rates)))
    cables = [Cable(ends=(name, switch), mbit=mbit) for switch, mbit in zip(switches, rates, strict=True)
              for name in names]  # fmt: skip
    if not spine:
        return Network(switches=switches, hosts=names, cables=tuple(cables))
    cables += [Cable(ends=(switch, "top"), mbit=1000.0) for switch in switches]
    return Network(switches=("top", *switches), hosts=names, cables=tuple(cables))


def run(
    planned: Network, link: CableConditions = CABLE, fails: str = "", **options: Any
) -> tuple[jobs.Job, jobs.Ended]:
    """Add arrays of floats, and look at the sums."""
    network = jobs.build(planned, link, lanes=256, seed=5)
    job = jobs.Job(network, planned, planned.hosts, link, lanes=256, **options)
    if fails:
        job.fail(fails, 300e-6)
    arrays = [np.full(SIZE, rank + 1, np.float32) for rank in range(len(planned.hosts))]
    ended = job.allreduce(arrays, until_s=60.0)
    assert ended.is_complete
    for array in arrays:
        assert array.tobytes() == arrays[0].tobytes()
    np.testing.assert_array_equal(arrays[0], sum(range(1, len(planned.hosts) + 1)))
    return job, ended


@pytest.mark.parametrize("spine", [False, True])
def test_all_rails_carry_their_share_at_the_same_time(spine: bool) -> None:
    job, ended = run(rails(3, (1000.0, 500.0), spine=spine))
    fast, slow = (job.network.links[f"h0->{switch}"].bytes for switch in ("s0", "s1"))
    assert fast == pytest.approx(2 * slow, rel=0.1)
    assert ended.seconds == pytest.approx((fast + slow) * 8 / 1500e6, rel=0.15)
    assert job.repeats == 0


def test_what_is_lost_on_one_rail_is_repeated_there_the_same_way_each_time() -> None:
    lossy = CableConditions(delay_s=1e-6, loss=0.02)
    job, ended = run(rails(3, (1000.0, 1000.0)), lossy)
    assert job.repeats > 10
    again, same = run(rails(3, (1000.0, 1000.0)), lossy)
    assert (same, again.network.digest) == (ended, job.network.digest)


def test_a_job_goes_on_over_the_rail_that_is_left() -> None:
    job, ended = run(rails(2, (1000.0, 1000.0)), fails="h1->s0")
    assert 5.0 < ended.seconds < 20.0  # a rail is dead when it was silent for five seconds
    assert len(job.moved) == 1
    assert "link 0 is dead at some worker: it goes on over link 1 of each worker" in job.moved[0]


def test_hosts_alone_use_all_rails_too() -> None:
    planned = rails(4, (1000.0, 1000.0))
    scenario = Scenario(planned=planned, workers=4, size=4 * SIZE, conditions=CABLE, against=("ring",))
    switches, ring = simulate(scenario)
    formulas = ideals(scenario)
    assert formulas["ideal switches"] < switches.simulated_s < 1.2 * formulas["ideal switches"]
    assert formulas["ideal-ring"] < ring.simulated_s < 1.08 * formulas["ideal-ring"]
    assert formulas["ideal-ring"] == pytest.approx(
        peers.ideal_ring_s(4, 4 * SIZE, CABLE, 2e9, 1500),
    )

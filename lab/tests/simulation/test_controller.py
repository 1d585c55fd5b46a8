"""What fails at a chosen time, and what the real controller then does, the same way in each run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from switchsum.topologies import Cable, Network
from switchsum_controller.trees.moves import AWAY_S
from switchsum_lab.simulation import jobs
from switchsum_lab.simulation import network as simulation
from switchsum_lab.simulation.conditions import CableConditions, instant
from switchsum_lab.simulation.scenario import Scenario, simulate
from switchsum_protocol.errors import SwitchLost, UsageError

CABLE = CableConditions(delay_s=5e-6)
FAILS_S = 3.2e-3


def two_spines(*, fast: float = 200.0, slow: float = 200.0) -> Network:
    """Return two leaves with two hosts each, and two spines above; links of the second spine are slow."""
    cables = [Cable(ends=(f"h{number}", f"leaf{number // 2}"), mbit=200.0) for number in range(4)]
    cables += [Cable(ends=(f"leaf{leaf}", spine), mbit=mbit) for spine, mbit in (("a", fast), ("b", slow))
               for leaf in range(2)]  # fmt: skip
    return Network(switches=("a", "b", "leaf0", "leaf1"), hosts=tuple(f"h{n}" for n in range(4)), cables=tuple(cables))


def run(planned: Network, *failing: str, fails_s: float = FAILS_S, **options: Any) -> tuple[jobs.Job, jobs.Ended]:
    """Add some arrays while something fails, and look at the sums."""
    network = jobs.build(planned, CABLE, lanes=256)
    job = jobs.Job(network, planned, planned.hosts, CABLE, lanes=256, window_slots=16, **options)
    for name in failing:
        job.fail(name, fails_s)
    arrays = [np.full(40_000, rank + 1, np.float32) for rank in range(4)]
    ended = job.allreduce(arrays, until_s=60.0)
    if ended.is_complete:
        assert all(array.tobytes() == arrays[0].tobytes() for array in arrays)
        np.testing.assert_allclose(arrays[0], 10.0)
    return job, ended


def test_a_job_with_a_controller_is_the_same_as_one_without_until_something_fails() -> None:
    _, plain = run(two_spines())
    job, ended = run(two_spines(), has_controller=True)
    assert ended == plain
    assert ended.seconds < 20e-3
    assert job.moved == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failing", "says"),
    [
        ("a", "a stays away: its tree has root b, not a"),
        ("leaf1->a", "link from a to leaf1 stays away: its tree"),
    ],
)
def test_a_job_moves_away_from_what_fails_and_the_run_can_be_repeated(failing: str, says: str) -> None:
    planned = two_spines(slow=180.0)
    job, ended = run(planned, failing, has_controller=True)
    assert ended.is_complete
    assert ended.seconds > FAILS_S + AWAY_S
    assert len(job.moved) == 1
    assert says in job.moved[0]
    assert job.network.links["leaf0->b"].frames > 50
    again, same = run(planned, failing, has_controller=True)
    assert (same, again.moved, again.network.digest) == (ended, job.moved, job.network.digest)


def test_jobs_move_as_soon_as_the_scenario_says_and_unknown_names_are_refused_at_once() -> None:
    planned = two_spines(slow=180.0)
    wanted = Scenario(planned=planned, workers=4, size=1_000_000, failures=(("a", FAILS_S),), move_after_s=0.05)
    [found] = simulate(wanted, ways=["switches"])
    assert found.is_right
    assert FAILS_S + 0.25 < found.simulated_s < 1.0
    with pytest.raises(UsageError, match="no link between leaf0 and c"):
        replace(wanted, failures=(("leaf0->c", FAILS_S),))
    with pytest.raises(UsageError, match="no switch c: a, b, leaf0, leaf1"):
        replace(wanted, failures=(("c", FAILS_S),))
    with pytest.raises(UsageError, match="--move-after needs --fail"):
        replace(wanted, failures=())


def test_the_clock_comes_to_every_time_at_which_something_may_fail() -> None:
    network = simulation.Network()
    for tenths in range(1, 1000):
        at = instant(tenths * 1e-4)
        network.run(until=at)
        assert network.now == at


@pytest.mark.slow
@pytest.mark.parametrize("fails_s", [0.5e-3, 0.9 * 1e-3])
def test_a_job_moves_away_whenever_it_fails(fails_s: float) -> None:
    job, ended = run(two_spines(slow=180.0), "a", "leaf1->a", fails_s=fails_s, has_controller=True)
    assert ended.is_complete
    assert len(job.moved) == 1


@pytest.mark.slow
def test_ranks_at_a_leaf_that_fails_lose_their_switch() -> None:
    with pytest.raises(SwitchLost, match=r"no answer from the switch for 2 s"):
        run(two_spines(), "leaf0", has_controller=True, switch_timeout_s=2.0)


def test_what_cannot_fail_is_refused() -> None:
    for failing, says in (("x", "there is no switch x"), ("a->h0", "no link between a and h0")):
        with pytest.raises(UsageError, match=says):
            run(two_spines(), failing, has_controller=True)
    with pytest.raises(UsageError, match="has_controller"):
        run(two_spines(), "a")

"""Jobs that add at the same time on one network: each sum is its own, and links between switches are shared."""

from __future__ import annotations

from typing import Any

import pytest

from switchsum.planning.topology import Cable, Network
from switchsum.protocol.errors import UsageError
from switchsum.simulation.conditions import Link
from switchsum.simulation.scenario import Scenario, ideals, simulate

SIZE = 400_000


def scenario(**facts: Any) -> Scenario:
    """Return two jobs of four workers, of which each has two at each leaf."""
    hosts = tuple(f"h{number}" for number in range(8))
    cables = [Cable(ends=(name, f"leaf{number // 4}"), mbit=1000.0) for number, name in enumerate(hosts)]
    cables += [Cable(ends=(f"leaf{number}", "root"), mbit=1000.0) for number in range(2)]
    planned = Network(switches=("root", "leaf0", "leaf1"), hosts=hosts, cables=tuple(cables))
    facts = {"workers": 4, "jobs": 2, "size": SIZE, "conditions": Link(delay_s=1e-6), **facts}
    return Scenario(planned=planned, **facts)


def test_jobs_share_a_link_evenly() -> None:
    wanted = scenario(against=("ring",))
    assert wanted.hosts_of_jobs == [["h0", "h2", "h4", "h6"], ["h1", "h3", "h5", "h7"]]
    switches, ring = simulate(wanted)
    assert switches.is_right
    assert switches.finished == ring.finished == 8
    for one in (switches, ring):
        assert len(one.jobs_s) == 2
        assert min(one.jobs_s) > 0.95 * max(one.jobs_s)
    assert switches.simulated_s == pytest.approx(2 * ideals(wanted)["ideal switches"], rel=0.15)


def test_jobs_that_have_no_room_beside_one_another_are_refused() -> None:
    for facts, says in (
        ({"jobs": 3}, "2 to 2 workers of each of 3 jobs"),
        ({"jobs": 0}, "1 to 16 jobs, not 0"),
        ({"failures": (("root", 1e-3),)}, "for one job only"),
        ({"window_slots": 600}, "to 512, not 600"),
    ):
        with pytest.raises(UsageError, match=says):
            simulate(scenario(**facts))

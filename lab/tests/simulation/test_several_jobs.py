"""Jobs that add at the same time on one network: each sum is its own, and links between switches are shared."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from switchsum.planning.sources import read
from switchsum.topologies import Cable, Network
from switchsum_controller.trees.moves import AWAY_S
from switchsum_lab.cli.simulate import _text
from switchsum_lab.simulation import jobs
from switchsum_lab.simulation import network as simulated
from switchsum_lab.simulation.conditions import CableConditions
from switchsum_lab.simulation.scenario import Scenario, ideals, simulate
from switchsum_protocol.errors import UsageError

SIZE = 400_000


def scenario(**facts: Any) -> Scenario:
    """Return two jobs of four workers, of which each has two at each leaf."""
    hosts = tuple(f"h{number}" for number in range(8))
    cables = [Cable(ends=(name, f"leaf{number // 4}"), mbit=1000.0) for number, name in enumerate(hosts)]
    cables += [Cable(ends=(f"leaf{number}", "root"), mbit=1000.0) for number in range(2)]
    planned = Network(switches=("root", "leaf0", "leaf1"), hosts=hosts, cables=tuple(cables))
    facts = {"workers": 4, "jobs": 2, "size": SIZE, "conditions": CableConditions(delay_s=1e-6), **facts}
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


def test_jobs_are_spread_over_the_spines_so_that_each_is_as_quick_as_alone() -> None:
    """Three jobs, of which each has a host at both leaves, and three spines: no two jobs have a link in common."""
    planned = read("leaf-spine,2,3,3", 1000.0)
    facts: dict[str, Any] = {
        "planned": planned,
        "workers": 2,
        "size": SIZE,
        "conditions": CableConditions(delay_s=1e-6),
    }
    networks: list[simulated.Network] = []
    carried: dict[str, int] = {}
    [alone] = simulate(Scenario(**{**facts, "jobs": 1}))
    [together] = simulate(Scenario(**{**facts, "jobs": 3}), watch=lambda network, _: networks.append(network))
    for name, link in networks[0].links.items():
        _, _, head = name.partition("->")
        if head in ("s1", "s2", "s3"):
            carried[head] = carried.get(head, 0) + link.bytes
    assert together.is_right
    assert max(together.jobs_s) < 1.05 * alone.simulated_s
    assert min(carried.values()) == max(carried.values()) > 2 * SIZE


def test_jobs_that_have_no_room_beside_one_another_are_refused() -> None:
    for facts, says in (
        ({"jobs": 3}, "2 to 2 workers of each of 3 jobs"),
        ({"jobs": 0}, "1 to 16 jobs, not 0"),
        ({"window_slots": 600}, "to 512, not 600"),
    ):
        with pytest.raises(UsageError, match=says):
            simulate(scenario(**facts))


@pytest.mark.slow
def test_jobs_beside_one_another_go_on_when_a_switch_has_failed() -> None:
    """Two of four jobs have their trees over the root that fails, and move to the other one."""
    plain = scenario(jobs=4, workers=2)
    above = [Cable(ends=(f"leaf{leaf}", "other"), mbit=900.0) for leaf in range(2)]
    planned = replace(
        plain.planned, switches=(*plain.planned.switches, "other"), cables=(*plain.planned.cables, *above)
    )
    [one] = simulate(replace(plain, planned=planned, failures=(("root", 1e-3),)))
    assert one.is_right
    says = "root stays away: its tree has root other, not root"
    assert [moved.replace("job ", "").split(":", 1)[0] for moved in one.moved] == ["1", "3"]
    assert all(moved.endswith(says) for moved in one.moved)
    assert min(one.jobs_s[0], one.jobs_s[2]) > 1e-3 + AWAY_S
    assert max(one.jobs_s[1], one.jobs_s[3]) < 3 * ideals(plain)["ideal switches"]


def test_a_job_whose_leaf_fails_gives_up_and_the_others_go_on() -> None:
    """The first job has a rank at `leaf1`, which fails; the other one is at `leaf0` alone."""
    plain = scenario()
    hosts = ("h0", "h1", "h4", "h2", "h5", "h3")
    planned = replace(plain.planned, hosts=hosts, cables=tuple(
        cable for cable in plain.planned.cables if not {"h6", "h7"} & {*cable.ends}
    ))  # fmt: skip
    wanted = replace(plain, planned=planned, workers=3, failures=(("leaf1", 1e-3),))
    assert wanted.hosts_of_jobs == [["h0", "h4", "h5"], ["h1", "h2", "h3"]]
    [one] = simulate(wanted)
    assert (one.is_complete, one.is_right, one.finished) == (False, True, 3)
    assert one.gave_up[1] is None
    assert re.match("no answer from the switch|rank", one.gave_up[0] or "")
    assert one.jobs_s[1] < 2 * ideals(wanted)["ideal switches"] < one.jobs_s[0]
    says = _text(wanted, [one])
    assert "1 of 2 jobs took" in says
    assert "job 1 gave up after" in says


def test_jobs_beside_one_another_have_rails() -> None:
    """Hosts of both jobs have a fast and a slow link, which no other host has: each job is as quick as alone."""
    hosts = tuple(f"h{number}" for number in range(4))
    cables = [Cable(ends=(host, f"s{rail}"), mbit=mbit) for rail, mbit in enumerate((1000.0, 500.0)) for host in hosts]
    planned = Network(switches=("s0", "s1"), hosts=hosts, cables=tuple(cables))
    both = replace(scenario(), planned=planned, workers=2)
    [one] = simulate(both)
    carried = {link.name: link.bytes for link in one.links}
    assert one.is_right
    assert max(one.jobs_s) < 1.2 * ideals(both)["ideal switches"]
    for host in hosts:
        assert carried[f"{host}->s0"] == pytest.approx(2 * carried[f"{host}->s1"], rel=0.1)


def test_a_job_beside_others_that_has_rails_needs_their_controller() -> None:
    hosts = ("h0", "h1", "h2", "h3")
    cables = tuple(Cable(ends=(host, f"s{rail}"), mbit=1000.0) for rail in range(2) for host in hosts)
    planned, link = Network(switches=("s0", "s1"), hosts=hosts, cables=cables), CableConditions()
    network = jobs.build(planned, link, lanes=256)
    with pytest.raises(UsageError, match="have the same controller"):
        jobs.Job(network, planned, hosts[:2], link, lanes=256, share=jobs.Share(number=1, first_host=2))

"""Switches and the links between them, for the page: which is above which, and what goes over each link."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from switchsum.view.facts import Overview
from switchsum.view.rounds import trees_of
from switchsum_protocol import rpc


def switch_rows(seen: Overview, rates: Mapping[str, float]) -> list[dict[str, Any]]:
    """Describe each switch; `rates` has its contributions a second, as far as known, and `level` is 0 at the top."""
    levels = _levels(seen)
    return [
        asdict(one) | {"level": levels[one.switch], "per_s": rates.get(one.switch)} for one in seen.switches.switches
    ]


def link_rows(seen: Overview, rates: Mapping[str, float]) -> list[dict[str, Any]]:
    """Describe each link between switches, also one that is gone and that a job's tree needs.

    What a switch takes a second is shared evenly among those that send to it: so each has its part in as many rounds.
    """
    trees = _trees(seen)
    members = [member for facts in seen.jobs for member in facts.job.members]
    senders = [name for one in members for name in (one.switches or [one.switch])] + [above for _, above in trees]
    rows: list[dict[str, Any]] = []
    for link in seen.links.links:
        ends, ports = [link.switch, link.far_switch], [link.port, link.far_port]
        if (link.far_switch, link.switch) in trees:
            ends.reverse()
            ports.reverse()
        found = sorted(trees.pop((ends[0], ends[1]), ())) if link.in_tree else []
        rows.append({"ends": ends, "ports": ports, "in_tree": link.in_tree, "trees": found, "gone": False})
    for (low, high), numbers in trees.items():
        rows.append({"ends": [low, high], "ports": [], "in_tree": True, "trees": sorted(numbers), "gone": True})
    for row in rows:
        above = row["ends"][1]
        row["per_s"] = round(rates.get(above, 0.0) / max(1, senders.count(above)), 1) if row["trees"] else 0.0
    return rows


def rank_links(job: rpc.JobInfo, member: rpc.MemberInfo) -> list[dict[str, Any]]:
    """Describe the links of a member: switch and port of each, which part of its frames it carries, if it is down."""
    ports = [int(text.rpartition(" ")[2]) for text in member.links] or [member.ingress_port]
    switches = member.switches or [member.switch] * len(ports)
    rates = [0.0 if link in job.links_down else rate for link, rate in enumerate(job.link_rates)]
    if len(rates) != len(ports):  # one link, or not all are known yet
        rates = [1.0] * len(ports)
    return [
        {"port": port, "switch": switch, "share": rate / (sum(rates) or 1.0), "down": link in job.links_down}
        for link, (port, switch, rate) in enumerate(zip(ports, switches, rates, strict=True))
    ]


def _trees(seen: Overview) -> dict[tuple[str, str], set[int]]:
    """Return, for each switch and the one above it, in which trees of jobs it is below that."""
    found: dict[tuple[str, str], set[int]] = {}
    for facts in seen.jobs:
        for number, parents in trees_of(facts.job).items():
            for pair in parents.items():
                found.setdefault(pair, set()).add(number)
    return found


def _levels(seen: Overview) -> dict[str, int]:
    """Return how far each switch is below the tops of the jobs' trees, or below the first one while there are none."""
    names = [one.switch for one in seen.switches.switches]
    pairs = {*_trees(seen)}
    if not pairs:
        near = [(link.switch, link.far_switch) for link in seen.links.links if link.in_tree]
        pairs = {*near, *((far, one) for one, far in near)}
    above = {name: {high for low, high in pairs if low == name} for name in names}
    tops = [name for name in names if not above[name]] if _trees(seen) else names[:1]
    levels = dict.fromkeys(tops or names[:1], 0)
    for level in range(1, len(names)):
        levels |= {
            name: level
            for name in names
            if name not in levels and any(levels.get(one) == level - 1 for one in above[name])
        }
    return {name: levels.get(name, 0) for name in names}

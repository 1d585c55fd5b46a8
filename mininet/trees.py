"""The tree of a network's switches for their controller, and what a job has cost; needs the standard library only."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

_ANSWER_S = 60.0


def parents_of(links: Mapping[int, tuple[str, str]], root: str) -> dict[str, tuple[str, int]]:
    """Return for each switch but the root the switch above it, and the link to that one; `links` make a tree."""
    parents: dict[str, tuple[str, int]] = {}
    waiting = [root]
    for switch in waiting:
        for index, ends in links.items():
            if switch not in ends:
                continue
            far = ends[1] if ends[0] == switch else ends[0]
            if far != root and far not in parents:
                parents[far] = switch, index
                waiting.append(far)
    return parents


def adding(parents: Mapping[str, tuple[str, int]], leaves: Iterable[str], root: str) -> list[str]:
    """Return the switches that add for hosts at these leaves, the root first: those up to where all ways meet."""
    ways = []
    for leaf in dict.fromkeys(leaves):
        way = [leaf]
        while way[-1] in parents:
            way.append(parents[way[-1]][0])
        ways.append(way)
    top = next((name for name in ways[0] if all(name in way for way in ways)), root) if ways else root
    found = {name for way in ways for name in way[: way.index(top)]}
    return [top, *(name for name in parents if name in found)]


def write_fleet(
    path: Path,
    root: str,
    parents: Mapping[str, tuple[str, int]],
    p4runtime: Mapping[str, str],
    port_of: Callable[[int, str], int],
    stations: Mapping[str, Mapping[str, int]],
) -> None:
    """Write the file of `switchsum controller --fleet`; `port_of` gives the number of a link's port at a switch."""
    switches: dict[str, dict[str, Any]] = {
        name: {"p4runtime": p4runtime[name], "ports": {}, "stations": stations[name]} for name in (root, *parents)
    }
    for name, (above, link) in parents.items():
        switches[name]["above"] = above
        switches[name]["ports"][above] = port_of(link, name)
        switches[above]["ports"][name] = port_of(link, above)
    path.write_text(json.dumps({"switches": switches}, indent=1), encoding="utf-8")


def contributions(command: Path, controller: str, job: str) -> dict[str, int]:
    """Ask a controller how many contributions each switch took; nothing if it does not say."""
    asked = [str(command), "tree", "show", job, "--json", "--controller", controller]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=_ANSWER_S)
        return dict(json.loads(done.stdout)["contributions"])
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        return {}


def bytes_up(interface: str) -> int:
    """Return how many bytes an interface of this network namespace has received; 0 if there is none."""
    try:
        return int(Path(f"/sys/class/net/{interface}/statistics/rx_bytes").read_text())
    except (OSError, ValueError):
        return 0


class Account:
    """What the switches of a network added, and what its links carried up, from now on."""

    def __init__(self, survey: Any, command: Path, controller: str, job: str) -> None:
        self._survey = survey
        self._asked = command, controller, job
        self._names = survey.adding()
        self._took = contributions(*self._asked)
        self._hosts, self._uplinks = self._bytes()

    def _bytes(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return what has come up from each host, and over the links between switches that add."""
        survey = self._survey
        hosts = {host.name: bytes_up(survey.interface(link, leaf).name) for host, link, leaf in survey.leaves()}
        ways = {name: survey.parents[name] for name in self._names[1:]}
        uplinks = {f"{name}-{up}": bytes_up(survey.interface(link, up).name) for name, (up, link) in ways.items()}
        return hosts, uplinks

    def text(self) -> str:
        """Say what it has come to."""
        after = contributions(*self._asked)
        took = [f"{name} {after.get(name, 0) - self._took.get(name, 0):,}" for name in self._names]
        lines = [f"contributions: {', '.join(took)}"]
        hosts, uplinks = self._bytes()
        if hosts:
            sent, name = max((count - self._hosts[name], name) for name, count in hosts.items())
            links = [f"; {name} {count - self._uplinks[name]:,}" for name, count in uplinks.items()]
            lines.append(f"bytes up: {name}, the most of a host, {sent:,}{''.join(links)}")
        return "".join(f"*** {line}\n" for line in lines)


def in_order(name: str) -> list[tuple[int, str]]:
    """Return a sort key with which s2 comes before s10."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]

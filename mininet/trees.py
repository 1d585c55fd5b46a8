"""The tree of a network's switches for their controller, and what a job has cost; needs the standard library only."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

JOB = "mininet"
DEFAULT_MBIT = 1000.0
HELD_FRAMES = 128
MAX_WORKERS = 32  # at one switch
_ANSWER_S = 60.0


@dataclass(frozen=True)
class Tree:
    """One tree over which hosts' arrays are added."""

    root: str
    parents: Mapping[str, tuple[str, int]]
    """The switch above each other one, and the link to that one."""
    share: float = 1.0
    """Of a job's slots, beside those of other trees."""

    @property
    def above(self) -> dict[str, str]:
        """The switch above each other one."""
        return {name: above for name, (above, _) in self.parents.items()}

    def adding(self, leaves: Iterable[str]) -> list[str]:
        """Return the switches that add for hosts at these leaves, the topmost, where all ways meet, first."""
        ways = []
        for leaf in dict.fromkeys(leaves):
            way = [leaf]
            while way[-1] in self.parents:
                way.append(self.parents[way[-1]][0])
            ways.append(way)
        top = next((name for name in ways[0] if all(name in way for way in ways)), self.root) if ways else self.root
        found = {name for way in ways for name in way[: way.index(top)]}
        return [top, *(name for name in self.parents if name in found)]


def is_narrow(topology: Any) -> bool:
    """Return whether a link between switches is slower than a host's."""
    rates: dict[bool, list[float]] = {True: [], False: []}
    for cable in topology.limited(DEFAULT_MBIT).cables:
        rates[set(cable.ends) <= set(topology.switches)].append(cable.mbit)
    return min(rates[True], default=DEFAULT_MBIT) < max(rates[False], default=0)


def limits(topology: Any, own: Any, bmv2: Any) -> list[str]:
    """Return the controller's options for what a port holds; the embedded switch's queues are as long as BMv2's are.

    Where a host's link is the slowest, frames wait on the host.  Elsewhere the members' window waits at a switch, whose
    port drops what its queue (64 frames) and its socket (92) do not hold.  BMv2's limits the controller finds itself.
    """
    return ["--port-frames", str(HELD_FRAMES)] if is_narrow(topology) and not isinstance(own, bmv2) else []


def plan(command: Path, folder: Path, topology: Any, hosts: Sequence[str], single: Tree) -> list[Tree]:
    """Return the trees of a job: those that `switchsum tree plan` packs where links between switches limit it.

    Otherwise, and where no plan can be made (it needs the extra `trees`), it is the single one.
    """
    links = [(cable.ends, cable.mbit) for cable in topology.limited(DEFAULT_MBIT).cables]
    trunks = sum(set(ends) <= set(topology.switches) for ends, _ in links)
    are_doubled = len({frozenset(ends) for ends, _ in links}) < len(links)  # a tree names no link, but its ends
    if trunks <= len(single.parents) or not is_narrow(topology) or are_doubled:
        return [single]
    named = {"switches": list(topology.switches), "hosts": list(topology.hosts)}
    file = folder / "topology.yaml"  # of which JSON is a part
    file.write_text(json.dumps({**named, "links": [{"between": list(ends), "mbit": mbit} for ends, mbit in links]}))
    asked = [str(command), "tree", "plan", str(file), "--hosts", ",".join(hosts), "--json"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=_ANSWER_S)
        planned = json.loads(done.stdout)["trees"]
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        return [single]
    index = {frozenset(ends): number for number, (ends, _) in enumerate(links)}
    return [
        Tree(
            root=tree["root"],
            parents={
                name: (above, index[frozenset((name, above))])
                for name, above in tree["parents"].items()
                if name in topology.switches
            },
            share=tree["rate_mbit"],
        )
        for tree in planned
    ] or [single]


def ports_between(planned: Iterable[Tree], port_of: Callable[[int, str], int]) -> dict[tuple[str, str], int]:
    """Return the port of each switch towards each one beside it in a tree; `port_of` gives a link's at a switch."""
    found = {}
    for tree in planned:
        for name, (above, link) in tree.parents.items():
            found[name, above], found[above, name] = port_of(link, name), port_of(link, above)
    return found


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
        self._names = list(dict.fromkeys(name for names in survey.adding() for name in names))
        self._took = contributions(*self._asked)
        self._hosts, self._uplinks = self._bytes()

    def _bytes(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return what has come up from each host, and over the links between switches that add."""
        survey = self._survey
        hosts = {host.name: bytes_up(survey.interface(link, leaf).name) for host, link, leaf in survey.leaves()}
        ways = [
            (name, *tree.parents[name])
            for tree, names in zip(survey.trees, survey.adding(), strict=True)
            for name in names[1:]
        ]
        uplinks = {f"{name}-{up}": bytes_up(survey.interface(link, up).name) for name, up, link in ways}
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


def who_adds(names: Sequence[Sequence[str]], hosts: int) -> tuple[str, bool]:
    """Say which switches add, given those of each tree, the topmost first; also whether they can for all hosts."""
    tops = list(dict.fromkeys(of_tree[0] for of_tree in names))
    below = list(dict.fromkeys(name for of_tree in names for name in of_tree[1:]))
    if hosts > MAX_WORKERS * len({*tops, *below}):
        return f"nothing adds, and there is no job: a switch can add for {MAX_WORKERS} hosts, not for {hosts}", False
    text = f"{', '.join(below)} and above them {' and '.join(tops)} add" if below else f"{tops[0]} adds"
    return f"{text}, for job {JOB} of {hosts} hosts", True


def environment(host: Any, rank: int, size: int, folder: Path, controller: str) -> dict[str, str]:
    """Return the environment variables with which a host's processes join the job; `folder` has our commands."""
    return {
        "PATH": f"{folder}:{os.environ.get('PATH', os.defpath)}",
        "SWITCHSUM_CONTROLLER": controller,
        "SWITCHSUM_JOB": JOB,
        "SWITCHSUM_LINK": f"packet:{host.defaultIntf().name}",
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),  # all hosts share the cores of this machine
    }


def in_order(name: str) -> list[tuple[int, str]]:
    """Return a sort key with which s2 comes before s10."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]

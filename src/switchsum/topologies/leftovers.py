"""Finds interfaces and processes that a crashed Mininet has left behind, and spares those of one that still runs."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_INTERFACE: Final = re.compile(r"(\w+)-eth\d+")
_SHELL: Final = "mininet:"
"""The last argument of a node's shell: this and the node's name."""
_ADOPTERS: Final = {"systemd", "init"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """Interfaces and processes that belong to no Mininet that runs."""

    interfaces: tuple[str, ...] = ()
    """Links of Mininet in this network namespace, one end of each: the kernel deletes the other end with it."""
    processes: tuple[int, ...] = ()
    """Ids of nodes' shells, which keep their network namespaces, and of processes that these have started."""

    def __bool__(self) -> bool:
        return bool(self.interfaces or self.processes)

    def __str__(self) -> str:
        parts = [", ".join(self.interfaces)] if self.interfaces else []
        if self.processes:
            parts.append("process " + ", ".join(map(str, self.processes)))
        return " and ".join(parts)

    @property
    def remedy(self) -> str:
        """A shell command that removes them and nothing else."""
        commands = [f"sudo kill -9 {' '.join(map(str, self.processes))}"] if self.processes else []
        commands += [f"sudo ip link delete {name}" for name in self.interfaces]
        return "; ".join(commands)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    number: int
    parent: int
    name: str
    arguments: tuple[str, ...]
    namespace: str
    """Its network namespace; empty if this user may not read it."""


def find_leftovers(besides: int = 0, proc: Path = Path("/proc"), net: Path = Path("/sys/class/net")) -> Leftovers:
    """Return the interfaces and processes of nodes whose shells have ended.

    When Mininet crashes, its nodes' shells end with it, but the links between switches and the processes on hosts
    remain. `besides` is the process id of a Mininet whose nodes do not count as alive: the caller's own, which has no
    links yet.
    """
    processes = {process.number: process for process in _processes(proc)}
    alive = {
        process.arguments[-1].removeprefix(_SHELL)
        for process in processes.values()
        if process.arguments and process.arguments[-1].startswith(_SHELL) and process.parent != besides
    }
    here = _read(proc / "self/ns/net")
    orphaned = {
        process.namespace
        for process in processes.values()
        if process.namespace not in {"", here}
        and _is_adopted(process, processes)
        and (nodes := _nodes(_names(proc / str(process.number) / "net/dev")))
        and not nodes & alive
    }
    return Leftovers(
        interfaces=_first_ends(net, [name for name in sorted(_list(net)) if _nodes([name]) - alive]),
        processes=tuple(sorted(process.number for process in processes.values() if process.namespace in orphaned)),
    )


def _is_adopted(process: _Process, processes: dict[int, _Process]) -> bool:
    """Return whether the parent that started a process has ended."""
    parent = processes.get(process.parent)
    return process.parent == 1 or (parent is not None and parent.name in _ADOPTERS)


def _first_ends(net: Path, names: list[str]) -> tuple[str, ...]:
    """Return one interface of each veth pair; an interface whose peer is in another namespace is returned itself."""
    ends: dict[frozenset[str], str] = {}
    for name in names:
        try:
            pair = frozenset((net / name / kind).read_text() for kind in ("ifindex", "iflink"))
            events = (net / name / "uevent").read_text()
        except OSError:
            continue  # it has been deleted meanwhile
        # A bridge or a network card has no peer.  VLANs and other kinds with a parent interface name their type.
        if len(pair) == 2 and "DEVTYPE=" not in events:
            ends.setdefault(pair, name)
    return tuple(ends.values())


def _nodes(interfaces: list[str]) -> set[str]:
    """Return the nodes to which interfaces belong, by their names (s1-eth2 belongs to s1)."""
    return {match[1] for name in interfaces if (match := _INTERFACE.fullmatch(name))}


def _processes(proc: Path) -> list[_Process]:
    found = []
    for name in filter(str.isdigit, _list(proc)):
        try:
            status = (proc / name / "stat").read_text()
            arguments = (proc / name / "cmdline").read_text().rstrip("\0").split("\0")
        except (OSError, UnicodeDecodeError):
            continue  # it has ended meanwhile, or is not Mininet's
        # The name is in brackets and may contain any character, also brackets.
        before, _, after = status.rpartition(")")
        found.append(
            _Process(
                number=int(name),
                parent=int(after.split()[1]),
                name=before.partition("(")[2],
                arguments=tuple(arguments),
                namespace=_read(proc / name / "ns/net"),
            )
        )
    return found


def _names(path: Path) -> list[str]:
    """Return the interfaces that a /proc/net/dev lists."""
    try:
        lines = path.read_text().splitlines()[2:]
    except OSError:
        return []
    return [line.partition(":")[0].strip() for line in lines]


def _read(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""


def _list(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []

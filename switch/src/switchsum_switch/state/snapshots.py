"""Copies of what can change in a program's state: entries, arrays, groups, sessions, and which ports are up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from .profiles import ProfileContent
from .state import CloneSession, ProgramState, Replica
from .tables import TableContent
from .value_sets import ValueSetMember


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A copy of all state.  `Switch.restore` brings it back, also in another switch that runs the same program."""

    tables: Mapping[str, TableContent]
    profiles: Mapping[str, ProfileContent]
    arrays: tuple[npt.NDArray[Any], ...]
    """Counters, registers, meters, digests and the random generator, in the order of `_arrays`."""
    members: Mapping[str, tuple[ValueSetMember, ...]]
    """Members of parser value sets, whose entries are in `tables`."""
    groups: Mapping[int, tuple[Replica, ...]]
    sessions: Mapping[int, CloneSession]
    down: frozenset[int]
    """Ports that are down."""


def save(state: ProgramState) -> Snapshot:
    """Return a copy of a program's state."""
    with state.lock:
        return Snapshot(
            tables={name: table.save() for name, table in state.tables.items()},
            profiles={name: profile.save() for name, profile in state.profiles.items()},
            arrays=tuple(array.copy() for array in _arrays(state)),
            members={name: found.members for name, found in state.value_sets.items()},
            groups=state.multicast.groups(),
            sessions=state.clones.sessions(),
            down=state.ports.down,
        )


def restore(state: ProgramState, snapshot: Snapshot) -> None:
    """Bring back a copy; raises ValueError if it is another program's."""
    with state.lock:
        present = _arrays(state)
        if state.tables.keys() != snapshot.tables.keys() or [array.shape for array in present] != [
            array.shape for array in snapshot.arrays
        ]:
            raise ValueError("the snapshot is of another program")
        # Profiles first: entries name their members and groups.
        for name, kept_profile in snapshot.profiles.items():
            state.profiles[name].restore(kept_profile)
        for name, content in snapshot.tables.items():
            state.tables[name].restore(content)
        for array, kept in zip(present, snapshot.arrays, strict=True):
            array[:] = kept
        for name, members in snapshot.members.items():
            state.value_sets[name].members = members
        for group in state.multicast.groups():
            state.multicast.delete(group)
        for group, replicas in snapshot.groups.items():
            state.multicast.set(group, replicas)
        for number in state.clones.sessions():
            state.clones.delete(number)
        for number, session in snapshot.sessions.items():
            state.clones.set(number, session.replicas, session.length_limit, session.class_of_service)
        for port in snapshot.down ^ state.ports.down:
            state.ports.set(port, up=port not in snapshot.down)


def _arrays(state: ProgramState) -> list[npt.NDArray[Any]]:
    counters = [counter.counts for counter in state.counters.values()]
    registers = [register.memory for register in state.registers.values()]
    meters = [meter.cells for meter in state.meters.values()]
    digests = [digest.memory for digest in state.digests.values()]
    return [*counters, *registers, *meters, *digests, state.random]

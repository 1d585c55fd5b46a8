"""The state that the controller keeps on a switch, as plain values, and the writes that change one state into another.

Names of tables, fields and actions are those of the P4 program; `schema.py` turns them into P4Runtime's ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from switchsum_switch.messages.matches import Lpm, Range, Ternary

Match = int | Lpm | Ternary | Range
"""The match of a key field.

An integer is an exact or optional match.  A match of 0 bits is left out of the entry.
"""

EntryKey = tuple[str, tuple[tuple[str, Match], ...], int, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A table entry; fields and parameters have the program's names."""

    table: str
    """Full name."""
    match: Mapping[str, Match] = field(default_factory=dict)
    """Key fields; a field that is left out matches everything."""
    action: str
    """Full name."""
    params: Mapping[str, int] = field(default_factory=dict)
    """All parameters of the action."""
    priority: int = 0
    """Priority: at least 1 in tables with a ternary, range or optional key, where the largest wins. Else 0."""
    metadata: bytes = b""
    """Bytes that the switch stores and returns, and does not look at."""
    is_default: bool = False
    """The table's default action, which always exists."""

    @property
    def key(self) -> EntryKey:
        """What distinguishes this entry from all others."""
        return self.table, tuple(sorted(self.match.items())), self.priority, self.is_default


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Replica:
    """The destination of one copy of a packet."""

    port: int
    instance: int
    """Egress reads it as `egress_rid`; here it is the member's rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A multicast group."""

    group: int
    """Number, from 1."""
    replicas: frozenset[Replica]


@dataclass(slots=True)
class SwitchState:
    """Table entries and multicast groups of a switch."""

    entries: dict[EntryKey, Entry] = field(default_factory=dict)
    groups: dict[int, Group] = field(default_factory=dict)

    @classmethod
    def of(cls, items: Iterable[Entry | Group]) -> SwitchState:
        """Collect items; a later one takes the place of an earlier one with the same key."""
        state = cls()
        for item in items:
            state.put(item)
        return state

    def put(self, item: Entry | Group) -> None:
        """Add or replace an item."""
        if isinstance(item, Entry):
            self.entries[item.key] = item
        else:
            self.groups[item.group] = item

    def drop(self, item: Entry | Group) -> None:
        """Remove the item with the same key; raises KeyError if there is none."""
        if isinstance(item, Entry):
            del self.entries[item.key]
        else:
            del self.groups[item.group]

    def has(self, item: Entry | Group) -> bool:
        """Return whether there is an item with the same key."""
        return item.key in self.entries if isinstance(item, Entry) else item.group in self.groups

    def table(self, name: str) -> list[Entry]:
        """Return the entries of a table."""
        return [entry for entry in self.entries.values() if entry.table == name]


class Change(StrEnum):
    """The kind of a write."""

    INSERT = "insert"
    MODIFY = "modify"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One update of the switch's state."""

    change: Change
    item: Entry | Group
    """The item to write; of a DELETE only its key is used."""


def diff(current: SwitchState, desired: SwitchState, gate: str) -> list[list[Write]]:
    """Return the writes that change `current` into `desired`, in steps that must be carried out one after the other.

    Packets run between any two writes, and must never meet half of a change.  `gate` is the table without whose entry a
    packet uses nothing else (admission).  So its entries are deleted first and inserted last.  In between, old entries
    and groups are deleted before new ones are inserted, to make room.

    Default actions cannot be deleted; one that is not desired is left as it is.  They are set last, because one of them
    has the switch's own address.  Until a restarted switch knows this address it refuses no member's frames, and when
    it learns the address it knows its members already.
    """
    # The names give the order of the steps; empty steps are left out at the end.
    steps: list[list[Write]] = [[] for _ in range(7)]
    close_gate, delete_entries, delete_groups, put_groups, put_entries, open_gate, put_defaults = steps
    for key, entry in current.entries.items():
        if key not in desired.entries and not entry.is_default:
            step = close_gate if entry.table == gate else delete_entries
            step.append(Write(change=Change.DELETE, item=entry))
    for number, group in current.groups.items():
        if number not in desired.groups:
            delete_groups.append(Write(change=Change.DELETE, item=group))
    for number, group in desired.groups.items():
        if current.groups.get(number) != group:
            put_groups.append(Write(change=_putting(current, group), item=group))
    for key, entry in desired.entries.items():
        if current.entries.get(key) != entry:
            step = put_defaults if entry.is_default else open_gate if entry.table == gate else put_entries
            step.append(Write(change=_putting(current, entry), item=entry))
    return [step for step in steps if step]


def _putting(current: SwitchState, item: Entry | Group) -> Change:
    exists = current.has(item) or (isinstance(item, Entry) and item.is_default)
    return Change.MODIFY if exists else Change.INSERT

"""What the control plane keeps on a switch, as plain values, and how one such state becomes another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """A longest-prefix match."""

    value: int
    """Bits behind the prefix are 0."""
    length: int
    """Bits that must match, at least 1 (0 would be no match field at all)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Masked:
    """A ternary match."""

    value: int
    """Bits outside the mask are 0."""
    mask: int
    """Not 0 (that would be no match field at all)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """A range match, both ends included."""

    low: int
    high: int


Match = int | Prefix | Masked | Between
"""What a key field is compared with; a plain integer is an exact (or optional) match."""

EntryKey = tuple[str, tuple[tuple[str, Match], ...], int, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A table entry; fields and parameters go by the names that the program gives them."""

    table: str
    """Full name."""
    match: Mapping[str, Match] = field(default_factory=dict)
    """Key fields; one that is left out matches anything."""
    action: str
    """Full name."""
    params: Mapping[str, int] = field(default_factory=dict)
    """All parameters of the action."""
    priority: int = 0
    """Positive for tables with a ternary, range or optional key, where the largest wins; else 0."""
    metadata: bytes = b""
    """The switch keeps it and gives it back."""
    is_default: bool = False
    """The table's default action, which always exists."""

    @property
    def key(self) -> EntryKey:
        """What tells this entry from the others."""
        return self.table, tuple(sorted(self.match.items())), self.priority, self.is_default


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Replica:
    """Where a copy of a packet goes."""

    port: int
    instance: int
    """What egress sees as `egress_rid`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A multicast group."""

    group: int
    """Number, from 1."""
    replicas: frozenset[Replica]


@dataclass(slots=True)
class State:
    """Table entries and multicast groups of a switch."""

    entries: dict[EntryKey, Entry] = field(default_factory=dict)
    groups: dict[int, Group] = field(default_factory=dict)

    @classmethod
    def of(cls, items: Iterable[Entry | Group]) -> State:
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
        """Remove the item with this one's key; raises KeyError when there is none."""
        if isinstance(item, Entry):
            del self.entries[item.key]
        else:
            del self.groups[item.group]

    def has(self, item: Entry | Group) -> bool:
        """Whether an item has this one's key."""
        return item.key in self.entries if isinstance(item, Entry) else item.group in self.groups

    def table(self, name: str) -> list[Entry]:
        """Return the entries of a table."""
        return [entry for entry in self.entries.values() if entry.table == name]


class Change(StrEnum):
    """What a write does."""

    INSERT = "insert"
    MODIFY = "modify"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One update of the switch's state."""

    change: Change
    item: Entry | Group
    """Of a DELETE only the key matters."""


def diff(current: State, desired: State, gate: str) -> list[list[Write]]:
    """Return the writes that make `desired` of `current`, in steps that must follow one another.

    `gate` is the table that lets packets use the rest: it is closed first and opened last, so that no packet meets half
    of a change.  What is no longer wanted goes before anything new comes, to leave room.  Default actions cannot be
    deleted, and one that is not desired is left alone; they are set last of all: a switch that has been restarted and
    does not know yet who it is refuses nobody, and when it does it knows its members too.
    """
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


def _putting(current: State, item: Entry | Group) -> Change:
    exists = current.has(item) or (isinstance(item, Entry) and item.is_default)
    return Change.MODIFY if exists else Change.INSERT


def apply(steps: Sequence[Sequence[Write]], state: State) -> State:
    """Return the state after the writes; raises ValueError for one that a switch would refuse."""
    after = State(dict(state.entries), dict(state.groups))
    for write in (write for step in steps for write in step):
        exists = after.has(write.item) or (isinstance(write.item, Entry) and write.item.is_default)
        if exists is (write.change is Change.INSERT):
            raise ValueError(f"{write.change} of {'an existing' if exists else 'a missing'} {write.item}")
        if write.change is Change.DELETE:
            after.drop(write.item)
        else:
            after.put(write.item)
    return after

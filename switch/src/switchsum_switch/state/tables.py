"""Match-action tables as the control plane sees them: what a table looks like, and the entries in it.

The entries of a table live in numbered rows; row 0 stands for the default action.  An entry keeps its row as long as it
exists.  So a row is a name that the other parts of the switch can use: direct counters and meters are arrays indexed by
row, and a native engine keeps a copy of each entry under the same row (`Mirror`).

If every key field is exact, a dictionary finds the row of a key.  Otherwise `tuple_space.py` finds the matching entry
of the best rank: by priority if a key field is ternary or range, by prefix length if the table is LPM, and by age
among equals, as BMv2 does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from ..errors import BadEntry, EntryExists, EntryMissing, ReadOnly, TableFull
from ..messages.matches import Exact, Lpm, Match, MatchKind, Range, Ternary
from .counts import Counts
from .lock import StateLock
from .meters import Meter, MeterRates, MeterUnit
from .tuple_space import Ranges, Rank, RowPosition, TupleSpace

NO_ACTION: Final = "no action"
"""Action of a table that does nothing: the default where the program gives none, and what an empty group does."""

MOST_PRIORITY: Final = (1 << 31) - 1

_NEVER: Final = -1
"""Time of a hit that never was."""
_KINDS = {MatchKind.EXACT: Exact, MatchKind.LPM: Lpm, MatchKind.TERNARY: Ternary, MatchKind.RANGE: Range}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySpec:
    """One field of a table's key."""

    name: str
    """Name in the P4 program, or the one that its annotation @name gives."""
    width: int
    """Bits."""
    kind: MatchKind
    mask: int | None = None
    """The bits that the program compares (`key & mask: exact`); entries lose their other bits, as in BMv2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParamSpec:
    """One parameter of an action that the control plane supplies."""

    name: str
    width: int
    """Bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSpec:
    """An action as the control plane sees it."""

    name: str
    """Fully qualified P4 name."""
    params: tuple[ParamSpec, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """The declaration of a table."""

    name: str
    """Fully qualified P4 name."""
    keys: tuple[KeySpec, ...]
    actions: tuple[ActionSpec, ...]
    size: int
    """Number of entries that the table holds, without the default action."""
    const_entries: bool = False
    """The entries come from the program and cannot be changed."""
    const_default: bool = False
    """The default action cannot be changed."""
    has_counters: bool = False
    """Each entry, and the default action, counts its packets and bytes."""
    meter: MeterUnit | None = None
    """Unit of the entries' direct meters; None: entries have no meter."""
    profile: str | None = None
    """The action profile of which entries name a member or group; None: entries have actions."""
    ages: bool = False
    """Entries may have an idle timeout, and the time of each one's last hit is kept."""

    def action(self, name: str) -> ActionSpec:
        """Return the action of that name; raises BadEntry."""
        for action in self.actions:
            if action.name == name:
                return action
        raise BadEntry(f"table {self.name} has no action {name}")

    @property
    def prioritised(self) -> bool:
        """Whether entries have a priority, which they have if a key field is ternary or range."""
        return any(key.kind in (MatchKind.TERNARY, MatchKind.RANGE) for key in self.keys)


@dataclass(frozen=True, slots=True)
class ProfileMember:
    """A member of an action profile, in the place of an action."""

    number: int
    """Number of the member."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group of members of an action profile, in the place of an action."""

    number: int
    """Number of the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry: a match and an action, or a member or group of the table's action profile."""

    match: tuple[Match, ...]
    """One for each key field, in the table's order."""
    priority: int = 0
    """The largest wins, among equals the oldest.  At least 1 in a table that is prioritised, else 0."""
    action: str = NO_ACTION
    """Fully qualified P4 name."""
    params: tuple[int, ...] = ()
    via: ProfileMember | Group | None = None
    """Choice of an entry's action in a table with an action profile."""
    is_const: bool = False
    """The program declares this entry."""
    idle_timeout_ns: int = 0
    """The control plane is told when no packet has hit the entry for so long; 0: never."""


Combined = tuple[int, int, Ranges]
"""Value and mask of all key fields but ranges, side by side, the first field highest; and the ranges."""


class Mirror(Protocol):
    """A native engine's copy of a table; the table tells it of every change, under the pipeline's lock."""

    def put(self, row: int, entry: Entry, key: Combined) -> None:
        """Write an entry to a row; it is new there, or only its action has changed.  `key`: of `combined`."""

    def remove(self, row: int, entry: Entry) -> None:
        """Remove the entry of a row."""

    def set_default(self, action: str, params: tuple[int, ...]) -> None:
        """Write the default action."""

    def put_member(self, slot: int, action: str, params: tuple[int, ...]) -> None:
        """Write the action of a member of the table's action profile."""

    def put_choice(self, number: int, slots: Sequence[int], *, at_random: bool) -> None:
        """Write the slots of the members between which the profile's choice of that number chooses, and how."""

    def link(self, row: int, rank: Rank, place: RowPosition) -> None:
        """Let lookups find a row that was put; only for tables with a key field that is not exact, as `unlink`."""

    def unlink(self, row: int, place: RowPosition) -> None:
        """Let lookups find a row no more, before it is removed."""


class Chooses(Protocol):
    """An action profile, as far as a table needs it (`profiles.Profile`)."""

    @property
    def name(self) -> str:
        """Its P4 name."""

    @property
    def size(self) -> int:
        """Most members that it has."""

    def number_of(self, via: ProfileMember | Group) -> int:
        """Return the number of the choice that a member or group is; raises MemberMissing if there is none."""

    def choose(self, via: ProfileMember | Group, selected: int) -> tuple[str, tuple[int, ...]]:
        """Return the action and parameters of a member, or of the member of a group that a hash selects."""

    def at_random(self, via: ProfileMember | Group) -> bool:
        """Return whether a random number, not the selector's hash, chooses the member."""

    def attach(self, mirror: Mirror) -> None:
        """Write all members and choices to a mirror, and tell it of every change from now on."""


_Key = tuple[int, int, Ranges, int]
"""`Combined`, and the priority: numbers have quick hashes, matches have not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableContent:
    """What `Table.save` keeps."""

    default: tuple[str, tuple[int, ...]]
    entries: tuple[tuple[int, int | None, Entry], ...]
    """Row, age (None in a table that is all exact) and entry, in the order of insertion."""
    counts: npt.NDArray[np.uint64]
    cells: npt.NDArray[np.uint64] | None
    """The direct meters' words."""
    hits: npt.NDArray[np.int64]
    """`Table.hits_us`."""


class Table:
    """The entries of one table.  Every method holds the pipeline's lock, so that a change falls between two batches."""

    def __init__(self, spec: TableSpec, lock: StateLock, default: tuple[str, tuple[int, ...]]) -> None:
        self.spec = spec
        self.default = default
        """Name and parameters of the default action."""
        self._initial_default = default
        self.lock = lock
        """Held while entries change; whoever does several steps that belong together holds it for all of them."""
        # _rows finds an entry for the control plane, by match and priority; _by_value and _space find it for a packet.
        self._rows: dict[_Key, int] = {}
        self._entries: dict[int, Entry] = {}
        self._free: list[int] = []
        self._masked = any(key.mask is not None for key in spec.keys)
        self._prioritised = spec.prioritised
        self._kinds = [(_KINDS[key.kind], key) for key in spec.keys]
        self._actions = {action.name: action for action in spec.actions}
        self._exact = all(key.kind is MatchKind.EXACT for key in spec.keys)
        self._by_value: dict[tuple[int, ...], int] = {}
        self._space = TupleSpace()
        self._age = 0
        self._mirror: Mirror | None = None
        self.profile: Chooses | None = None
        """The action profile that the table uses."""
        self.counted = Counts(spec.size + 1 if spec.has_counters else 0)
        """Direct counters: packets and bytes by row."""
        self.meter = Meter(spec.name, spec.size + 1, spec.meter, lock) if spec.meter else None
        """Direct meters by row.  Row 0 is never used: the default action has no meter."""
        self.hits_us: npt.NDArray[np.int64] = np.full(spec.size + 1 if spec.ages else 0, _NEVER, np.int64)
        """Time of the last hit by row, if entries age; shared with the native engine."""

    def attach(self, mirror: Mirror) -> None:
        """Copy the table to a native engine's mirror, and tell it of every change from now on."""
        with self.lock:
            self._mirror = mirror
            if self.profile is not None:
                self.profile.attach(mirror)
            mirror.set_default(*self.default)
            for row, entry in self._entries.items():
                mirror.put(row, entry, combined(entry.match, self.spec.keys))
            for row, place in self._space.places():
                mirror.link(row, self._space.ranks[row], place)

    def insert(self, entry: Entry, age: int | None = None) -> None:
        """Add an entry; raises EntryExists, TableFull, ReadOnly or BadEntry.

        `age` is that of an entry which was deleted and comes back to its place among equals; None: it is the youngest.
        """
        with self.lock:
            self._writable()
            self._check(entry)
            self._add(self._as_compared(entry), age)

    def load(self, entry: Entry) -> None:
        """Add an entry that the program itself declares."""
        with self.lock:
            self._check(entry)
            self._add(self._as_compared(entry))

    def modify(self, entry: Entry) -> None:
        """Change the action of the entry with this match and priority; raises EntryMissing, ReadOnly or BadEntry."""
        with self.lock:
            self._writable()
            self._check(entry)
            entry = self._as_compared(entry)
            row = self._find(entry.match, entry.priority)
            self._entries[row] = entry
            if self._mirror:
                self._mirror.put(row, entry, combined(entry.match, self.spec.keys))

    def delete(self, match: tuple[Match, ...], priority: int = 0) -> int | None:
        """Remove the entry with this match and priority, and return its age; raises EntryMissing or ReadOnly."""
        with self.lock:
            self._writable()
            match = self.compared(match)
            row = self._find(match, priority)
            self._free.append(row)
            return self._remove(row)

    def get(self, match: tuple[Match, ...], priority: int = 0) -> Entry:
        """Return the entry with this match and priority; raises EntryMissing."""
        with self.lock:
            return self._entries[self._find(match, priority)]

    def entries(self) -> list[Entry]:
        """Return all entries, in the order of insertion."""
        with self.lock:
            return [self._entries[row] for row in self._rows.values()]

    def set_default(self, action: str, params: tuple[int, ...] = ()) -> None:
        """Change the default action; raises ReadOnly or BadEntry."""
        with self.lock:
            if self.spec.const_default:
                raise ReadOnly(f"the default action of table {self.spec.name} is const")
            self.check_action(action, params)
            self.default = action, params
            if self._mirror:
                self._mirror.set_default(action, params)

    @property
    def prioritised(self) -> bool:
        """Whether entries have a priority."""
        return self._prioritised

    @property
    def has_initial_default(self) -> bool:
        """Whether the default action is the one that the program gives."""
        return self.default == self._initial_default

    def reset_default(self) -> None:
        """Go back to the program's default action; raises ReadOnly."""
        self.set_default(*self._initial_default)

    def save(self) -> TableContent:
        """Return a copy of everything that can change."""
        with self.lock:
            entries = tuple((row, self._age_of(row), self._entries[row]) for row in self._rows.values())
            cells = self.meter.cells.copy() if self.meter else None
            counts, hits = self.counts.copy(), self.hits_us.copy()
            return TableContent(default=self.default, entries=entries, counts=counts, cells=cells, hits=hits)

    def restore(self, content: TableContent) -> None:
        """Bring back what `save` has returned for this table, or for one of the same program."""
        with self.lock:
            for row in list(self._entries):
                self._remove(row)
            for row, age, entry in content.entries:
                key = combined(entry.match, self.spec.keys)
                self._rows[*key, entry.priority] = row
                self._place(row, entry, key, age)
            rows = range(1, max(self._entries, default=0))
            self._free = [row for row in rows if row not in self._entries]
            self._age = max((age or 0 for _, age, _ in content.entries), default=0)
            self.default = content.default
            self.counts[:] = content.counts
            self.hits_us[:] = content.hits
            if self.meter and content.cells is not None:
                self.meter.cells[:] = content.cells
            if self._mirror:
                self._mirror.set_default(*content.default)

    @property
    def counts(self) -> npt.NDArray[np.uint64]:
        """Direct counters: packets and bytes by row, shared with the native engine."""
        return self.counted.all()

    def direct_counter(self, entry: Entry | None = None) -> tuple[int, int]:
        """Return packets and bytes of an entry, or of the default action; raises EntryMissing or BadEntry."""
        with self.lock:
            return self.counted.read(self._counted_row(entry))

    def set_direct_counter(self, entry: Entry | None, packets: int, count_bytes: int) -> None:
        """Set packets and bytes of an entry, or of the default action; raises EntryMissing or BadEntry."""
        with self.lock:
            self.counts[self._counted_row(entry)] = packets, count_bytes

    def direct_meter(self, entry: Entry) -> MeterRates | None:
        """Return how an entry's meter is configured; raises EntryMissing or BadEntry."""
        with self.lock:
            meter, row = self._metered_row(entry)
            return meter.rates(row)

    def set_direct_meter(self, entry: Entry, rates: MeterRates | None) -> None:
        """Configure an entry's meter; raises EntryMissing or BadEntry."""
        with self.lock:
            meter, row = self._metered_row(entry)
            meter.configure(row, rates)

    def meter_cell(self, entry: Entry) -> tuple[Meter, int]:
        """Return the meter of an entry, as a meter array and an index; raises EntryMissing or BadEntry."""
        with self.lock:
            return self._metered_row(entry)

    def last_hit_us(self, entry: Entry, now_us: int) -> int:
        """Return when a packet last hit an entry; of one that none has hit, now, from which its time then counts."""
        with self.lock:
            row = self._find(entry.match, entry.priority)
            if self.hits_us[row] == _NEVER:
                self.hits_us[row] = now_us
            return int(self.hits_us[row])

    def lookup(self, key: tuple[int, ...]) -> int:
        """Return the row that matches a key; 0 if none does."""
        if self._exact:
            return self._by_value.get(key, 0)
        number = 0
        ranged = []
        for value, spec in zip(key, self.spec.keys, strict=True):
            if spec.kind is MatchKind.RANGE:
                ranged.append(value)
            else:
                number = number << spec.width | value
        return self._space.lookup(number, tuple(ranged))

    @property
    def space(self) -> TupleSpace:
        """What finds the row of a key in a table with a key field that is not exact."""
        return self._space

    def action_of(self, row: int, selected: int = 0) -> tuple[str, tuple[int, ...]]:
        """Return the action and the parameters of a row; `selected`: the selector's hash, for a group."""
        if not row:
            return self.default
        entry = self._entries[row]
        if entry.via is not None and self.profile is not None:
            return self.profile.choose(entry.via, selected)
        return entry.action, entry.params

    def chooses(self, row: int) -> bool:
        """Return whether a row has a group, of which the selector chooses a member."""
        via = self._entries[row].via if row else None
        return isinstance(via, Group)

    def chooses_at_random(self, row: int) -> bool:
        """Return whether a random number, not the selector's hash, chooses the action of a row."""
        via = self._entries[row].via if row else None
        return via is not None and self.profile is not None and self.profile.at_random(via)

    def entry_of(self, row: int) -> Entry | None:
        """Return the entry of a row; None for row 0, which stands for the default action."""
        return self._entries[row] if row else None

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries())

    def __len__(self) -> int:
        return len(self._entries)

    def _writable(self) -> None:
        if self.spec.const_entries:
            raise ReadOnly(f"the entries of table {self.spec.name} are const")
        if not self.spec.keys:
            raise BadEntry(f"table {self.spec.name} has no key: it has only a default action")

    def compared(self, match: tuple[Match, ...]) -> tuple[Match, ...]:
        """Return a match without the bits that the program masks away."""
        if not self._masked:
            return match
        return tuple(_compared(one, key) for one, key in zip(match, self.spec.keys, strict=True))

    def _as_compared(self, entry: Entry) -> Entry:
        return replace(entry, match=self.compared(entry.match)) if self._masked else entry

    def _find(self, match: tuple[Match, ...], priority: int) -> int:
        row = None
        if len(match) == len(self.spec.keys):
            match = self.compared(match)
            row = self._rows.get((*combined(match, self.spec.keys), priority))
        # Matches that no entry of this table can have, of another kind or too wide, may make the same numbers.
        if row is None or self._entries[row].match != match:
            raise EntryMissing(f"table {self.spec.name} has no entry {_text(match, priority)}")
        return row

    def _counted_row(self, entry: Entry | None) -> int:
        if not self.spec.has_counters:
            raise BadEntry(f"table {self.spec.name} has no direct counter")
        return self._find(entry.match, entry.priority) if entry else 0

    def _metered_row(self, entry: Entry) -> tuple[Meter, int]:
        if self.meter is None:
            raise BadEntry(f"table {self.spec.name} has no direct meter")
        return self.meter, self._find(entry.match, entry.priority)

    def _add(self, entry: Entry, age: int | None = None) -> None:
        held = len(self._rows)
        # Rows of deleted entries are used again, so that the rows in use stay below the table's size.
        row = self._free[-1] if self._free else held + 1
        key = combined(entry.match, self.spec.keys)
        name = (*key, entry.priority)
        if name in self._rows:
            raise EntryExists(f"table {self.spec.name} already has an entry {_text(entry.match, entry.priority)}")
        if held >= self.spec.size:
            raise TableFull(f"table {self.spec.name} is full ({self.spec.size} entries)")
        self._rows[name] = row
        if self._free:
            self._free.pop()
        if self.spec.has_counters:
            self.counts[row] = 0
        if self.meter:
            self.meter.cells[row] = 0
        if self.spec.ages:
            self.hits_us[row] = _NEVER
        if age is None and not self._exact:
            self._age = age = self._age + 1
        self._place(row, entry, key, age)

    def _place(self, row: int, entry: Entry, key: Combined, age: int | None) -> None:
        """Put an entry into a row that is free, and whose number its key has."""
        self._entries[row] = entry
        if self._mirror:
            self._mirror.put(row, entry, key)
        if self._exact:
            self._by_value[_values(entry.match)] = row
            return
        assert age is not None
        # A table with both LPM and ternary fields goes by priority alone (P4Runtime specification, "Match Format").
        best = entry.priority if self._prioritised else _longest(entry.match)
        rank = (-best, age, row)
        place = self._space.add(rank, *key)
        if self._mirror:
            self._mirror.link(row, rank, place)

    def _remove(self, row: int) -> int | None:
        """Remove the entry of a row, and return its age; the row may be used again."""
        entry, age = self._entries.pop(row), self._age_of(row)
        del self._rows[*combined(entry.match, self.spec.keys), entry.priority]
        if self._exact:
            del self._by_value[_values(entry.match)]
        else:
            place = self._space.remove(row)
            if self._mirror:
                self._mirror.unlink(row, place)
        if self._mirror:
            self._mirror.remove(row, entry)
        return age

    def _age_of(self, row: int) -> int | None:
        return None if self._exact else self._space.ranks[row][1]

    def _check(self, entry: Entry) -> None:
        spec = self.spec
        if len(entry.match) != len(spec.keys):
            raise BadEntry(f"table {spec.name} has {len(spec.keys)} key fields, the entry {len(entry.match)}")
        for match, (kind, key) in zip(entry.match, self._kinds, strict=True):
            if type(match) is not kind:
                raise BadEntry(f"key {key.name} of table {spec.name} is {key.kind.value}, not {match}")
            if (
                type(match) is Ternary
                and match.value >= 0
                and not (match.mask >> key.width or match.value & ~match.mask)
            ):
                continue  # as `_problem` says of it, without a call for each of many key fields
            if problem := _problem(match, key.width):
                raise BadEntry(f"key {key.name} of table {spec.name}: {problem}")
        if self._prioritised != (entry.priority > 0):
            need = "needs a priority above 0" if self._prioritised else "has no priorities"
            raise BadEntry(f"table {spec.name} {need}, the entry has {entry.priority}")
        if entry.priority > MOST_PRIORITY:
            raise BadEntry(f"priority {entry.priority} is above {MOST_PRIORITY}, the largest that P4Runtime has")
        self._check_via(entry)

    def _check_via(self, entry: Entry) -> None:
        """Check that an entry has an action, or what stands in its place."""
        if self.profile is None:
            if entry.via is not None:
                raise BadEntry(f"table {self.spec.name} has no action profile: its entries have actions")
            self.check_action(entry.action, entry.params)
        elif entry.via is None:
            raise BadEntry(f"entries of table {self.spec.name} name a member or group of {self.profile.name}")
        else:
            self.profile.number_of(entry.via)

    def check_action(self, name: str, params: tuple[int, ...]) -> None:
        """Raise BadEntry unless the table has that action and it takes these parameters."""
        action = self._actions.get(name) or self.spec.action(name)
        if len(params) != len(action.params):
            raise BadEntry(f"action {name} has {len(action.params)} parameters, {len(params)} given")
        for value, param in zip(params, action.params, strict=True):
            if not 0 <= value < 1 << param.width:
                raise BadEntry(f"parameter {param.name} of action {name}: {value:#x} does not fit {param.width} bits")


def _compared(match: Match, key: KeySpec) -> Match:
    """Return the match of one key field without the bits that the program masks away."""
    if key.mask is None or isinstance(match, Range):
        return match
    return replace(match, value=match.value & key.mask)


def combined(match: tuple[Match, ...], keys: tuple[KeySpec, ...]) -> Combined:
    """Return value and mask of all fields but ranges, and the ranges."""
    value = mask = 0
    ranges: Ranges = ()
    for field, key in zip(match, keys, strict=True):
        width = key.width
        if type(field) is Ternary:  # first, for most key fields of large keys are
            value, mask = value << width | field.value, mask << width | field.mask
            continue
        if isinstance(field, Range):
            ranges += ((field.low, field.high),)
            continue
        value = value << width | field.value
        full = (1 << width) - 1
        mask = mask << width | (full ^ full >> field.prefix_len if isinstance(field, Lpm) else full)
    return value, mask, ranges


def _longest(match: tuple[Match, ...]) -> int:
    """Return the length of the longest prefix of a match."""
    longest = 0
    for one in match:
        if isinstance(one, Lpm) and one.prefix_len > longest:
            longest = one.prefix_len
    return longest


def _values(match: tuple[Match, ...]) -> tuple[int, ...]:
    return tuple(field.value for field in match if isinstance(field, Exact))


def _text(match: tuple[Match, ...], priority: int) -> str:
    fields = ", ".join(map(str, match))
    return f"({fields}) of priority {priority}" if priority else f"({fields})"


def _problem(match: Match, width: int) -> str:
    """Return what is wrong with a match of a field of that width; an empty text if nothing is."""
    full = (1 << width) - 1
    # First what is usual, in a third of the time of what follows.
    if isinstance(match, Lpm) and 0 <= match.prefix_len <= width and 0 <= match.value <= full:
        if not match.value & full >> match.prefix_len:
            return ""
    elif isinstance(match, Exact) and 0 <= match.value <= full:
        return ""
    match match:
        case Exact(value) if not 0 <= value <= full:
            return f"{value:#x} does not fit {width} bits"
        case Lpm(value, length) if not (0 <= length <= width and 0 <= value <= full):
            return f"{value:#x}/{length} does not fit {width} bits"
        case Lpm(value, length) if value & (full >> length):
            return f"{value:#x} has bits beyond its prefix of {length}"
        case Ternary(value, mask) if not (0 <= value <= full and 0 <= mask <= full):
            return f"{value:#x} &&& {mask:#x} does not fit {width} bits"
        case Ternary(value, mask) if value & ~mask:
            return f"{value:#x} has bits outside its mask {mask:#x}"
        case Range(low, high) if low < 0 or high > full:
            return f"{low:#x} .. {high:#x} does not fit {width} bits"
        case Range(low, high) if low > high:
            return f"{low:#x} .. {high:#x} is empty"
    return ""

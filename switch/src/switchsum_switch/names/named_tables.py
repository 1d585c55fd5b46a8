"""A table as the writer of a P4 program uses it: keys, actions and parameters by name, values as they are written."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any

from ..errors import BadEntry, EntryExists, EntryMissing, MemberMissing
from ..messages.matches import Match, MatchKind, Ternary
from ..state.meters import Meter, MeterRates
from ..state.tables import ActionSpec, Entry, Group, KeySpec, ProfileMember, Table
from .named import Named, listed
from .values import match_of, match_text, matches_text, number_of, text_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRules:
    """What P4Info says of a table beyond the program."""

    optional: frozenset[str] = frozenset()
    """Keys of match kind optional: their mask is all ones or nothing."""
    entry_actions: frozenset[str] | None = None
    """Actions that entries may have; None: all."""
    default_actions: frozenset[str] | None = None
    """Actions that may be the default; None: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownEntry:
    """An entry as it is read back."""

    match: dict[str, str]
    """Values by key, in the forms that `insert` takes."""
    priority: int
    """Priority; 0 in a table that has none."""
    action: str
    """Name of the action, or `member 8` or `group 1` of the table's action profile."""
    params: dict[str, int]
    """The action's parameters by name."""
    packets: int | None = None
    """Packets that its direct counter has counted; None: it has none."""
    bytes: int | None = None
    """Bytes that its direct counter has counted; None: it has none."""

    def __str__(self) -> str:
        key = ", ".join(f"{name}={value}" for name, value in self.match.items()) or "default"
        params = ", ".join(f"{name}={value}" for name, value in self.params.items())
        # No action has a space in its name.
        runs = self.action if " " in self.action else f"{self.action}({params})"
        first = f" priority {self.priority}" if self.priority else ""
        counted = "" if self.packets is None else f" [{self.packets} packets, {self.bytes} bytes]"
        return f"{key}{first} -> {runs}{counted}"


class NamedTable:
    """A table of a `Switch`.

    Example:
        >>> table = switch.tables["ingress.ipv4"]  # doctest: +SKIP
        >>> table.insert({"hdr.ipv4.dst": "10.0.0.0/8"}, "forward", port=3)  # doctest: +SKIP

    """

    def __init__(self, table: Table, rules: TableRules | None = None) -> None:
        """Show `table`, with what P4Info says of it."""
        self.table = table
        """The table itself, with numbers in the place of names."""
        self.name = table.spec.name
        self._rules = rules or TableRules()
        self._keys = Named(f"key of table {self.name}", {key.name: key for key in table.spec.keys})
        self._actions = Named(f"action of table {self.name}", {action.name: action for action in table.spec.actions})

    @property
    def keys(self) -> dict[str, str]:
        """The keys and their types, such as `{"hdr.ipv4.dst": "lpm bit<32>"}`."""
        return {key.name: f"{self._kind(key)} bit<{key.width}>" for key in self.table.spec.keys}

    @property
    def actions(self) -> dict[str, dict[str, str]]:
        """The actions with their parameters and these parameters' types."""
        return {
            action.name: {param.name: f"bit<{param.width}>" for param in action.params}
            for action in self.table.spec.actions
        }

    def insert(
        self,
        match: Mapping[str, Any],
        action: str | ProfileMember | Group,
        given: Mapping[str, Any] | None = None,
        /,
        *,
        priority: int = 0,
        **params: Any,
    ) -> None:
        """Add an entry.

        Args:
            match: The value of each key by its name; `names.values.match_of` lists the forms.  A key that is
                not exact and is left out matches everything.
            action: Name of the action.  Of a table with an action profile, `ProfileMember(number)` or `Group(number)`.
            given: The action's parameters as a dict, as for one that is called `priority`.
            priority: Of a table with a ternary, optional or range key, at least 1; the largest wins.
            params: The action's parameters by name.

        Raises:
            KeyError: The table has no such key or action, or the action no such parameter; the text says what there is.
            ValueError: A value does not fit its key or parameter, or one is missing.
            TypeError: A value is no number, address or bytes.
            EntryExists, TableFull, ReadOnly: The table does not take the entry.

        """
        entry = self._entry(match, action, priority, _together(given, params))
        try:
            self.table.insert(entry)
        except EntryExists:
            raise EntryExists(f"table {self.name} already has the entry {self._place(entry)}") from None

    def modify(
        self,
        match: Mapping[str, Any],
        action: str | ProfileMember | Group,
        given: Mapping[str, Any] | None = None,
        /,
        *,
        priority: int = 0,
        **params: Any,
    ) -> None:
        """Change the action of an entry.

        Args:
            match: As in `insert`; with `priority` it names the entry.
            action: As in `insert`.
            given: As in `insert`.
            priority: As in `insert`.
            params: As in `insert`.

        Raises:
            EntryMissing: There is no such entry.
            KeyError: As in `insert`; also ValueError, TypeError and ReadOnly.

        """
        entry = self._entry(match, action, priority, _together(given, params))
        with self._naming(entry.match, priority):
            self.table.modify(entry)

    def delete(self, match: Mapping[str, Any], /, *, priority: int = 0) -> None:
        """Remove an entry.

        Args:
            match: As in `insert`; with `priority` it names the entry.
            priority: As in `insert`.

        Raises:
            EntryMissing: There is no such entry.
            ReadOnly: The program declares the entries const.
            KeyError: As in `insert`; also ValueError and TypeError.

        """
        found = self._match(match)
        with self._naming(found, priority):
            self.table.delete(found, priority)

    def clear(self) -> None:
        """Remove all entries; raises ReadOnly."""
        with self.table.lock:
            for entry in self.table.entries():
                self.table.delete(entry.match, entry.priority)

    def set_meter(self, match: Mapping[str, Any], rates: MeterRates | None, /, *, priority: int = 0) -> None:
        """Configure the direct meter of an entry.

        Args:
            match: As in `insert`; with `priority` it names the entry.
            rates: Rates and bursts; None: the meter gives green again.
            priority: As in `insert`.

        Raises:
            EntryMissing: There is no such entry.
            BadEntry: The table has no direct meter, or no meter can have these rates.
            KeyError: As in `insert`; also ValueError and TypeError.

        """
        with self.table.lock:  # the row may not become another entry's meanwhile
            meter, row = self._meter_of(match, priority)
            meter.configure(row, rates)

    def meter_counts(self, match: Mapping[str, Any], /, *, priority: int = 0) -> tuple[tuple[int, int], ...]:
        """Return what passed the direct meter of an entry.

        Args:
            match: As in `insert`; with `priority` it names the entry.
            priority: As in `insert`.

        Returns:
            Packets and bytes that were green, yellow and red.

        Raises:
            EntryMissing: There is no such entry.
            BadEntry: The table has no direct meter.
            KeyError: As in `insert`; also ValueError and TypeError.

        """
        with self.table.lock:
            meter, row = self._meter_of(match, priority)
            return meter.counts(row)

    def _meter_of(self, match: Mapping[str, Any], priority: int) -> tuple[Meter, int]:
        found = self.table.compared(self._match(match))
        with self._naming(found, priority):
            return self.table.meter_cell(Entry(match=found, priority=priority))

    def set_default(self, action: str, given: Mapping[str, Any] | None = None, /, **params: Any) -> None:
        """Change the default action.

        Args:
            action: Name of the action.
            given: The action's parameters as a dict.
            params: The action's parameters by name.

        Raises:
            ReadOnly: The program declares the default action const.
            KeyError: As in `insert`; also ValueError and TypeError.

        """
        spec, values = self._action(action, _together(given, params), self._rules.default_actions, "the default action")
        self.table.set_default(spec.name, values)

    @property
    def default(self) -> ShownEntry:
        """The default action."""
        with self.table.lock:
            action, values = self.table.default
            counts = self.table.direct_counter() if self.table.spec.has_counters else (None, None)
        return self._shown({}, 0, action, values, counts)

    def entries(self) -> list[ShownEntry]:
        """Return the entries in the order in which they were added."""
        return list(self)

    def __iter__(self) -> Iterator[ShownEntry]:
        """Yield the entries in the order in which they were added."""
        with self.table.lock:
            found = [(entry, self._counts(entry)) for entry in self.table.entries()]
        for entry, counts in found:
            pairs = zip(self.table.spec.keys, entry.match, strict=True)
            match = {key.name: match_text(one, key) for key, one in pairs}
            action, params = (entry.action, entry.params) if entry.via is None else (via_text(entry.via), ())
            yield self._shown(match, entry.priority, action, params, counts)

    def __len__(self) -> int:
        """Return how many entries there are."""
        return len(self.table)

    def __repr__(self) -> str:
        """Say what the table is."""
        return f"<table {self.name}: {len(self)} of {self.table.spec.size} entries, {len(self.keys)} keys>"

    def _repr_html_(self) -> str:
        rows = "".join(f"<li><code>{escape(str(entry))}</code></li>" for entry in [*self, self.default])
        return f"<p>{escape(repr(self)[1:-1])}</p><ul>{rows}</ul>"

    def _counts(self, entry: Entry) -> tuple[int | None, int | None]:
        return self.table.direct_counter(entry) if self.table.spec.has_counters else (None, None)

    @contextmanager
    def _naming(self, match: tuple[Match, ...], priority: int) -> Iterator[None]:
        """Name an entry that is missing as its writer does."""
        try:
            yield
        except MemberMissing:
            raise
        except EntryMissing:
            place = self._place(Entry(match=match, priority=priority))
            raise EntryMissing(f"table {self.name} has no entry {place}") from None

    def _place(self, entry: Entry) -> str:
        first = f" of priority {entry.priority}" if entry.priority else ""
        return f"{matches_text(entry.match, self.table.spec.keys)}{first}"

    def _kind(self, key: KeySpec) -> str:
        return "optional" if key.name in self._rules.optional else key.kind.value

    def _shown(
        self, match: dict[str, str], priority: int, action: str, values: tuple[int, ...], counts: tuple[Any, Any]
    ) -> ShownEntry:
        names = [param.name for param in self._actions[action].params] if values else []
        params = dict(zip(names, values, strict=True))
        return ShownEntry(
            match=match, priority=priority, action=action, params=params, packets=counts[0], bytes=counts[1]
        )

    def _entry(
        self, match: Mapping[str, Any], action: str | ProfileMember | Group, priority: int, params: Mapping[str, Any]
    ) -> Entry:
        try:
            priority = operator.index(priority)
        except TypeError:
            raise TypeError(f"table {self.name}: a priority is a whole number, not {priority!r}") from None
        if self.table.spec.prioritised and priority < 1:
            raise BadEntry(f"table {self.name} has keys that are not exact: an entry needs priority=1 or more")
        if not self.table.spec.prioritised and priority:
            raise BadEntry(f"table {self.name} has exact and lpm keys alone: its entries have no priority")
        if isinstance(action, (ProfileMember, Group)):
            if params:
                raise BadEntry(f"{via_text(action)} has its parameters already: {listed(list(params))}")
            return Entry(match=self._match(match), priority=priority, via=action)
        if (profile := self.table.spec.profile) is not None:
            raise BadEntry(
                f"table {self.name} has the action profile {profile}: its entries have ProfileMember(number) or "
                "Group(number) in the place of an action"
            )
        spec, values = self._action(action, params, self._rules.entry_actions, "an entry's action")
        return Entry(match=self._match(match), priority=priority, action=spec.name, params=values)

    def _keys_text(self) -> str:
        return f"keys are {', '.join(f'{name} ({kind})' for name, kind in self.keys.items())}"

    def _match(self, match: Mapping[str, Any]) -> tuple[Match, ...]:
        if not isinstance(match, Mapping):
            raise TypeError(
                f"table {self.name}: a match is a dict of values by key, not {match!r}; {self._keys_text()}"
            )
        given = {self._keys[name].name: value for name, value in match.items()}
        missing = [key.name for key in self.table.spec.keys if key.kind is MatchKind.EXACT and key.name not in given]
        if missing:
            raise BadEntry(f"table {self.name}: the exact key {missing[0]} has no value; {self._keys_text()}")
        return tuple(self._one(key, given.get(key.name)) for key in self.table.spec.keys)

    def _one(self, key: KeySpec, value: Any) -> Match:
        made = match_of(value, key, f"key {key.name} of table {self.name}")
        full = (1 << key.width) - 1
        if key.name in self._rules.optional and isinstance(made, Ternary) and made.mask not in (0, full):
            raise BadEntry(f"key {key.name} of table {self.name} is optional: it takes a value or nothing, no mask")
        return made

    def _action(
        self, name: str, params: Mapping[str, Any], allowed: frozenset[str] | None, use: str
    ) -> tuple[ActionSpec, tuple[int, ...]]:
        spec = self._actions[name]
        if allowed is not None and spec.name not in allowed:
            raise BadEntry(f"{spec.name} may not be {use} of table {self.name}")
        return spec, params_of(spec, params)


def params_of(spec: ActionSpec, params: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the parameters of an action, given by name; raises what `NamedTable.insert` raises for them."""
    known = Named(f"parameter of action {spec.name}", {param.name: param for param in spec.params})
    given = {known[name].name: value for name, value in params.items()}
    missing = [param.name for param in spec.params if param.name not in given]
    if missing:
        text = f"action {spec.name} lacks {missing[0]}; its parameters are {listed(list(known))}"
        if missing[0] == "priority":
            text += " (priority= is that of the entry: give the parameters as a dict behind the action)"
        raise BadEntry(text)
    return tuple(
        number_of(given[param.name], param.width, f"parameter {param.name} of action {spec.name}")
        for param in spec.params
    )


def _together(given: Mapping[str, Any] | None, params: Mapping[str, Any]) -> Mapping[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"parameters are named: port={given!r}, or a dict of them, not {given!r} alone")
    return {**(given or {}), **params}


def via_text(via: ProfileMember | Group) -> str:
    """Return a member or group as a reader wants it."""
    return f"{'member' if isinstance(via, ProfileMember) else 'group'} {via.number}"


def describe(entry: Entry, table: Table) -> str:
    """Return an entry as one line."""
    match = matches_text(entry.match, table.spec.keys)
    if entry.via is not None:
        return f"{match} -> {via_text(entry.via)}"
    params = zip(table.spec.action(entry.action).params, entry.params, strict=True)
    shown = ", ".join(f"{param.name}={text_of(value, param.width, param.name)}" for param, value in params)
    return f"{match} -> {entry.action}({shown})"

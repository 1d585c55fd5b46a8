"""From the names in an STF file to tables, keys, actions and arguments of a program.

p4c's test driver takes the end of a name for the whole, and `h$1` for `h[1]`; so does this.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from ..messages.matches import Exact, Lpm, Match, Range, Ternary
from ..program import model
from .language import Call, MatchValue

_KINDS: Final = {"valid": "exact", "optional": "ternary", "selector": "selector"}
_Item = TypeVar("_Item")


class NoSuchName(LookupError):
    """A name that the program lacks, or that may mean several."""

    def __str__(self) -> str:
        return str(self.args[0])


class Names:
    """What a program has names for."""

    def __init__(self, program: model.Bmv2Program) -> None:
        self._tables = {table.name: table for control in (program.ingress, program.egress) for table in control.tables}
        self._actions = {action.id: action for action in program.actions}
        self._widths = {
            (header.name, field.name): field.width for header in program.headers for field in header.type.fields
        }
        self.counters = {counter.name: counter for counter in program.counters}
        self.registers = {register.name: register for register in program.registers}
        self.meters = {meter.name: meter for meter in program.meters}
        self.value_sets = program.value_sets

    def tables(self) -> Iterable[model.Table]:
        """Return all tables."""
        return self._tables.values()

    def table(self, name: str) -> model.Table:
        """Return a table by its name, or by an end of it; raises NoSuchName."""
        return _named("table", name, self._tables)

    def array(self, what: str, name: str, among: Iterable[str]) -> str:
        """Return the whole name of a counter, register, meter or value set; raises NoSuchName."""
        return _named(what, name, {one: one for one in among})

    def call(self, table: model.Table, call: Call) -> tuple[str, tuple[int, ...]]:
        """Return the whole name of an action of a table and its arguments in order; raises NoSuchName."""
        actions = {self._actions[number].name: self._actions[number] for number in table.action_ids}
        action = _named(f"action of table {table.name}", call.action, actions)
        given = dict(call.arguments)
        names = [name for name, _ in action.params]
        if set(given) != set(names):
            raise NoSuchName(f"action {action.name} takes {', '.join(names) or 'nothing'}, not {', '.join(given)}")
        for name, width in action.params:
            if given[name] >> width:
                raise NoSuchName(f"{given[name]:#x} does not fit the {width} bits of {name} of action {action.name}")
        return action.name, tuple(given[name] for name in names)

    def action(self, number: int) -> model.Action:
        """Return an action by its number in the JSON."""
        return self._actions[number]

    def prioritised(self, table: model.Table) -> bool:
        """Return whether entries of a table have priorities."""
        return any(key_kind(key) in ("ternary", "range") for key in table.keys)

    def width(self, key: model.TableKey) -> int:
        """Return the bits of a key field."""
        return self._widths.get((key.operand.header, key.operand.field), 1)

    def matches(self, table: model.Table, given: Sequence[tuple[str, MatchValue]]) -> tuple[Match, ...]:
        """Return the matches of an entry, in the table's order; raises NoSuchName.

        A key that is not given matches zero if it is exact, else everything.
        """
        values = {_key(table, name).name: value for name, value in given}
        return tuple(self._match(key, values.get(key.name)) for key in table.keys if key.kind != "selector")

    def _match(self, key: model.TableKey, value: MatchValue | None) -> Match:
        kind, width = key_kind(key), self.width(key)
        number = value.number() if value else 0
        if number >> width:
            raise NoSuchName(f"{number:#x} does not fit the {width} bits of key {key.name}")
        full = (1 << width) - 1
        if kind == "lpm":
            # Without a length all bits are compared but those of stars at the end: 0x0a0000** has 24.
            length = 0
            if value:
                length = value.prefix_len if value.prefix_len is not None else max(0, width - value.starred_bits())
            if length > width:
                raise NoSuchName(f"key {key.name} has {width} bits, no prefix of {length}")
            return Lpm(number & full >> (width - length) << (width - length) if length else 0, length)
        if kind == "ternary":
            mask = value.written_mask() & full if value else 0
            return Ternary(number & mask, mask)
        if kind == "range":
            high = int(value.high, 0) if value and value.high else number if value else full
            return Range(number, high)
        return Exact(number)


def key_kind(key: model.TableKey) -> str:
    """Return how a key field is compared: exact, lpm, ternary, range or selector."""
    return _KINDS.get(key.kind, key.kind)


def _key(table: model.Table, name: str) -> model.TableKey:
    parts = name.split("$")
    wanted = name
    if len(parts) > 1 and parts[1][:1].isdigit():  # h$1.f: brackets were no letters of names once
        digits = len(parts[1]) - len(parts[1].lstrip("0123456789"))
        wanted = f"{parts[0]}[{parts[1][:digits]}]{parts[1][digits:]}"
    keys = {key.name.removesuffix("$"): key for key in table.keys}
    fields = {f"{key.operand.header}.{key.operand.field}": key for key in table.keys}
    for form in (wanted, wanted.removesuffix("$"), f"{wanted}.$valid$", wanted.removesuffix(".valid") + ".$valid$"):
        for among in (keys, fields):
            if form in among:
                return among[form]
    ends = [key for form, key in (*keys.items(), *fields.items()) if form.endswith(f".{wanted}")]
    if wanted.removesuffix("$") in ("valid", "$valid"):
        ends += [key for key in table.keys if key.kind == "valid" or key.operand.field == "$valid$"]
    if not ends:
        raise NoSuchName(f"table {table.name} has no key {name}; its keys: {', '.join(keys) or 'none'}")
    return ends[0]


def _named(what: str, name: str, among: dict[str, _Item]) -> _Item:
    if name in among:
        return among[name]
    ends = [whole for whole in among if whole.endswith(f".{name}")] or [
        whole for whole in among if whole.endswith(name)
    ]
    if len(ends) != 1:
        known = ", ".join(ends or among) or "none"
        raise NoSuchName(f"{'several' if ends else 'no'} {what} {name}; there is: {known}")
    return among[ends[0]]

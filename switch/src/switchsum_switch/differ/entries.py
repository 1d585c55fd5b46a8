"""Random entries that packets hit: their keys are made of those that lookups have looked for."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from switchsum_switch.messages.matches import Exact, Lpm, Match, Range, Ternary
from switchsum_switch.program import model
from switchsum_switch.stf import Names

from .case import Default, Insert
from .packets import PORTS

_LARGEST_PRIORITY: Final = 50
MEMBERS: Final = 4
"""Most members of a group."""


class Entries:
    """Makes entries for one program."""

    def __init__(self, program: model.Bmv2Program, names: Names, random: Random) -> None:
        self._program, self._names, self._random = program, names, random

    def for_key(self, name: str, key: Sequence[int], prefixes: bool = True) -> Insert | None:
        """Return an entry that matches a key, mostly; None if the table takes none.

        Without `prefixes` an lpm key has none, so that it matches everything.
        """
        table = self._names.table(name)
        fields = [field for field in table.keys if field.kind != "selector"]
        if not fields or table.const_entries or not _actions(table):
            return None
        match = tuple(
            self._match(field, self._names.width(field), value) if prefixes or field.kind != "lpm" else Lpm(0, 0)
            for field, value in zip(fields, key, strict=False)
        )
        if len(match) != len(fields):
            return None
        action, params = self._call(table)
        priority = self._random.randint(1, _LARGEST_PRIORITY) if self._names.prioritised(table) else 0
        further = self._random.randrange(MEMBERS) if table.kind == "indirect_ws" else 0
        others = tuple(self._call(table) for _ in range(further))
        return Insert(table=name, match=match, priority=priority, action=action, params=params, others=others)

    def default(self, name: str) -> Default | None:
        """Return a default action; None if the table's is const."""
        table = self._names.table(name)
        if not _actions(table) or (table.default is not None and table.default.const):
            return None
        action, params = self._call(table)
        return Default(table=name, action=action, params=params)

    def _call(self, table: model.Table) -> tuple[str, tuple[int, ...]]:
        action = self._names.action(self._random.choice(_actions(table)))
        return action.name, tuple(self._argument(name, width) for name, width in action.params)

    def _argument(self, name: str, width: int) -> int:
        # Ports have 9 bits; other arguments may be ports, groups and sessions as well.
        if width == 9 or self._random.random() < 1 / 3:
            return self._random.randrange(PORTS) & ((1 << width) - 1)
        return self._random.getrandbits(width)

    def _match(self, field: model.TableKey, width: int, value: int) -> Match:
        full = (1 << width) - 1
        value &= full
        if field.mask is not None:
            value &= field.mask
        if self._random.random() < 1 / 16:
            value ^= 1 << self._random.randrange(width)
        match field.kind:
            case "lpm":
                length = self._random.choice((0, width, self._random.randint(0, width)))
                mask = full >> (width - length) << (width - length) if length else 0
                return Lpm(value & mask, length)
            case "ternary":
                mask = self._random.choice((0, full, self._random.getrandbits(width)))
                return Ternary(value & mask, mask)
            case "range":
                low, high = self._random.randint(0, value), self._random.randint(value, full)
                return Range(*self._random.choice(((low, high), (value, value), (0, full))))
            case "optional":
                mask = self._random.choice((0, full))
                return Ternary(value & mask, mask)
        return Exact(value)


def _actions(table: model.Table) -> list[int]:
    """Return the actions that the program declares for a table: doing nothing need not be one of them."""
    return [number for number in table.action_ids if number >= 0]

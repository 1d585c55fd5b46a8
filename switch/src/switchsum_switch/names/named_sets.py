"""A parser value set as the writer of a P4 program uses it: members as they are written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..errors import BadEntry, EntryExists, EntryMissing
from ..messages.matches import Match, MatchKind
from ..state.tables import KeySpec
from ..state.value_sets import ValueSet
from .values import match_of, match_text


class NamedValueSet:
    """A value set of a `Switch`.

    Example:
        >>> ports = switch.value_sets["cached_ports"]  # doctest: +SKIP
        >>> ports.add(7000)  # doctest: +SKIP
        >>> ports.add("8000..8007")  # doctest: +SKIP
        >>> ports.members  # doctest: +SKIP
        ['7000', '8000..8007']

    """

    def __init__(self, value_set: ValueSet) -> None:
        """Show `value_set`."""
        self.value_set = value_set
        """The set itself, with numbers in the place of values."""
        self.name = value_set.name
        self._keys = value_set.tables[0].spec.keys if value_set.tables else ()

    def add(self, *fields: Any) -> None:
        """Add a member.

        Args:
            fields: A value for each field of the select: a plain one, `"0x0800 &&& 0xff00"`, `"10.0.0.0/8"`,
                `"8000..8007"`, or `(value, mask)`.

        Raises:
            EntryExists: The set has this member.
            TableFull: The set has no room.
            ValueError: A value does not fit its field, or there are more or fewer than fields.
            TypeError: A value is no number, address or bytes.

        """
        member = self._member(fields)
        with self.value_set.lock:
            if member in self.value_set.members:
                raise EntryExists(f"value set {self.name} has the member {self._text(member)}")
            self.value_set.set([*self.value_set.members, member])

    def remove(self, *fields: Any) -> None:
        """Remove a member.

        Args:
            fields: As in `add`.

        Raises:
            EntryMissing: The set has no such member.
            ValueError: As `add` raises it; so is TypeError.

        """
        member = self._member(fields)
        with self.value_set.lock:
            if member not in self.value_set.members:
                raise EntryMissing(f"value set {self.name} has no member {self._text(member)}")
            self.value_set.set([one for one in self.value_set.members if one != member])

    def clear(self) -> None:
        """Remove all members."""
        self.value_set.set([])

    @property
    def members(self) -> list[str]:
        """The members, in the forms that `add` takes; fields have commas between them."""
        return [self._text(member) for member in self.value_set.members]

    def __len__(self) -> int:
        """Return how many members there are."""
        return len(self.value_set.members)

    def __repr__(self) -> str:
        """List the members."""
        return f"<value set {self.name}: {'; '.join(self.members) or 'no members'}>"

    def _member(self, fields: tuple[Any, ...]) -> tuple[Match, ...]:
        if len(fields) != len(self._keys):
            raise BadEntry(f"value set {self.name} has {len(self._keys)} fields, and {len(fields)} values are given")
        what = f"value set {self.name}"
        return tuple(match_of(value, _key(value, key), what) for value, key in zip(fields, self._keys, strict=True))

    def _text(self, member: tuple[Match, ...]) -> str:
        return ", ".join(match_text(one, key) for one, key in zip(member, self._keys, strict=True))


def _key(value: Any, key: KeySpec) -> KeySpec:
    """Return the key with the kind of match that a value is written for."""
    if isinstance(value, str) and ".." in value:
        return replace(key, kind=MatchKind.RANGE)
    return replace(key, kind=MatchKind.LPM) if isinstance(value, str) and "/" in value else key

"""Parser value sets (P4_16 specification, "Value sets") as tables.

A select that asks whether its key is in a value set is lowered to a table lookup: each member is an entry with the one
action `MEMBER`, and the hit branch is the transition's state.  If several selects use the same set, each has a table of
its own, since their keys are different expressions, and `ValueSet` keeps the tables alike.

The program does not say how members match: entries are ternary, and a range becomes one for each aligned block in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Final

from ..errors import BadEntry, TableFull
from ..messages.matches import Exact, Lpm, Match, Range, Ternary
from .lock import StateLock
from .tables import Entry, Table

MEMBER: Final = "member"
"""Name of the only action of such a table."""
DEFAULT_SIZE: Final = 1024
"""Most members of a set for which the program gives no size."""

ValueSetMember = tuple[Match, ...]
"""A match for each of the select's fields."""


class ValueSet:
    """The members of one set."""

    def __init__(self, name: str, tables: Sequence[Table], lock: StateLock) -> None:
        self.name = name
        self.tables = tuple(tables)
        self.lock = lock
        """Held while members change; whoever adds to the members that there are holds it for both steps."""
        self.members: tuple[ValueSetMember, ...] = ()
        """The members as they were written."""

    def set(self, members: Sequence[ValueSetMember]) -> None:
        """Replace all members; raises BadEntry or TableFull, and then nothing has changed."""
        made = tuple(members)
        if len(set(made)) != len(made):
            raise BadEntry(f"value set {self.name}: a member is named twice")
        with self.lock:
            wanted = [_entries(made, table) for table in self.tables]
            # Checked before the first member is removed: nothing may have changed if this raises.
            for table, entries in zip(self.tables, wanted, strict=True):
                if len(entries) > table.spec.size:
                    what = f"value set {self.name} has room for {table.spec.size} members"
                    ranged = any(isinstance(match, Range) for member in made for match in member)
                    raise TableFull(f"{what}, and ranges make {len(entries)} of these" if ranged else what)
            for table, entries in zip(self.tables, wanted, strict=True):
                for entry in table.entries():
                    table.delete(entry.match, entry.priority)
                for key in entries:
                    table.insert(Entry(match=key, priority=1, action=MEMBER))
            self.members = made


def _entries(members: Sequence[ValueSetMember], table: Table) -> list[tuple[Ternary, ...]]:
    """Return the keys of the entries that stand for members."""
    widths = [key.width for key in table.spec.keys]
    parts = ([_ternary(match, width) for match, width in zip(one, widths, strict=True)] for one in members)
    return list(dict.fromkeys(key for part in parts for key in product(*part)))


def _ternary(match: Match, width: int) -> list[Ternary]:
    """Return what matches the same as another match, as ternary ones."""
    full = (1 << width) - 1
    match match:
        case Ternary():
            return [match]
        case Exact(value):
            return [Ternary(value, full)]
        case Lpm(value, length):
            return [Ternary(value, full & ~(full >> length))]
        case Range(low, high):
            blocks = []
            while low <= high:
                # The largest block of 2**n values that begins at `low`, a multiple of it, and does not reach too far.
                size = low & -low or full + 1
                while low + size - 1 > high:
                    size >>= 1
                blocks.append(Ternary(low, full & ~(size - 1)))
                low += size
            return blocks

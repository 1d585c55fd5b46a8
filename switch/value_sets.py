"""Parser value sets (P4_16 specification, "Value sets") as tables.

A select that asks whether its key is in a value set is lowered to a table lookup: each member is an entry with the one
action `MEMBER`, and the hit branch is the transition's state.  If several selects use the same set, each has a table of
its own, since their keys are different expressions, and `ValueSet` keeps the tables alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .errors import BadEntry, TableFull
from .lock import StateLock
from .tables import Entry, Table, Ternary

MEMBER: Final = "member"
"""Name of the only action of such a table."""
DEFAULT_SIZE: Final = 1024
"""Most members of a set for which the program gives no size."""

ValueSetMember = tuple[Ternary, ...]
"""A match for each of the select's fields."""


class ValueSet:
    """The members of one set."""

    def __init__(self, name: str, tables: Sequence[Table], lock: StateLock) -> None:
        self.name = name
        self.tables = tuple(tables)
        self._lock = lock
        self.members: tuple[ValueSetMember, ...] = ()
        """The members as they were written."""

    def set(self, members: Sequence[ValueSetMember]) -> None:
        """Replace all members; raises BadEntry or TableFull, and then nothing has changed."""
        made = tuple(members)
        if len(set(made)) != len(made):
            raise BadEntry(f"value set {self.name}: a member is named twice")
        with self._lock:
            # Checked before the first member is removed: nothing may have changed if this raises.
            if any(len(made) > table.spec.size for table in self.tables):
                raise TableFull(f"value set {self.name} has room for {self.tables[0].spec.size} members")
            for table in self.tables:
                for entry in table.entries():
                    table.delete(entry.match, entry.priority)
                for member in made:
                    table.insert(Entry(match=member, priority=1, action=MEMBER))
            self.members = made

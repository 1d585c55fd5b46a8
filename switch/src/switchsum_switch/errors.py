"""The errors of the embedded switch: programs that it does not load, and control-plane calls that it refuses."""

from __future__ import annotations

from typing import Final

LARGER_THAN_MEMORY: Final = "the program's tables and arrays are larger than memory"


class ProgramError(LocalError):
    """The JSON is no BMv2 program, or uses a feature that this switch lacks; the text names it and its P4 line."""


class StateError(LocalError):
    """The state of the switch does not allow a control-plane operation."""


class BadEntry(StateError, ValueError):
    """An entry does not fit its table, or an index, a group or a value is out of range."""


class EntryExists(StateError):
    """The table has an entry with this match and priority already."""


class EntryMissing(StateError, LookupError):
    """There is no entry with this match and priority, or no such group or session."""


class MemberMissing(BadEntry, EntryMissing):
    """An entry or a group names a member or group that its action profile does not have."""


class TableFull(StateError):
    """The table holds as many entries as the program allows."""


class InUse(StateError):
    """A member or group of an action profile cannot go while entries name it."""


class ReadOnly(StateError):
    """The program declares these entries or this default action const."""

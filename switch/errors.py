"""What the embedded switch refuses, and why."""

from __future__ import annotations

from switchsum.protocol.errors import LocalError


class ProgramError(LocalError):
    """The JSON is no BMv2 program, or uses what this switch does not support; the text names it and its P4 line."""


class StateError(LocalError):
    """A control-plane operation that the state of the switch does not allow."""


class BadEntry(StateError, ValueError):
    """An entry that does not fit its table, or an index, group or value out of range."""


class EntryExists(StateError):
    """An entry with this match and priority is there already."""


class EntryMissing(StateError, LookupError):
    """No entry with this match and priority, or no such group or session."""


class TableFull(StateError):
    """The table holds as many entries as the program allows."""


class ReadOnly(StateError):
    """The program declares these entries or this default action const."""

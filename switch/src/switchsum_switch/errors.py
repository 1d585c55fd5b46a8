"""The errors of the switch and of whatever it shares with workers and controllers, in one tree.

Local errors say that the caller or this machine did something wrong; remote errors say what a peer did.  Bytes off the
wire never raise: they are dropped and counted under a named reason.
"""

from __future__ import annotations

from typing import Final

LARGER_THAN_MEMORY: Final = "the program's tables and arrays are larger than memory"


class SwitchsumError(Exception):
    """Base of every error that switchsum raises on purpose."""


class LocalError(SwitchsumError):
    """The caller, its arguments or this machine is at fault."""


class UsageError(LocalError, ValueError):
    """A call was made with arguments or in a state that it does not allow."""


class TransportError(LocalError):
    """A link to the switch could not be opened or broke (no socket, no shared memory, no permission)."""


class Unusable(LocalError):
    """A program or a directory of this machine cannot be used.

    `fault` says why, and `remedy` what to do; empty: that is not known.
    """

    def __init__(self, fault: str, remedy: str = "") -> None:
        super().__init__(f"{fault}: {remedy}" if remedy else fault)
        self.fault, self.remedy = fault, remedy

    def __reduce__(self) -> tuple[type[Unusable], tuple[str, str]]:
        """Pickle it with both."""
        return type(self), (self.fault, self.remedy)


class RemoteError(SwitchsumError):
    """Another member, the controller or the switch is at fault."""


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

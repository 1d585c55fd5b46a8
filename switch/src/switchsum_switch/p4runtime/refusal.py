"""Refusals of the server: a canonical gRPC code and a reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from switchsum_switch.errors import SwitchsumError
from switchsum_switch.messages.p4runtime import Code

from ..errors import BadEntry, EntryExists, EntryMissing, MemberMissing, ProgramError, ReadOnly, StateError, TableFull

_CODES: Final[dict[type[SwitchsumError], Code]] = {
    BadEntry: Code.INVALID_ARGUMENT,
    EntryExists: Code.ALREADY_EXISTS,
    EntryMissing: Code.NOT_FOUND,
    MemberMissing: Code.NOT_FOUND,
    TableFull: Code.RESOURCE_EXHAUSTED,
    ReadOnly: Code.PERMISSION_DENIED,
    ProgramError: Code.INVALID_ARGUMENT,
}


class Refused(SwitchsumError):
    """The server does not carry out a request, or one update or entity of it."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@contextmanager
def refusals() -> Iterator[None]:
    """Turn the switch's own errors into Refused, with their canonical codes."""
    try:
        yield
    except (StateError, ProgramError) as error:
        raise as_refused(error) from error


def as_refused(error: Refused | StateError | ProgramError) -> Refused:
    """Return an error of the switch as a refusal with its canonical code."""
    if isinstance(error, Refused):
        return error
    return Refused(_CODES.get(type(error), Code.FAILED_PRECONDITION), str(error))


def invalid(message: str) -> Refused:
    """Return a refusal with the code INVALID_ARGUMENT."""
    return Refused(Code.INVALID_ARGUMENT, message)

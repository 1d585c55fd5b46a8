"""What workers say of themselves and their links to the controller: messages of `rpc`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MOST_TEXT: Final = 80
"""Characters of a text in a member's report: what the controller keeps of each member is small."""


def printable(text: str, most: int = MOST_TEXT) -> str:
    """Return a text that is short and has no characters which do something to a terminal or a page."""
    return "".join(one if one.isprintable() else "?" for one in text[:most])


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFigures:
    """What a member counts by itself, since it was connected.

    Texts are cut to `MOST_TEXT` characters; numbers are 0 and more.
    """

    host: str = ""
    """Name of its machine."""
    pid: int = 0
    """Of its process there, as the process sees it; 0: not known."""
    link: str = ""
    """As given to `connect`."""
    begun: int = 0
    """Collectives that were begun, those of several steps once for each: the number of the next one."""
    finished: int = 0
    """How many of those have finished."""
    operation: str = ""
    """The oldest one in flight, in words; empty: none is, or it has no name."""
    waiting_s: float = 0.0
    """For how long no result has come while an operation is in flight."""
    idle_s: float = 0.0
    """For how long no operation was in flight: the program is busy elsewhere."""
    collective_s: float = 0.0
    """Time inside collectives in all, and waiting for them."""
    waiting_slots: int = 0
    """Slots with a contribution whose result is to come."""
    rounds: int = 0
    frames_sent: int = 0
    """Contributions, repeats included."""
    bytes_sent: int = 0
    frames_received: int = 0
    bytes_received: int = 0
    repeats: int = 0
    """Contributions that were sent again."""
    recalled: int = 0
    """Of these, those of rounds whose result the worker holds already, sent for others' sake."""
    held: int = 0
    """Repeats to which the switch answered that it waits for others."""
    duplicates: int = 0
    """Results that came once more: nothing had been lost, the repeat was for an answer that was late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport(WorkerFigures):
    """Report: a member sends it after heartbeats; the controller keeps the latest one."""

    job: str
    nonce: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkReport:
    """LinkDown: one of a member's several links is dead; nobody uses the links of that number any more."""

    job: str
    nonce: int
    link: int
    """Its number."""
    reason: str

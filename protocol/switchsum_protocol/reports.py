"""What workers say of themselves to the controller: messages of `rpc`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from .member_rpc import MOST_TEXT

MOST_KIND: Final = 160
"""Longest name of a kind of collective, in characters: it may hold the names of two layers."""


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
    """Its process id on that machine, as the process sees it; 0: not known."""
    link: str = ""
    """Its link, as given to `connect`."""
    begun: int = 0
    """Collectives that were begun, with one for each step of those that have several: the number of the next one."""
    finished: int = 0
    """How many of those have finished."""
    operation: str = ""
    """The oldest collective in flight, in words; empty: none is in flight, or it has no name."""
    waiting_s: float = 0.0
    """For how long no result has come while an operation is in flight."""
    is_inside: bool = False
    """Whether the program itself is in a collective and waits for it, and not only a thread in the background."""
    idle_s: float = 0.0
    """For how long no operation was in flight: the program is busy elsewhere."""
    collective_s: float = 0.0
    """Seconds in all that the program was inside collectives, or waited for them."""
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
    """Repeats of rounds whose result the worker already holds: other members may still need it."""
    held: int = 0
    """Repeats to which the switch answered that it waits for others."""
    duplicates: int = 0
    """Results that came a second time: nothing had been lost, but the worker repeated before the late answer came."""
    marked: int = 0
    """Results that said that a queue on the way was long (ECN)."""
    cpu_s: float = 0.0
    """Processor time of its process."""
    sparse_rows: int = 0
    """Rows that this rank had in sparse allreduces, as `Statistics` has them."""
    sparse_union_rows: int = 0
    """Rows that some rank had: what travelled."""
    sparse_all_rows: int = 0
    """All rows of these arrays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport(WorkerFigures):
    """Report: a member sends it after heartbeats; the controller keeps the latest one."""

    job: str
    nonce: int
    calls: str = ""
    """Collectives that have ended since the last report, or some of them, in base64: of each five numbers of 64 bits,
    lowest byte first. They are its serial number, its place in `kinds`, when it was begun and how long it took, in
    nanoseconds of the member's own clock, and 1 if the program waited since the call before."""
    kinds: list[str] = field(default_factory=list)
    """Kinds of these collectives, in words, each cut to `MOST_KIND` characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentFigures:
    """By how much some of a member's figures have grown within the last seconds, between two of its reports."""

    seconds: float = 0.0
    """Seconds between the two reports; 0: there are not two."""
    rounds: int = 0
    frames_sent: int = 0
    frames_received: int = 0
    repeats: int = 0
    recalled: int = 0
    waiting_slots: int = 0
    """Less than 0: fewer slots wait."""
    cpu_s: float = 0.0
    bytes_sent: int = 0
    finished: int = 0
    held: int = 0
    duplicates: int = 0
    marked: int = 0
    sparse_rows: int = 0
    sparse_union_rows: int = 0
    sparse_all_rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallKind:
    """What one kind of collective has cost within a span of time."""

    name: str
    calls: int
    moving_s: float
    """Seconds after the last rank had begun, in all calls together."""
    waiting_s: float
    """For how long ranks waited before, on average."""
    late_rank: int
    """Rank that the others waited longest for."""
    late_s: float
    """Seconds that the others waited for `late_rank` alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSpan:
    """Collectives of the last seconds, with figures by rank.  Where there are many, some are looked at."""

    seconds: float
    """How far the span goes back."""
    calls: int = 0
    time_s: list[float] = field(default_factory=list)
    """Seconds that the calls and the pauses between them took."""
    calls_s: list[float] = field(default_factory=list)
    """Part of `time_s` in which a collective was under way."""
    waiting_s: list[float] = field(default_factory=list)
    """Part of `calls_s` in which other ranks had not begun the collective."""
    late_s: list[float] = field(default_factory=list)
    """Seconds that all others waited for this rank alone."""
    kinds: list[CallKind] = field(default_factory=list)
    """The kinds that took longest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCalls:
    """Who is late in a job's collectives; see `docs/slow-ranks.md`."""

    spans: list[CallSpan] = field(default_factory=list)
    """The last 10 seconds, minute, and 10 minutes."""
    kinds: list[str] = field(default_factory=list)
    """Kinds of the latest calls, in words."""
    recent: list[list[int]] = field(default_factory=list)
    """The latest calls, the oldest first: serial number, place in `kinds`, who began last, how long after the first, by
    how much it has held up all others, for how long the first had nothing under way before, in ns, its age in ms."""

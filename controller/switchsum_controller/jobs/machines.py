"""The state machines of members and incarnations, as tables: a missing key is a protocol error.

A member, as rank `r` of one incarnation::

    expected --join--> joined --hello--> seen --admit--> admitted --leave--> left
                          |  <--restart--  |                 '------silence--> lost
                          '--leave, silence: back to expected--'

An incarnation::

    waiting --admit--> running --gone--> draining --last gone--> over
                                                  (abandon leads from every state to over)

A member that leaves before it is admitted frees its rank, since nobody has counted on it.  After that its rank is not
free: the switch waits for its contribution in every round, and a new member could only disturb.  So the incarnation
drains, and the next one begins under a new epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import count
from typing import Final, TypeVar

from switchsum_protocol.errors import ProtocolError
from switchsum_protocol.rpc import Move
from switchsum_protocol.states import GONE, HOLDING, JobState, MemberState
from switchsum_switch.wires.headers import Address

from .agreement import Agreement
from .late_calls import Calls
from .reported import Reported

KEPT_MOVES: Final = 4
"""Moves of a job that are kept in words."""


_goings: Final = count(1)


class MemberEvent(StrEnum):
    """An event in the life of a member."""

    JOIN = "join"
    HELLO = "hello"
    HEARTBEAT = "heartbeat"
    ADMIT = "admit"
    LEAVE = "leave"
    SILENCE = "silence"
    """Nothing was heard of the member for too long."""
    RESTART = "restart"
    """The switch that has seen its hello was started anew: it has other ports now."""


MEMBER_TRANSITIONS: Final = {
    (MemberState.EXPECTED, MemberEvent.JOIN): MemberState.JOINED,
    (MemberState.JOINED, MemberEvent.HELLO): MemberState.SEEN,
    (MemberState.JOINED, MemberEvent.HEARTBEAT): MemberState.JOINED,
    (MemberState.JOINED, MemberEvent.LEAVE): MemberState.EXPECTED,
    (MemberState.JOINED, MemberEvent.SILENCE): MemberState.EXPECTED,
    (MemberState.SEEN, MemberEvent.HELLO): MemberState.SEEN,
    (MemberState.SEEN, MemberEvent.HEARTBEAT): MemberState.SEEN,
    (MemberState.SEEN, MemberEvent.ADMIT): MemberState.ADMITTED,
    (MemberState.SEEN, MemberEvent.LEAVE): MemberState.EXPECTED,
    (MemberState.SEEN, MemberEvent.SILENCE): MemberState.EXPECTED,
    (MemberState.SEEN, MemberEvent.RESTART): MemberState.JOINED,
    (MemberState.ADMITTED, MemberEvent.HELLO): MemberState.ADMITTED,  # a copy of a hello that arrives late
    (MemberState.ADMITTED, MemberEvent.HEARTBEAT): MemberState.ADMITTED,
    (MemberState.ADMITTED, MemberEvent.LEAVE): MemberState.LEFT,
    (MemberState.ADMITTED, MemberEvent.SILENCE): MemberState.LOST,
    # The other members have been told already: a lost member that comes back learns that it is lost, and joins again.
    (MemberState.LOST, MemberEvent.HELLO): MemberState.LOST,
    (MemberState.LOST, MemberEvent.HEARTBEAT): MemberState.LOST,
    (MemberState.LOST, MemberEvent.LEAVE): MemberState.LOST,
}


class IncarnationEvent(StrEnum):
    """An event in the life of an incarnation."""

    ADMIT = "admit"
    GONE = "gone"
    """A member has left or is lost; others remain."""
    LAST_GONE = "last gone"
    ABANDON = "abandon"
    """Its job was removed or resized, or the switch refused it."""


INCARNATION_TRANSITIONS: Final = {
    (JobState.WAITING, IncarnationEvent.ADMIT): JobState.RUNNING,
    (JobState.WAITING, IncarnationEvent.ABANDON): JobState.OVER,
    (JobState.RUNNING, IncarnationEvent.GONE): JobState.DRAINING,
    (JobState.RUNNING, IncarnationEvent.LAST_GONE): JobState.OVER,
    (JobState.RUNNING, IncarnationEvent.ABANDON): JobState.OVER,
    (JobState.DRAINING, IncarnationEvent.GONE): JobState.DRAINING,
    (JobState.DRAINING, IncarnationEvent.LAST_GONE): JobState.OVER,
    (JobState.DRAINING, IncarnationEvent.ABANDON): JobState.OVER,
}
S = TypeVar("S")
E = TypeVar("E")


def transition(table: Mapping[tuple[S, E], S], state: S, event: E) -> S:
    """Return the state that follows; raises ProtocolError if the table has no such transition."""
    if (state, event) not in table:
        raise ProtocolError(f"{event} cannot happen to what is {state}")
    return table[state, event]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """The port and address at which the switch saw the hello of a member's link."""

    address: Address
    ingress_port: int
    switch: str
    """Name of that switch; empty: the controller has one."""


@dataclass(slots=True, kw_only=True)
class JobMember:
    """One rank of an incarnation."""

    rank: int
    state: MemberState = MemberState.EXPECTED
    nonce: int = 0
    """64 bits that name this membership; 0: none yet."""
    cookie: int = 0
    """64 bits that all frames of this member have; 0: none yet."""
    rates: list[float] = field(default_factory=list)
    """Rate of each of its links in Mbit/s, 0 where it does not know; empty: it has one link."""
    attachments: dict[int, Attachment] = field(default_factory=dict)
    """Where the member's links are attached, by link number. All are known from SEEN on."""
    short: set[int] = field(default_factory=set)
    """Links over which a hello without lanes has come: short frames reach the switch, but perhaps not long ones."""
    receive_bytes: int = 0
    """Bytes that may wait on its link, as its kernel counts them; 0: enough."""
    window_bytes: int = 0
    """Most bytes that it should have in flight, for its processor's cache; 0: no limit."""
    joined_s: float = 0.0
    """Time at which it joined, in the controller's monotonic seconds."""
    heard_s: float = 0.0
    """Time of the member's last message, in the controller's monotonic seconds."""
    issued: str = ""
    """The operation, in words, that the member says it has issued, after the ranks have issued different ones."""
    reported: Reported = field(default_factory=Reported)
    """The member's latest report of itself."""
    connections: int = 0
    """Number of open Attend calls; while there is one, the member lives."""
    gone: int = 0
    """Its number among those that left or were lost, in this order, from 1 on; 0: that was before this controller."""
    has_attended: bool = False
    """It has had such a connection: if it has none now, it has died or will connect again at once."""

    @property
    def holds_rank(self) -> bool:
        """Whether nobody else may have its rank: one that has left or is lost may be followed."""
        return self.state in HOLDING

    @property
    def is_cut_off(self) -> bool:
        """Whether its connection has ended, so that it is lost soon, or back."""
        return self.has_attended and not self.connections

    @property
    def link_count(self) -> int:
        """How many links it has."""
        return max(1, len(self.rates))

    @property
    def unseen(self) -> list[int]:
        """Its links of which no hello has come, by number."""
        return [link for link in range(self.link_count) if link not in self.attachments]

    @property
    def is_cut(self) -> bool:
        """Whether hellos have come over a link, but none with lanes; of a link that is silent that is not known."""
        return not self.short.isdisjoint(self.unseen)

    @property
    def all_attachments(self) -> list[Attachment]:
        """Where each of its links comes in, as far as that is known."""
        return [attachment for _, attachment in sorted(self.attachments.items())]

    @property
    def _first_attachment(self) -> Attachment | None:
        return self.attachments[min(self.attachments)] if self.attachments else None

    @property
    def address(self) -> Address | None:
        """Its address on its first link, as the switch saw it; known from SEEN on."""
        return None if (attachment := self._first_attachment) is None else attachment.address

    @property
    def ingress_port(self) -> int:
        """Port of the switch at which its first link comes in; -1: not known yet."""
        return -1 if (attachment := self._first_attachment) is None else attachment.ingress_port

    @property
    def switch(self) -> str:
        """Name of the switch to which its first link leads; empty: the controller has one, or it was not seen yet."""
        return "" if (attachment := self._first_attachment) is None else attachment.switch

    def step(self, event: MemberEvent) -> None:
        """Make a transition; raises ProtocolError if there is none."""
        before, self.state = self.state, transition(MEMBER_TRANSITIONS, self.state, event)
        if self.state in GONE and before not in GONE:
            self.gone = next(_goings)


class FaultKind(StrEnum):
    """How an incarnation ends other than by all its members leaving in order."""

    MISMATCH = "mismatch"
    """Members have called different collectives."""
    LOST = "lost"
    """Members were lost, and the others have gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What has broken an incarnation."""

    kind: FaultKind
    ranks: list[int]
    """Which members have done it."""
    text: str = ""
    """How their calls differ, in words."""


@dataclass(slots=True, kw_only=True)
class Incarnation:
    """One run of a job: its members under one epoch."""

    epoch: int
    """16 bits."""
    members: list[JobMember]
    """Members by rank."""
    state: JobState = JobState.WAITING
    first_number: int = 0
    """Number of the first round of all its slots; known from RUNNING on."""
    has_rails: bool = False
    """Links of one member lead to several switches (see `rails`)."""
    down: set[int] = field(default_factory=set)
    """Links that no member uses any more, since some member's is dead."""
    above: list[dict[str, str]] = field(default_factory=list)
    """The switch above each other one, in each of its trees; nothing: as all jobs have it, or there is one switch."""
    moves: int = 0
    """Number of moves to other trees, or to fewer rails."""
    moved: list[Move] = field(default_factory=list)
    """The latest moves."""
    is_moving: bool = False
    """The last of these moves has begun, and some switches do not know of it yet."""
    gave_up: set[int] = field(default_factory=set)
    """Ranks that had joined, and left again because the others had not come in their time."""
    calls: Calls | None = None
    """Figures of late ranks in its collectives. None: no member has reported any."""
    agreement: Agreement = field(default_factory=Agreement)
    """Agreement on who takes part in operations that may go on without some ranks."""
    fault: Fault | None = None
    """What has broken it first, as far as the controller knows. None: nothing has."""
    held_up: str = ""
    """Switch or link that the job waits for although all members have come, in words. Empty: none."""

    def step(self, event: IncarnationEvent) -> None:
        """Make a transition; raises ProtocolError if there is none."""
        self.state = transition(INCARNATION_TRANSITIONS, self.state, event)

    @property
    def broken_by(self) -> Fault | None:
        """What has broken it: where members differ, they end, and are lost, because of that."""
        if self.agreement.mismatch and (self.fault is None or self.fault.kind is FaultKind.LOST):
            return Fault(kind=FaultKind.MISMATCH, ranks=[], text=self.agreement.mismatch)
        return self.fault

    def begin_move(self, why: str, what: str, gone: Sequence[str] = ()) -> Move:
        """Note that it is to move, and why, and which switches are `gone`; `rerouting` carries it out."""
        self.moves, self.is_moving = self.moves + 1, True
        self.moved = [*self.moved, Move(why=why, what=what, away=[*gone])][-KEPT_MOVES:]
        return self.moved[-1]

    @property
    def forgotten(self) -> int:
        """How many moves have ended; with each, switches have begun with empty cells."""
        return self.moves - self.is_moving

    @property
    def links(self) -> list[int]:
        """The links of which it is known for all members where they come in, by number."""
        return sorted(
            set(range(self.members[0].link_count)).intersection(*(member.attachments for member in self.members))
        )

    def over(self, link: int) -> Incarnation:
        """Return the same incarnation as if members had one of their links alone."""
        return replace(
            self, members=[replace(member, attachments={0: member.attachments[link]}) for member in self.members]
        )

    def gone(self, *states: MemberState) -> list[int]:
        """Return the ranks that have left or are lost, who went first at the beginning."""
        gone = [member for member in self.members if member.state in (states or GONE)]
        return [member.rank for member in sorted(gone, key=lambda member: member.gone)]

    def ranks(self, *states: MemberState) -> list[int]:
        """Return the ranks that are in one of these states."""
        return [member.rank for member in self.members if member.state in states]

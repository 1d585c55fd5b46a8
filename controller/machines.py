"""The state machines of members and incarnations, as tables: a missing key is a protocol error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from switchsum.protocol.errors import ProtocolError
from switchsum.protocol.wire import Address


class MemberState(StrEnum):
    """Where a rank of an incarnation stands."""

    EXPECTED = "expected"
    JOINED = "joined"
    SEEN = "seen"
    ADMITTED = "admitted"
    LEFT = "left"
    LOST = "lost"


class MemberEvent(StrEnum):
    """What can happen to it."""

    JOIN = "join"
    HELLO = "hello"
    HEARTBEAT = "heartbeat"
    ADMIT = "admit"
    LEAVE = "leave"
    SILENCE = "silence"


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
    (MemberState.ADMITTED, MemberEvent.HELLO): MemberState.ADMITTED,  # a copy that was under way
    (MemberState.ADMITTED, MemberEvent.HEARTBEAT): MemberState.ADMITTED,
    (MemberState.ADMITTED, MemberEvent.LEAVE): MemberState.LEFT,
    (MemberState.ADMITTED, MemberEvent.SILENCE): MemberState.LOST,
    # The others have been told: one that comes back after all learns that it is lost, and joins again.
    (MemberState.LOST, MemberEvent.HELLO): MemberState.LOST,
    (MemberState.LOST, MemberEvent.HEARTBEAT): MemberState.LOST,
    (MemberState.LOST, MemberEvent.LEAVE): MemberState.LOST,
}


class IncarnationState(StrEnum):
    """Where an incarnation of a job stands."""

    WAITING = "waiting"
    RUNNING = "running"
    DRAINING = "draining"
    """Some members have left or are lost; the switch still serves the others."""
    OVER = "over"


class IncarnationEvent(StrEnum):
    """What can happen to it."""

    ADMIT = "admit"
    GONE = "gone"
    """A member left or was lost; others remain."""
    LAST_GONE = "last gone"
    ABANDON = "abandon"
    """Its job was removed or resized, or the switch refused it."""


INCARNATION_TRANSITIONS: Final = {
    (IncarnationState.WAITING, IncarnationEvent.ADMIT): IncarnationState.RUNNING,
    (IncarnationState.WAITING, IncarnationEvent.ABANDON): IncarnationState.OVER,
    (IncarnationState.RUNNING, IncarnationEvent.GONE): IncarnationState.DRAINING,
    (IncarnationState.RUNNING, IncarnationEvent.LAST_GONE): IncarnationState.OVER,
    (IncarnationState.RUNNING, IncarnationEvent.ABANDON): IncarnationState.OVER,
    (IncarnationState.DRAINING, IncarnationEvent.GONE): IncarnationState.DRAINING,
    (IncarnationState.DRAINING, IncarnationEvent.LAST_GONE): IncarnationState.OVER,
    (IncarnationState.DRAINING, IncarnationEvent.ABANDON): IncarnationState.OVER,
}
S = TypeVar("S")
E = TypeVar("E")


def transition(table: Mapping[tuple[S, E], S], state: S, event: E) -> S:
    """Look a transition up; raises ProtocolError when there is none."""
    if (state, event) not in table:
        raise ProtocolError(f"{event} cannot happen to what is {state}")
    return table[state, event]


@dataclass(slots=True, kw_only=True)
class Member:
    """One rank of an incarnation."""

    rank: int
    state: MemberState = MemberState.EXPECTED
    nonce: int = 0
    """64 bits; 0: none yet."""
    cookie: int = 0
    """64 bits that this member's frames bear; 0: none yet."""
    address: Address | None = None
    """As the switch saw it; known from SEEN on."""
    ingress_port: int = -1
    """Of the switch; known from SEEN on."""
    hello_cut: bool = False
    """A hello without lanes has come, so that there is a way for short frames."""
    receive_bytes: int = 0
    """What may wait on its link, as its kernel counts it; 0: enough."""
    window_bytes: int = 0
    """What is worth having in flight there; 0: everything."""
    heard_s: float = 0.0
    """When the member was last heard of, in the controller's monotonic time."""
    issued: str = ""
    """The operation, in words, that the member says it issued where others issued another one."""
    connections: int = 0
    """On which it attends; while there is one, it lives."""
    has_attended: bool = False
    """There was one, so that it lives no more, or comes back at once."""

    def step(self, event: MemberEvent) -> None:
        """Make a transition; raises ProtocolError when there is none."""
        self.state = transition(MEMBER_TRANSITIONS, self.state, event)


@dataclass(slots=True, kw_only=True)
class Incarnation:
    """One run of a job: its members under one epoch."""

    epoch: int
    """16 bits."""
    members: list[Member]
    """By rank."""
    state: IncarnationState = IncarnationState.WAITING
    first_number: int = 0
    """Where its slots start; known from RUNNING on."""

    def step(self, event: IncarnationEvent) -> None:
        """Make a transition; raises ProtocolError when there is none."""
        self.state = transition(INCARNATION_TRANSITIONS, self.state, event)

    def ranks(self, *states: MemberState) -> list[int]:
        """Return the ranks that are in one of these states."""
        return [member.rank for member in self.members if member.state in states]

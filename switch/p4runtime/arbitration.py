"""Who may write: the primary of each role, chosen by election id (P4Runtime specification, section 5).

A state machine without sockets or clocks: updates and departures of streams in, notifications for streams out.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from switchsum.protocol.p4runtime import Code
from switchsum.switch.p4runtime.refusal import Refused, invalid

Stream = TypeVar("Stream", bound=Hashable)

DEFAULT_ROLE: Final = ""
"""The role of a client that names none; it may touch everything."""

MAX_STREAMS: Final = 32
"""Open streams of all roles together; each holds two threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bid:
    """What a client's MasterArbitrationUpdate says."""

    device_id: int
    role: str = DEFAULT_ROLE
    election_id: int | None
    """128 bits; None is lower than every number and never becomes primary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification(Generic[Stream]):
    """A MasterArbitrationUpdate for one stream."""

    stream: Stream
    role: str
    highest: int | None
    """The highest election id that any primary of the role has ever had; None if there was none yet."""
    code: Code
    """OK: this stream is the primary; ALREADY_EXISTS: another one is; NOT_FOUND: there is none."""


@dataclass(slots=True)
class _Role(Generic[Stream]):
    """The clients of one role."""

    bids: dict[Stream, int | None] = field(default_factory=dict)
    """Election id of each live stream."""
    highest: int | None = None
    primary: Stream | None = None

    def notify(self, name: str, stream: Stream) -> Notification[Stream]:
        code = Code.NOT_FOUND if self.primary is None else Code.OK if stream == self.primary else Code.ALREADY_EXISTS
        return Notification(stream=stream, role=name, highest=self.highest, code=code)

    def notify_all(self, name: str) -> list[Notification[Stream]]:
        """Tell everybody, the primary last: once it knows, the others have been told."""
        return [self.notify(name, stream) for stream in sorted(self.bids, key=lambda stream: stream == self.primary)]


class Arbitration(Generic[Stream]):
    """The clients of one device."""

    def __init__(self, device_id: int) -> None:
        self.device_id = device_id
        self._roles: dict[str, _Role[Stream]] = {DEFAULT_ROLE: _Role()}
        self._role_of: dict[Stream, str] = {}

    def update(self, stream: Stream, bid: Bid) -> list[Notification[Stream]]:
        """Take a stream's bid and return whom to tell; Refused ends the stream, whose owner then calls `leave`."""
        known = self._role_of.get(stream)
        if bid.device_id != self.device_id:
            code = Code.NOT_FOUND if known is None else Code.FAILED_PRECONDITION
            raise Refused(code, f"this is device {self.device_id}, not {bid.device_id}")
        if known is not None and known != bid.role:
            raise Refused(Code.FAILED_PRECONDITION, f"this stream has the role {known!r}, not {bid.role!r}")
        role = self._roles.get(bid.role, _Role())
        if bid.election_id is not None and bid.election_id in (
            other for holder, other in role.bids.items() if holder != stream
        ):
            raise invalid(f"another client has the election id {bid.election_id}")
        if known is None and len(self._role_of) >= MAX_STREAMS:
            raise Refused(Code.RESOURCE_EXHAUSTED, f"{MAX_STREAMS} streams are open already")
        self._roles[bid.role] = role
        self._role_of[stream] = bid.role
        role.bids[stream] = bid.election_id
        if bid.election_id is not None and (role.highest is None or bid.election_id >= role.highest):
            role.highest, role.primary = bid.election_id, stream
            return role.notify_all(bid.role)
        if role.primary == stream:  # it stepped down; nobody else becomes primary without a bid of its own
            role.primary = None
            return role.notify_all(bid.role)
        return [role.notify(bid.role, stream)]

    def leave(self, stream: Stream) -> list[Notification[Stream]]:
        """Forget a stream that has ended; one that never made a bid is no error."""
        name = self._role_of.pop(stream, None)
        if name is None:
            return []
        role = self._roles[name]
        del role.bids[stream]
        if role.primary != stream:
            return []
        role.primary = None
        return role.notify_all(name)

    def require_primary(self, device_id: int, role: str, election_id: int | None) -> None:
        """Refuse a write that does not come from the primary of its role."""
        if device_id != self.device_id:
            raise Refused(Code.NOT_FOUND, f"this is device {self.device_id}, not {device_id}")
        if role not in self._roles:
            raise Refused(Code.NOT_FOUND, f"nobody has taken the role {role!r}")
        primary = self._roles[role].primary
        if primary is None or election_id is None or self._roles[role].bids[primary] != election_id:
            raise Refused(Code.PERMISSION_DENIED, f"election id {election_id} is not the primary's")

    def is_primary(self, stream: Stream) -> bool:
        """Whether a stream is the primary of its role."""
        name = self._role_of.get(stream)
        return name is not None and self._roles[name].primary == stream

    def primaries(self) -> list[Stream]:
        """Return the primary of every role that has one."""
        return [role.primary for role in self._roles.values() if role.primary is not None]

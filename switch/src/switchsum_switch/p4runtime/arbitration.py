"""Arbitration: which client of each role is primary and may write (P4Runtime specification, section 5).

Clients bid with an election id; the highest id that was ever bid for a role decides.  When the primary leaves, nobody
becomes primary without a new bid, and the bid must be at least as high as the highest so far.  So an old primary whose
connection is slow cannot come back unnoticed.

This is a state machine without sockets or clocks: bids and ends of streams go in, notifications for streams come out.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from switchsum_switch.messages.p4runtime import Code

from .refusal import Refused, invalid
from .roles import RoleConfig

Stream = TypeVar("Stream", bound=Hashable)

DEFAULT_ROLE: Final = ""
"""The role of a client that names none; it may write everything."""
MOST_ROLES: Final = 1024
"""Roles are remembered, with their highest election ids, when their clients have gone."""
LONGEST_ROLE: Final = 256
"""Characters of a role's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bid:
    """The contents of a client's MasterArbitrationUpdate."""

    device_id: int
    role: str = DEFAULT_ROLE
    election_id: int | None
    """128 bits; a client without one is never primary."""
    config: RoleConfig | None = None
    """Rights of the role, which hold once this client is primary. None: everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification(Generic[Stream]):
    """A MasterArbitrationUpdate for one stream."""

    stream: Stream
    role: str
    highest: int | None
    """The highest election id that a primary of the role has had; None if there has been no primary."""
    code: Code
    """OK: this stream is the primary; ALREADY_EXISTS: another one is; NOT_FOUND: there is none."""
    config: RoleConfig | None = None
    """The role's config, as its last primary gave it."""


@dataclass(slots=True)
class _Role(Generic[Stream]):
    """The clients of one role."""

    bids: dict[Stream, int | None] = field(default_factory=dict)
    """Election id of each live stream."""
    highest: int | None = None
    primary: Stream | None = None
    config: RoleConfig | None = None
    """Config that the last primary gave."""

    def notify(self, name: str, stream: Stream) -> Notification[Stream]:
        code = Code.NOT_FOUND if self.primary is None else Code.OK if stream == self.primary else Code.ALREADY_EXISTS
        return Notification(stream=stream, role=name, highest=self.highest, code=code, config=self.config)

    def notify_all(self, name: str) -> list[Notification[Stream]]:
        """Return notifications for all clients, the primary's last: when it knows, the others have been told."""
        return [self.notify(name, stream) for stream in sorted(self.bids, key=lambda stream: stream == self.primary)]


class Arbitration(Generic[Stream]):
    """The clients of one device."""

    def __init__(self, device_id: int) -> None:
        self.device_id = device_id
        self._roles: dict[str, _Role[Stream]] = {DEFAULT_ROLE: _Role()}
        self._role_of: dict[Stream, str] = {}

    def update(self, stream: Stream, bid: Bid) -> list[Notification[Stream]]:
        """Take the bid of a stream, and return the notifications; if it raises Refused, the caller ends the stream."""
        known = self._role_of.get(stream)
        if bid.device_id != self.device_id:
            code = Code.NOT_FOUND if known is None else Code.FAILED_PRECONDITION
            raise Refused(code, f"this is device {self.device_id}, not {bid.device_id}")
        if known is not None and known != bid.role:
            raise Refused(Code.FAILED_PRECONDITION, f"this stream has the role {known!r}, not {bid.role!r}")
        if len(bid.role) > LONGEST_ROLE:
            raise invalid(f"a role's name has {LONGEST_ROLE} characters at most, not {len(bid.role)}")
        if bid.role not in self._roles and len(self._roles) >= MOST_ROLES:
            raise Refused(Code.RESOURCE_EXHAUSTED, f"there have been {MOST_ROLES} roles, and no more are kept")
        role = self._roles.get(bid.role, _Role())
        if bid.election_id is not None and bid.election_id in (
            other for holder, other in role.bids.items() if holder != stream
        ):
            raise invalid(f"another client has the election id {bid.election_id}")
        self._check_config(bid)
        self._roles[bid.role] = role
        self._role_of[stream] = bid.role
        role.bids[stream] = bid.election_id
        if bid.election_id is not None and (role.highest is None or bid.election_id >= role.highest):
            role.highest, role.primary, role.config = bid.election_id, stream, bid.config
            return role.notify_all(bid.role)
        if role.primary == stream:  # it has bid lower and stepped down; another client must bid to become primary
            role.primary = None
            return role.notify_all(bid.role)
        return [role.notify(bid.role, stream)]

    def leave(self, stream: Stream) -> list[Notification[Stream]]:
        """Forget a stream that has ended; a stream that has made no bid is no error."""
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
        """Raise Refused unless a write comes from the primary of its role."""
        if device_id != self.device_id:
            raise Refused(Code.NOT_FOUND, f"this is device {self.device_id}, not {device_id}")
        self.config_of(role)
        primary = self._roles[role].primary
        if primary is None or election_id is None or self._roles[role].bids[primary] != election_id:
            raise Refused(Code.PERMISSION_DENIED, f"election id {election_id} is not the primary's")

    def config_of(self, role: str) -> RoleConfig | None:
        """Return what a role may do, None for everything; raises Refused for a role that nobody has taken."""
        if role not in self._roles:
            raise Refused(Code.NOT_FOUND, f"nobody has taken the role {role!r}")
        return self._roles[role].config

    def role_of(self, stream: Stream) -> str:
        """Return the role of a stream that has made a bid."""
        return self._role_of[stream]

    def _check_config(self, bid: Bid) -> None:
        """Raise Refused if a role claims what another one may write."""
        if bid.config is None:
            return
        if bid.role == DEFAULT_ROLE:
            raise invalid("the default role may do everything and has no config")
        for name, other in self._roles.items():
            if name != bid.role and other.bids and other.config is not None and bid.config.overlaps(other.config):
                raise invalid(f"the role {bid.role!r} and the role {name!r} claim the same ids")

    def is_primary(self, stream: Stream) -> bool:
        """Whether a stream is the primary of its role."""
        name = self._role_of.get(stream)
        return name is not None and self._roles[name].primary == stream

    def primaries(self) -> list[Stream]:
        """Return the primary of every role that has one."""
        return [role.primary for role in self._roles.values() if role.primary is not None]

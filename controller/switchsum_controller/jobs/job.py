"""One job: its slots, its live incarnation, and the one that gathers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from switchsum_protocol.rpc import LEAST_QUORUM
from switchsum_protocol.states import MemberState

from .machines import Fault, Incarnation, JobMember
from .slots import SlotRange

MAX_NUMBER: Final = 0xFFFF
"""Job numbers and epochs are 16 bits wide."""
UNSEEN_S: Final = 1.0
"""Seconds after which a rank whose hello has not come may wait for a switch that is away: else that takes moments."""


@dataclass(slots=True, kw_only=True)
class Job:
    """A job: a name, and the slots that are reserved for it."""

    name: str
    number: int
    """The header's `job`, 1 to 65535."""
    workers: int
    """World size, 1 to 32, over several switches to 4,096."""
    slots: SlotRange
    group: int
    """Multicast group to which its results go."""
    timeout_s: float
    """Seconds that members wait for one another. Before they end, members have heard of a lost member."""
    gathering: Incarnation
    """The next incarnation, which members join."""
    fits_slots: bool = False
    """True: at each admission `slots` becomes as long as the members' window."""
    shares_slots: bool = False
    """The job shares slots of its switch with others; `slots` are those that it has at its fallback."""
    own_part: SlotRange | None = None
    """Slots of its switch that such a job has reserved beside those that it shares."""
    ephemeral: bool = False
    """The job is removed when it has had no members for a while."""
    least_quorum: float = LEAST_QUORUM
    """Operations that go on without some ranks need at least this share of them."""
    visited: bool = False
    """Whether the job has ever had a member."""
    vacant_s: float = 0.0
    """How long the job has had no members."""
    link_numbers: list[int] = field(default_factory=list)
    """Under which job numbers members send over their links beyond the first."""
    live: Incarnation | None = None
    """The incarnation whose entries are on the switch."""
    has_ended: bool = False
    """Its latest incarnation was live, has ended, and no other has begun."""
    fault: Fault | None = None
    """What had broken that one. None: all have left in order, or were told to join again."""
    reforming: set[int] = field(default_factory=set)
    """Nonces of the live members that want to continue without those that are lost."""
    reformed: dict[int, int] = field(default_factory=dict)
    """New ranks of the members that continued last time without the lost ones, by old nonce."""

    @property
    def reserved(self) -> SlotRange | None:
        """Slots of its switches that no other job uses."""
        return self.own_part if self.shares_slots else self.slots

    @property
    def slot_count(self) -> int:
        """How many slots its workers may use."""
        return self.slots.count + (self.own_part.count if self.own_part else 0)

    @property
    def is_complete(self) -> bool:
        """Whether the next incarnation can be admitted.

        A rank can join the next incarnation only when it has gone from the live one.  So when all have joined, no
        incarnation is live.
        """
        return all(member.state is MemberState.SEEN for member in self.gathering.members)

    def is_held_up(self, now: float) -> bool:
        """Whether its next incarnation waits for a switch or a link, as far as is known."""
        unseen = (member for member in self.gathering.members if member.state is MemberState.JOINED)
        return any(now > member.joined_s + UNSEEN_S for member in unseen) or (
            self.is_complete and bool(self.gathering.held_up)
        )

    @property
    def is_vacant(self) -> bool:
        """Whether the job has no members."""
        return self.live is None and all(one.state is MemberState.EXPECTED for one in self.gathering.members)

    @property
    def present(self) -> int:
        """How many ranks have a member that is admitted or about to be."""
        states = MemberState.JOINED, MemberState.SEEN, MemberState.ADMITTED
        return sum(len(one.ranks(*states)) for one in (self.live, self.gathering) if one is not None)

    def epoch_for(self, incarnation: Incarnation) -> int:
        """Return the epoch under which a member has to join again; its own epoch if it may stay.

        A live member has to join again when a new member has joined in the place of a lost one.
        """
        if incarnation is self.live:
            lost = incarnation.ranks(MemberState.LOST)
            if any(self.gathering.members[rank].state is not MemberState.EXPECTED for rank in lost):
                return self.gathering.epoch
        return incarnation.epoch


def new_incarnation(epoch: int, workers: int) -> Incarnation:
    """Return an incarnation without members."""
    return Incarnation(epoch=epoch & MAX_NUMBER, members=[JobMember(rank=rank) for rank in range(workers)])

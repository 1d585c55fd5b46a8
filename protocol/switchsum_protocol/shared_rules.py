"""The rules of a slot that jobs share: whose it is, and what goes on to a job's fallback instead.

This is the definition, in plain Python; tests/p4/test_shared.py holds the P4 program (`p4src/owners.p4`, with the
same rows) to it.  `slot_rules` has what a slot does with the contributions that it takes.  checks/verify/passing.pml
says the same once more, and is searched for wrong sums and dead ends.

A job that shares slots has none of its own on the switch that its workers are connected to.  It has some on its
*fallback*, another switch of the same program.  An *operation* is what has one digest: a call of the workers, or rather
its column in one slot.  Its first round is without lanes (its block is NO_BLOCK), and *claims* the slot.  An
operation that finds it taken may get it later, between two of its rounds (row H).

    row | the slot's owner         | what came                  | what happens
    ----|--------------------------|----------------------------|------------------------------------------------------
      A | nobody, an operation     | a claim                    | the operation owns the slot, both cells of which are
        | that is over, an orphan, |                            | emptied; the claim goes on to the fallback
        | an older claim of the job|                            |
      B | this operation           | a claim                    | goes on to the fallback
      C | another operation        | any contribution           | goes on to the fallback; counted as TAKEN, or as
        |                          |                            | REPEATED if that operation is one of this job
      D | this operation           | any other contribution     | `slot_rules`, but HELD goes to all members
      E | this operation           | a contribution that makes  | the result goes to the fallback, as a contribution
        |                          | a round complete which     | that is final
        |                          | names no next block        |
      F | any                      | RESULT or HELD of the      | all members get it.  If the slot is this operation's
        |                          | fallback                   | and there is no next block, the operation is over
      G | any                      | QUERY or SET               | STATE says in its cookie who holds the slot
      H | nobody, an operation     | RESULT of the fallback,    | as F, and the operation owns the slot, both cells of
        | that is over, an orphan  | which names a next block   | which are emptied; the result is not called TAKEN

The fallback takes what is passed on as `slot_rules` says, and a final contribution as `tree_rules` does (row 15).  It
gives all its answers to the switch that passes on, under that switch's own rank: one replica, which row F multiplies.

Why these rules are right, whatever is lost, repeated or late, and whoever takes a slot from whom:

* **Lanes of two jobs never meet.**  A contribution is added in a slot only if the slot is its operation's, and whoever
  takes a slot empties both cells.  The fallback's slots are the job's own.
* **A claim waits for nobody's slot.**  The fallback completes it, so that it does not matter whose the slot is.  Which
  member's claim comes first does not matter either: the owner is an operation.
* **A slot may be taken in the middle of a round.**  Then some contributions to the round are lost with the cell, and
  some go to the fallback.  Members repeat until they have the result.  A repeat goes where the slot's owner says *now*,
  so that all contributions come together in one place.  A round may be complete in both, with one and the same sum.
* **An operation that met a taken slot gets it once it is free** (row H), between two of its rounds: all members have
  contributed to the one, and none to the next, for the result that tells them of it is in the switch.  One that comes
  late, or again, gives the slot to an operation in the middle of a round, which is as if it had been taken then.
* **A member may be one round ahead of what is repeated.**  It has the result that another one lost with the cell.  HELD
  goes to all members, and a member that misses its bit in one about the round before repeats its contribution to it.
* **A worker that has the last result may leave.**  So the last round is kept where nobody takes it: only the fallback
  gives that result (row E), and has it until the job's next operation in this slot.
* **An owner may be gone**, with its workers.  A slot that its owner has not used for `ORPHAN_AGE` may be taken.  One
  that is taken too early costs time, and no sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from switchsum_switch.wires.headers import Address

from .frame import NO_BLOCK, Flag, Header, Kind, Reason
from .serial import is_older
from .slot_rules import AdmittedMember, Cell, Replies
from .tree_rules import TreeMember, TreeSwitch
from .wire import Packet, build_frame, parse_frame

ORPHAN_AGE: Final = 256
"""A slot that its owner has not used for longer may be taken. Unit: `AGE_US`; as `ORPHAN_AGE` of p4src/config.p4."""
AGE_US: Final = 1 << 16
_AGES: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedMember(TreeMember):
    """A worker of a job that shares slots."""

    is_at_fallback: bool = False
    """The switch is the job's fallback; the address is of the switch that passes contributions on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """What a switch knows of a job's fallback: where it is, and who this switch is to it."""

    job: int
    epoch: int
    rank: int
    """Rank of this switch as a member of the fallback. No worker of the job has it."""
    cookie: int
    """Cookie of this switch as a member of the fallback."""
    address: Address
    """Address of the fallback."""
    port: int
    """The port that leads there."""
    first_slot: int
    """The first of the slots here that the job shares."""
    first_slot_there: int
    """The first of the job's slots at the fallback."""
    slot_count: int
    tree: int = 0
    padding: int = 0
    """Bytes behind a contribution without lanes, where the fallback limits by how much frames grow."""


@dataclass(slots=True, kw_only=True)
class Owner:
    """The operation that owns a slot."""

    job: int
    epoch: int
    digest: int
    number: int
    """Number of the claim."""
    heard: int
    """When the operation was last heard of, in units of `AGE_US`."""
    is_over: bool = False

    def is_of(self, header: Header) -> bool:
        """Tell whether a frame is of this operation."""
        return (self.job, self.epoch, self.digest) == (header.job, header.epoch, header.digest)


class SharedSwitch(TreeSwitch):
    """A switch whose jobs share slots, or their fallback.  Subclasses break a rule to see whether tests notice."""

    def __init__(self, *, lanes_per_frame: int, address: Address) -> None:
        super().__init__(lanes_per_frame=lanes_per_frame, address=address)
        self._fallbacks: dict[tuple[int, int, int], Fallback] = {}
        self.owners: dict[int, Owner] = {}
        """Owners by slot. A slot that is missing belongs to nobody."""
        self.now_us = 0
        """The switch's clock: whoever drives it sets the time."""

    def share(self, fallback: Fallback) -> None:
        """Write the entries of a job's fallback."""
        self._fallbacks[fallback.job, fallback.tree, fallback.epoch] = fallback

    def clear(self) -> None:
        """Forget all rounds and owners."""
        super().clear()
        self.owners.clear()

    def answer_request(self, request: Header) -> Header:
        """Answer QUERY and SET as any switch; row G: job, epoch and digest of the owner are in the cookie."""
        owner = self.owners.get(request.slot)
        is_held = owner is not None and not owner.is_over
        holder = owner.job << 48 | owner.epoch << 32 | owner.digest if owner is not None and is_held else 0
        return replace(super().answer_request(request), cookie=holder)

    # The rules of sharing.

    def is_free(self, owner: Owner | None) -> bool:
        """Rows A and H: tell whether any operation may take a slot."""
        return owner is None or owner.is_over or (self._age() - owner.heard) % _AGES > ORPHAN_AGE

    def may_take(self, owner: Owner | None, header: Header) -> bool:
        """Row A: tell whether a claim takes a slot that is not its operation's."""
        if owner is None or self.is_free(owner):
            return True
        return owner.job == header.job and is_older(owner.number, header.number)

    def is_added_here(self, owner: Owner | None, header: Header) -> bool:
        """Rows C and D: tell whether a contribution that is no claim is added in the slot."""
        return owner is not None and owner.is_of(header)

    def empty(self, slot: int) -> None:
        """Row A: empty both cells of a slot."""
        for version in range(2):
            if cell := self.cells.get(slot << 1 | version):
                cell.seen = 0

    def is_kept_there(self, answer: Header) -> bool:
        """Row E: tell whether an answer is an operation's last result, which only the fallback gives."""
        return answer.kind == Kind.RESULT and answer.next_block == NO_BLOCK

    def _take(self, header: Header) -> None:
        self.empty(header.slot)
        self.owners[header.slot] = Owner(
            job=header.job, epoch=header.epoch, digest=header.digest, number=header.number, heard=self._age()
        )

    def _age(self) -> int:
        return self.now_us // AGE_US % _AGES

    def _contribute(self, port: int, member: AdmittedMember, packet: Packet) -> Replies:
        if not isinstance(member, SharedMember):
            return super()._contribute(port, member, packet)
        if member.is_at_fallback:
            return self._contribute_at_fallback(port, member, packet)
        header = packet.header
        owner = self.owners.get(header.slot)
        is_own = owner is not None and owner.is_of(header)
        if header.block == NO_BLOCK:
            if not is_own and self.may_take(owner, header):
                self._take(header)
                is_own = True
            elif is_own and owner is not None:
                owner.heard = self._age()
            return self._pass_on(packet, Reason.CONTRIBUTED if is_own else self._why_passed(owner, header))
        if not self.is_added_here(owner, header):
            return self._pass_on(packet, self._why_passed(owner, header))
        if owner is not None:
            owner.heard = self._age()
        return super()._contribute(port, member, packet)

    def _why_passed(self, owner: Owner | None, header: Header) -> Reason:
        """Row C: a job's next operation has the slot while others' repeats to the one before still come."""
        return Reason.REPEATED if owner is not None and owner.job == header.job else Reason.TAKEN

    def _contribute_at_fallback(self, port: int, member: SharedMember, packet: Packet) -> Replies:
        relay = next(one for one in self.members.values() if one.job == member.job and _is_relay(one))
        replies = super()._contribute(port, member, packet)
        answers = [(parse_frame(frame), frame) for _, frame in replies]
        assert all(answer is not None for answer, _ in answers)
        return [
            (relay.port, _readdressed(frame, relay.address, rank=relay.rank, cookie=relay.cookie))
            for _, frame in answers[:1]
        ]

    def _take_repeat(self, port: int, member: AdmittedMember, cell: Cell, packet: Packet) -> Replies:
        if not isinstance(member, SharedMember) or member.is_at_fallback:
            return super()._take_repeat(port, member, cell, packet)
        if cell.seen != member.everybody:
            self.events[Reason.HELD] += 1
            return self._tell_members(member, cell, self.answer(cell, packet.header, Kind.HELD))
        answer = self.answer(cell, packet.header, Kind.RESULT)
        if self.is_kept_there(answer) and (fallback := self._fallback(packet.header)):
            self.events[Reason.REPEATED] += 1
            return self._hand_in(fallback, cell, answer)
        return super()._take_repeat(port, member, cell, packet)

    def _complete(self, member: AdmittedMember, cell: Cell, header: Header) -> Replies:
        if isinstance(member, SharedMember) and not member.is_at_fallback:
            answer = self.answer(cell, header, Kind.RESULT)
            if self.is_kept_there(answer) and (fallback := self._fallback(header)):
                return self._hand_in(fallback, cell, answer)
        return super()._complete(member, cell, header)

    def _tell_members(self, member: AdmittedMember, cell: Cell, answer: Header) -> Replies:
        """Tell the relay alone, where workers stand behind another switch."""
        members = [one for one in self.members.values() if one.job == member.job and one.tree == member.tree]
        if not any(isinstance(one, SharedMember) and one.is_at_fallback for one in members):
            return super()._tell_members(member, cell, answer)
        return [
            (one.port, self.frame(one.address, cell, replace(answer, rank=one.rank, cookie=one.cookie)))
            for one in members
            if _is_relay(one)
        ]

    def _fallback(self, header: Header) -> Fallback | None:
        return self._fallbacks.get((header.job, header.tree, header.epoch))

    def _pass_on(self, packet: Packet, reason: Reason) -> Replies:
        """Send a contribution on to the fallback; only its addresses and its slot change."""
        fallback = self._fallback(packet.header)
        self.events[reason] += 1
        if fallback is None:
            return []
        slot = packet.header.slot - fallback.first_slot + fallback.first_slot_there
        header = replace(packet.header, slot=slot)
        return [(fallback.port, build_frame(self.address, fallback.address, header, packet.payload))]

    def _hand_in(self, fallback: Fallback, cell: Cell, answer: Header) -> Replies:
        """Row E: send the last result to the fallback, as this switch's contribution."""
        header = replace(
            answer,
            kind=Kind.CONTRIBUTION,
            flags=answer.flags | Flag.FINAL,
            rank=fallback.rank,
            cookie=fallback.cookie,
            slot=answer.slot - fallback.first_slot + fallback.first_slot_there,
        )
        payload = cell.lanes.tobytes() if header.flags & Flag.PAYLOAD else bytes(fallback.padding)
        return [(fallback.port, build_frame(self.address, fallback.address, header, payload))]

    def _take_other_kind(self, port: int, packet: Packet) -> Replies:
        header = packet.header
        fallback = self._fallback(header)
        if fallback is None or header.kind not in (Kind.RESULT, Kind.HELD, Kind.REJECT):
            return super()._take_other_kind(port, packet)
        there = (packet.source.ip, packet.source.port, port)
        if there != (fallback.address.ip, fallback.address.port, fallback.port) or header.rank != fallback.rank:
            return self.drop(Reason.NOT_ADMITTED)
        if header.cookie != fallback.cookie:
            return self.drop(Reason.COOKIE)
        slot = header.slot - fallback.first_slot_there
        if not 0 <= slot < fallback.slot_count:
            return self.drop(Reason.SLOT)
        if header.kind == Kind.REJECT:
            return self.drop(Reason.KIND)
        return self._relay(replace(header, slot=slot + fallback.first_slot), packet)

    def _relay(self, header: Header, packet: Packet) -> Replies:
        """Rows F and H: what the fallback says goes to all members."""
        owner = self.owners.get(header.slot)
        if owner is None or not owner.is_of(header):
            if header.kind == Kind.RESULT and header.next_block != NO_BLOCK and self.is_free(owner):
                self._take(header)
            else:
                header = replace(header, reason=Reason.TAKEN)
        elif header.kind == Kind.RESULT and header.next_block == NO_BLOCK:
            owner.is_over = True
        if header.kind == Kind.RESULT:
            self.events[Reason.COMPLETED] += 1
        cell = Cell(lanes=self.lanes_of(packet)) if header.flags & Flag.PAYLOAD else self.cell(header)
        members = [
            one
            for one in self.members.values()
            if (one.job, one.tree, one.epoch) == (header.job, header.tree, header.epoch)
        ]
        return [
            (one.port, self.frame(one.address, cell, replace(header, rank=one.rank, cookie=one.cookie)))
            for one in members
        ]


def _is_relay(member: AdmittedMember) -> bool:
    return isinstance(member, TreeMember) and member.is_switch


def _readdressed(frame: bytes, address: Address, *, rank: int, cookie: int) -> bytes:
    """Return the frame under another member's address, rank and cookie."""
    packet = parse_frame(frame)
    assert packet is not None
    return build_frame(packet.source, address, replace(packet.header, rank=rank, cookie=cookie), packet.payload)

"""The rules of a slot on a switch in a tree: leaves, inner switches and the root run the same rules with other entries.

This is the definition, in plain Python; tests/p4/test_trees.py and test_tree_states.py hold the P4 program to
it.  `slot_rules` has what a switch alone does, and each row there holds here, too.  checks/verify/tree.pml says the
same rules once more and is searched for wrong sums and dead ends.

A switch with an entry `Upstream` for a job is a member of the switch above: its *partial*, what its own members'
contributions come to, goes up as one contribution, under its own bit and with its own cookie.  A switch without one is
the root.  Members are workers or switches; bits are places among the members of this switch, whatever their ranks are.
A version is *final* when its lanes are the result of the whole job: at the root as soon as it is complete, elsewhere
once the result from above has overwritten the partial.

    row | the version            | what came                    | what happens                       | counted as
    ----|------------------------|------------------------------|------------------------------------|------------
     12 | complete, by 4 to 9    |                              | with a switch above: the partial   | COMPLETED
        |                        |                              | goes up; else as in `slot_rules`   |
     13 | complete, not final    | the first repeat, a recall,  | the partial goes up again          | REPEATED
        |                        | or a member's second repeat  |                                    |
        |                        | since the partial last did   |                                    |
     14 | final                  | the first recall, or a       | the result goes up, as a           | REPEATED
        |                        | member's second one since    | contribution that is final         |
        |                        | the result last did          |                                    |
     15 | any but settled ones   | a switch's contribution that | its lanes become the result, all   | COMPLETED
        |                        | is final, number not older   | members count as contributors and  |
        |                        |                              | get it; the version is final       |
     16 | complete, not final    | a RESULT from above for the  | overwrites the partial; the version| COMPLETED
        |                        | version's own number         | is final; all members get it       |
     17 | complete, not final    | HELD or REJECT from above    | all members get it                 | HELD, or why
     18 | any other              | whatever comes from above    | dropped                            | STALE
     19 | complete, not final    | any other repeat             | dropped                            | REPEATED
        | final                  | any other recall             | dropped                            | REPEATED

A version is *settled* when it is final, or complete at the root.  Row 11 (a repeat gets the stored result) is for
settled versions; at the root, rows 13 and 14 do not exist.

What comes from above counts only if it has the address, the port and the cookie of the `Upstream` entry: a member that
sends a RESULT is dropped.  Only switches' contributions may say that they are final, overflowed or mismatched.

What can be lost, and why workers alone recover it.  A partial or a result that is lost between switches is missed by
workers, who repeat; row 13 sends the partial up again, and the switch above answers it as it answers a worker.  All
members of a switch miss the same result at the same time.  Row 19 lets one of their repeats stand for all: if each sent
the partial up, lanes and all, 32 members would fill the link to the switch above 32 times.  Nobody waits for another
member: whoever repeats again sends it up.  A repeat of row 19 gets no answer, for workers learn from answers how soon
the root gives one, and what comes from above for the repeat that went up goes to all members.

A switch that restarts is filled again as `slot_rules` says: each worker repeats the round that it waits for and the
one before.  But where the result of the one before has reached a leaf, that leaf's partial is gone.  If the root
forgets that round while another leaf still needs it, the leaf that has the result must give it back: so a repeat of a
round whose result the worker holds bears the flag `RECALL`, and row 14 sends the result up, where row 15 takes it for
the round's.  Every result of a round is the same, so it does not matter who gave it.  (Without rows 14 and 15 the model
finds a dead end.)  Row 19 lets one recall stand for all members, too: with thousands of workers some frame of each
round is lost, and all of them would recall the round before.  To an inner switch a final contribution is the recall of
a switch below, and one stands for all there, too: else 32 leaves would send each result to the root 32 times.

A result that comes twice would change nothing, since it overwrites; row 18 drops it to save the members a second one.
One for another number, or for a version that is not complete, would be a wrong sum: see the broken rules in
checks/verify/trees.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from switchsum_switch.wires.headers import Address

from .frame import Flag, Header, Kind, Reason, payload_bytes
from .serial import is_older
from .slot_rules import AdmittedMember, Cell, ReferenceSwitch, Replies
from .wire import Packet, build_frame

_OF_RESULTS: Final = Flag.PAYLOAD | Flag.OVERFLOW | Flag.MISMATCH | Flag.MARK | Flag.SELECT
"""Flags of a result from above that are handed on. The upper switch's other flags are its own."""
_FROM_WORKERS: Final = Flag.PAYLOAD | Flag.MARK | Flag.REPEAT | Flag.RECALL | Flag.SELECT
_REASONS: Final = frozenset(Reason) - {Reason.LOST_EGRESS}
"""Why a switch above may have refused a partial.  LOST_EGRESS is none of them: it counts frames that leave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeMember(AdmittedMember):
    """A member of one switch of a tree: a worker, or a switch below."""

    place: int
    """Place of its bit among this switch's members."""
    is_switch: bool = False

    @property
    def bit(self) -> int:
        """The member's bit in this switch's bitmaps."""
        return 1 << self.place


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """What a switch knows of the one above: where it is, and who this switch is to it."""

    job: int
    epoch: int
    rank: int
    """Rank of this switch as a member of the switch above. No worker of the job has it."""
    cookie: int
    """Cookie of this switch as a member of the switch above."""
    address: Address
    """Address of the switch above."""
    port: int
    """The port that leads there."""
    members: int
    """Members of this switch."""
    first_slot: int = 0
    """The job's first slot here."""
    first_slot_above: int = 0
    """The job's first slot on the switch above: each switch numbers its own slots."""
    slot_count: int = 1024
    tree: int = 0
    padding: int = 0
    """Bytes behind a contribution without lanes, where the switch above limits by how much frames grow."""

    @property
    def everybody(self) -> int:
        """The bits of all members of this switch."""
        return (1 << self.members) - 1


class TreeSwitch(ReferenceSwitch):
    """A switch of a tree that only aggregates.  Subclasses break a rule to see whether tests notice."""

    def __init__(self, *, lanes_per_frame: int, address: Address) -> None:
        super().__init__(lanes_per_frame=lanes_per_frame, address=address)
        self._upstreams: dict[tuple[int, int, int], Upstream] = {}

    def attach(self, upstream: Upstream) -> None:
        """Write the entry of the switch above, for one tree of a job."""
        self._upstreams[upstream.job, upstream.tree, upstream.epoch] = upstream

    # The rules of a tree.

    def is_settled(self, cell: Cell, everybody: int, upstream: Upstream | None) -> bool:
        """Tell whether a version has the result of the whole job."""
        return cell.seen == everybody and (upstream is None or bool(cell.flags & Flag.FINAL))

    def goes_up_again(self, header: Header) -> bool:
        """Row 14: tell whether a repeat to a final version asks for its result on behalf of others."""
        return bool(header.flags & (Flag.RECALL | Flag.FINAL))

    def stands_for_all(self, member: AdmittedMember, cell: Cell, header: Header) -> bool:
        """Rows 13, 14 and 19: tell whether a repeat or recall goes up, for all members that have asked since."""
        goes_anyhow = header.flags & Flag.RECALL and not cell.flags & Flag.FINAL
        return cell.asked == 0 or bool(cell.asked & member.bit or goes_anyhow)

    def is_result_taken(self, cell: Cell, number: int, upstream: Upstream) -> bool:
        """Rows 16 to 18: tell whether what comes from above for a number is meant for what the version holds."""
        return cell.seen == upstream.everybody and cell.number == number and not cell.flags & Flag.FINAL

    def _contribute(self, port: int, member: AdmittedMember, packet: Packet) -> Replies:
        header = packet.header
        if not (isinstance(member, TreeMember) and member.is_switch):
            header = replace(header, flags=header.flags & _FROM_WORKERS)
        packet = replace(packet, header=header)
        cell = self.cell(header)
        is_same = cell.seen != 0 and cell.number == header.number
        is_newer = cell.seen == 0 or (not is_same and not is_older(header.number, cell.number))
        is_unsettled = is_same and not self.is_settled(cell, member.everybody, self._upstream(header))
        if header.flags & Flag.FINAL and (is_newer or is_unsettled):  # row 15
            self.open(cell, header.number, (0, 0, 0, 0, 0))
            cell.seen = member.everybody
            return self._become_final(member, cell, packet)
        return super()._contribute(port, member, packet)

    def _merge(self, cell: Cell, packet: Packet, tag: tuple[int, int, int, int, int]) -> Reason:
        """Let the flags of a partial count as well."""
        cell.flags |= packet.header.flags & (Flag.OVERFLOW | Flag.MISMATCH)
        return super()._merge(cell, packet, tag)

    def _complete(self, member: AdmittedMember, cell: Cell, header: Header) -> Replies:
        upstream = self._upstream(header)
        if upstream is None:
            return super()._complete(member, cell, header)
        return self._send_up(upstream, cell, header)

    def _take_repeat(self, port: int, member: AdmittedMember, cell: Cell, packet: Packet) -> Replies:
        upstream = self._upstream(packet.header)
        if upstream is None or cell.seen != member.everybody:
            return super()._take_repeat(port, member, cell, packet)
        if self.is_settled(cell, member.everybody, upstream) and not self.goes_up_again(packet.header):
            return super()._take_repeat(port, member, cell, packet)
        if not self.stands_for_all(member, cell, packet.header):  # row 19
            cell.asked |= member.bit
            return self.drop(Reason.REPEATED)
        cell.asked = member.bit
        self.events[Reason.REPEATED] += 1
        return self._send_up(upstream, cell, packet.header)  # rows 13 and 14

    def _tell_members(self, member: AdmittedMember, cell: Cell, answer: Header) -> Replies:
        """Tell the members of this tree: a worker is a member of each tree of its job."""
        tree = (member.job, member.tree, member.epoch)
        return [
            (one.port, self.frame(one.address, cell, replace(answer, rank=one.rank, cookie=one.cookie)))
            for one in self.members.values()
            if (one.job, one.tree, one.epoch) == tree
        ]

    def _upstream(self, header: Header) -> Upstream | None:
        return self._upstreams.get((header.job, header.tree, header.epoch))

    def _send_up(self, upstream: Upstream, cell: Cell, header: Header) -> Replies:
        """Send what the cell holds as this switch's contribution; it is final if the cell is."""
        up = replace(
            super().answer(cell, header, Kind.RESULT),
            kind=Kind.CONTRIBUTION,
            rank=upstream.rank,
            slot=header.slot - upstream.first_slot + upstream.first_slot_above,
            bitmap=header.bitmap if cell.flags & Flag.SELECT else 0,
            cookie=upstream.cookie,
        )
        payload = cell.lanes.tobytes() if up.flags & Flag.PAYLOAD else bytes(upstream.padding)
        return [(upstream.port, build_frame(self.address, upstream.address, up, payload))]

    def _take_other_kind(self, port: int, packet: Packet) -> Replies:
        """Take what comes from the switch above."""
        header = packet.header
        upstream = self._upstream(header)
        if header.kind not in (Kind.RESULT, Kind.HELD, Kind.REJECT) or upstream is None:
            return self.drop(Reason.KIND)
        above = (packet.source.ip, packet.source.port, port)
        if above != (upstream.address.ip, upstream.address.port, upstream.port) or header.rank != upstream.rank:
            return self.drop(Reason.NOT_ADMITTED)
        if header.cookie != upstream.cookie:
            return self.drop(Reason.COOKIE)
        slot = header.slot - upstream.first_slot_above
        if not 0 <= slot < upstream.slot_count:
            return self.drop(Reason.SLOT)
        packet = replace(packet, header=replace(header, slot=slot + upstream.first_slot))
        return self._take_from_above(upstream, packet)

    def _take_from_above(self, upstream: Upstream, packet: Packet) -> Replies:
        header = packet.header
        cell = self.cell(header)
        if not self.is_result_taken(cell, header.number, upstream):
            return self.drop(Reason.STALE)  # row 18
        own = (header.job, header.tree, header.epoch)
        member = next(one for one in self.members.values() if (one.job, one.tree, one.epoch) == own)
        if header.kind == Kind.RESULT:
            return self._become_final(member, cell, packet)  # row 16
        if header.kind == Kind.HELD:
            self.events[Reason.HELD] += 1
        elif header.reason in _REASONS:  # one that this switch does not know is handed on uncounted
            self.events[Reason(header.reason)] += 1
        answer = self.answer(cell, header, Kind(header.kind))  # row 17
        if header.kind == Kind.REJECT:
            answer = replace(answer, flags=0, reason=header.reason)
        return self._tell_members(member, cell, answer)

    def _become_final(self, member: AdmittedMember, cell: Cell, packet: Packet) -> Replies:
        """Rows 15 and 16: the frame's lanes and all that goes with them are the result; tell the members."""
        header = packet.header
        cell.tag = (int(header.operator), int(header.format), header.exponent, header.block, header.digest)
        cell.next_block, cell.next_exponent = header.next_block, header.next_exponent
        cell.flags = header.flags & _OF_RESULTS | Flag.FINAL
        cell.asked = 0
        if header.flags & Flag.PAYLOAD:
            cell.lanes[: payload_bytes(self.lanes_per_frame)] = self.lanes_of(packet)
        self.events[Reason.COMPLETED] += 1
        return self._tell_members(member, cell, self.answer(cell, header, Kind.RESULT))

    def answer(self, cell: Cell, header: Header, kind: Kind) -> Header:
        """Keep from members what concerns switches alone; STATE tells the controller."""
        answer = super().answer(cell, header, kind)
        return answer if kind is Kind.STATE else replace(answer, flags=answer.flags & ~Flag.FINAL)

"""Switches that break one rule on purpose, to see whether a test, or the kit `switchsum conform`, notices it.

>>> from switchsum.testing.faults import FAULTS
>>> broken = FAULTS["a repeat is combined once more"].switch(lanes_per_frame=4)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from switchsum_protocol.frame import (
    WIDENED_FORMATS,
    WIRE_VERSION,
    Flag,
    Header,
    Kind,
    LaneFormat,
    Operator,
    Reason,
    payload_bytes,
)
from switchsum_protocol.slot_rules import AdmittedMember, Cell, ReferenceSwitch, Replies, Tag
from switchsum_protocol.wire import Packet, build_frame, parse_frame
from switchsum_switch.wires.headers import Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A rule, and a switch that breaks it."""

    rule: str
    """Name of the rule that it breaks, as `switchsum conform` prints it."""
    switch: type[ReferenceSwitch]


FAULTS: Final[dict[str, Fault]] = {}
"""Broken switches, by the fault that they have."""


def _breaks(rule: str, what: str) -> Callable[[type[ReferenceSwitch]], type[ReferenceSwitch]]:
    def enter(switch: type[ReferenceSwitch]) -> type[ReferenceSwitch]:
        FAULTS[what] = Fault(rule=rule, switch=switch)
        return switch

    return enter


@_breaks("row 3", "an old number opens a round")
class OpensForOldNumbers(ReferenceSwitch):
    """Starts afresh at any other number."""

    def is_stale(self, cell: Cell, number: int) -> bool:
        """Say no."""
        return False


@_breaks("numbers", "numbers are compared as if they never wrapped")
class ComparesPlainly(ReferenceSwitch):
    """Takes 2^32 - 1 for newer than 0."""

    def is_stale(self, cell: Cell, number: int) -> bool:
        """Compare as any two numbers."""
        return cell.seen != 0 and number < cell.number


@_breaks("row 4", "an unused cell takes no round with the number that memory begins with")
class NeverOpensZero(ReferenceSwitch):
    """Looks only at the number to see whether a round must be opened."""

    def open(self, cell: Cell, number: int, tag: Tag) -> None:
        """Open unless the cell has the number."""
        if cell.number != number:
            super().open(cell, number, tag)


@_breaks("row 5", "lanes of the last round stay")
class KeepsOldLanes(ReferenceSwitch):
    """Does not start afresh at a newer number."""

    def open(self, cell: Cell, number: int, tag: Tag) -> None:
        """Keep the payload flag."""
        flags = cell.flags & Flag.PAYLOAD
        super().open(cell, number, tag)
        cell.flags = flags


@_breaks("row 5", "flags of the last round stay")
class KeepsOldFlags(ReferenceSwitch):
    """Remembers overflow, mismatch and mark."""

    def open(self, cell: Cell, number: int, tag: Tag) -> None:
        """Keep all flags but payload."""
        flags = cell.flags & ~Flag.PAYLOAD
        super().open(cell, number, tag)
        cell.flags = flags


@_breaks("row 6", "later lanes replace the earlier ones")
class Stores(ReferenceSwitch):
    """Adds nothing."""

    def combine(self, cell: Cell, packet: Packet) -> bool:
        """Store."""
        cell.flags &= ~Flag.PAYLOAD
        return super().combine(cell, packet)


@_breaks("row 7", "a contribution without lanes clears them")
class ClearsLanes(ReferenceSwitch):
    """Takes a skipped block for zeros that replace."""

    def _merge(self, cell: Cell, packet: Packet, tag: Tag) -> Reason:
        if not packet.header.flags & Flag.PAYLOAD:
            cell.lanes[:] = 0
        return super()._merge(cell, packet, tag)


@_breaks("row 8", "an overflow sets no flag")
class HidesOverflow(ReferenceSwitch):
    """Wraps silently."""

    def combine(self, cell: Cell, packet: Packet) -> bool:
        """Combine, and say nothing."""
        super().combine(cell, packet)
        return False


@_breaks("row 8", "a sum that overflows is saturated")
class Saturates(ReferenceSwitch):
    """Leaves a lane of 32 bits at its largest number."""

    def combine(self, cell: Cell, packet: Packet) -> bool:
        """Clip sums."""
        before = cell.lanes.view(">i4").astype(np.int64)
        overflowed = super().combine(cell, packet)
        if overflowed and packet.header.format == 1:
            total = before + self.lanes_of(packet).view(">i4")
            cell.lanes[:] = total.clip(-(1 << 31), (1 << 31) - 1).astype(">i4").view(np.uint8)
        return overflowed


@_breaks("row 9", "another tag is combined")
class CombinesAnything(ReferenceSwitch):
    """Never looks at the tag."""

    def _merge(self, cell: Cell, packet: Packet, tag: Tag) -> Reason:
        return super()._merge(cell, packet, cell.tag)


@_breaks("row 9", "a mismatch sets no flag")
class HidesMismatch(ReferenceSwitch):
    """Counts the member, and says nothing."""

    def _merge(self, cell: Cell, packet: Packet, tag: Tag) -> Reason:
        reason = super()._merge(cell, packet, tag)
        cell.flags &= ~Flag.MISMATCH
        return reason


@_breaks("row 10", "a repeat is combined once more")
class CombinesRepeats(ReferenceSwitch):
    """Does not know who has contributed while a round is open."""

    def has_contributed(self, cell: Cell, member: AdmittedMember) -> bool:
        """Say so of complete rounds alone."""
        return cell.seen == member.everybody


@_breaks("row 10", "a repeat in an open round gets no answer")
class NeverHolds(ReferenceSwitch):
    """Leaves members to wonder."""

    def _take_repeat(self, port: int, member: AdmittedMember, cell: Cell, packet: Packet) -> Replies:
        if cell.seen != member.everybody:
            return self.drop(Reason.HELD)
        return super()._take_repeat(port, member, cell, packet)


@_breaks("row 10", "HELD does not say whose contributions are there")
class HoldsWithoutNames(ReferenceSwitch):
    """Names only the sender."""

    def answer(self, cell: Cell, header: Header, kind: Kind) -> Header:
        """Name the sender alone in HELD."""
        answer = super().answer(cell, header, kind)
        return replace(answer, bitmap=1 << header.rank) if kind is Kind.HELD else answer


@_breaks("row 11", "a repeat in a complete round gets no answer")
class NeverRepeats(ReferenceSwitch):
    """Sends each result once."""

    def _take_repeat(self, port: int, member: AdmittedMember, cell: Cell, packet: Packet) -> Replies:
        if cell.seen == member.everybody:
            return self.drop(Reason.REPEATED)
        return super()._take_repeat(port, member, cell, packet)


@_breaks("row 11", "a repeat in a complete round is told to everybody")
class RepeatsToAll(ReferenceSwitch):
    """Answers a repeat as it answers the last contribution."""

    def _take_repeat(self, port: int, member: AdmittedMember, cell: Cell, packet: Packet) -> Replies:
        if cell.seen == member.everybody:
            return self._tell_members(member, cell, self.answer(cell, packet.header, Kind.RESULT))
        return super()._take_repeat(port, member, cell, packet)


@_breaks("row 12", "the last member alone gets the result")
class TellsTheLast(ReferenceSwitch):
    """Answers whoever completes the round."""

    def _tell_members(self, member: AdmittedMember, cell: Cell, answer: Header) -> Replies:
        return [(member.port, self.frame(member.address, cell, answer))]


@_breaks("row 12", "results bear the cookie of the last member")
class TellsCookies(ReferenceSwitch):
    """Shows everybody the secret of one."""

    def _tell_members(self, member: AdmittedMember, cell: Cell, answer: Header) -> Replies:
        cookie = answer.cookie
        members = [other for other in self.members.values() if other.job == member.job]
        answers = [(one, replace(answer, rank=one.rank, cookie=cookie)) for one in members]
        return [(one.port, self.frame(one.address, cell, header)) for one, header in answers]


@_breaks("cells", "a slot has one cell")
class OneCell(ReferenceSwitch):
    """Ignores the lowest bit of the number."""

    def cell(self, header: Header) -> Cell:
        """Return the even one."""
        return super().cell(replace(header, number=header.number & ~1))


@_breaks("cells", "two slots share a cell")
class FewSlots(ReferenceSwitch):
    """Ignores the lowest bit of the slot."""

    def cell(self, header: Header) -> Cell:
        """Return that of the even slot."""
        return super().cell(replace(header, slot=header.slot & ~1))


@_breaks("next", "the largest next block wins")
class NamesTheLargest(ReferenceSwitch):
    """Skips blocks that some member has."""

    def _merge(self, cell: Cell, packet: Packet, tag: Tag) -> Reason:
        before = cell.next_block if cell.seen & (cell.seen - 1) else 0
        reason = super()._merge(cell, packet, tag)
        cell.next_block = max(before, packet.header.next_block)
        return reason


@_breaks("next", "the exponent of the last one wins")
class TakesTheLastExponent(ReferenceSwitch):
    """Scales a block by what one member has of it."""

    def _merge(self, cell: Cell, packet: Packet, tag: Tag) -> Reason:
        reason = super()._merge(cell, packet, tag)
        if packet.header.next_block == cell.next_block:
            cell.next_exponent = packet.header.next_exponent
        return reason


@_breaks("lanes", "a maximum is taken for a sum")
class AddsMaxima(ReferenceSwitch):
    """Knows one operator."""

    def combine(self, cell: Cell, packet: Packet) -> bool:
        """Add."""
        if packet.header.operator == Operator.MAX:
            packet = replace(packet, header=replace(packet.header, operator=Operator.SUM))
        return super().combine(cell, packet)


@_breaks("widened", "a narrow payload is widened in the wrong order")
class WidensInOrder(ReferenceSwitch):
    """Puts byte j into lane j."""

    def lanes_of(self, packet: Packet) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
        """Widen byte by byte."""
        lanes = super().lanes_of(packet)
        if len(lanes) != len(packet.payload):
            return np.frombuffer(packet.payload, np.int8).astype(">i2").view(np.uint8)
        return lanes


@_breaks("mark", "a congestion mark is forgotten")
class ForgetsMarks(ReferenceSwitch):
    """Clears flag 8."""

    def _merge(self, cell: Cell, packet: Packet, tag: Tag) -> Reason:
        reason = super()._merge(cell, packet, tag)
        cell.flags &= ~Flag.MARK
        return reason


@_breaks("select", "everybody gets the lanes of a selection")
class SelectsEverybody(ReferenceSwitch):
    """Ignores whom the bitmap names."""

    def frame(self, destination: Address, cell: Cell, header: Header) -> bytes:
        """Write the lanes for all."""
        everybody = replace(header, flags=header.flags & ~Flag.SELECT)
        return super().frame(destination, cell, everybody)


@_breaks("flags", "a worker may say that its lanes overflowed")
class BelievesWorkers(ReferenceSwitch):
    """Takes a worker's flags for a switch's."""

    def _merge(self, cell: Cell, packet: Packet, tag: Tag) -> Reason:
        cell.flags |= packet.header.flags & (Flag.OVERFLOW | Flag.MISMATCH)
        return super()._merge(cell, packet, tag)


class _Believes(ReferenceSwitch):
    """Puts a frame right before it takes it, so that one thing that is wrong is never noticed."""

    def process(self, port: int, frame: bytes) -> Replies:
        """Put the frame right, and take it."""
        packet, members = parse_frame(frame), [one for one in self.members.values() if one.port == port]
        if packet is None or not members:
            return super().process(port, frame)
        header, payload = self.put_right(packet, members[0])
        return super().process(port, build_frame(packet.source, packet.destination, header, payload))

    def put_right(self, packet: Packet, member: AdmittedMember) -> tuple[Header, bytes]:
        """Return what the frame should say, its checksums aside."""
        return packet.header, packet.payload


_breaks("checksum", "checksums are not looked at")(_Believes)


def _believes(what: Callable[[Header, AdmittedMember], Header]) -> type[ReferenceSwitch]:
    """Return a switch that puts a header right in one way."""

    class Believes(_Believes):
        """Believes the sender."""

        def put_right(self, packet: Packet, member: AdmittedMember) -> tuple[Header, bytes]:
            """Return the header as it should be."""
            return what(packet.header, member), packet.payload

    return Believes


_LIES: Final[dict[tuple[str, str], Callable[[Header, AdmittedMember], Header]]] = {
    ("not_admitted", "contributions of any epoch are taken"): lambda one, member: replace(one, epoch=member.epoch),
    ("not_admitted", "contributions of any rank are taken"): lambda one, member: replace(one, rank=member.rank),
    ("cookie", "contributions with any cookie are taken"): lambda one, member: replace(one, cookie=member.cookie),
    ("slot", "slots of others are taken"): lambda one, member: replace(
        one, slot=member.first_slot + (one.slot - member.first_slot) % member.slot_count
    ),
    ("operator", "unknown operators are sums"): lambda one, _: replace(
        one, operator=one.operator if one.operator in list(Operator) else Operator.SUM
    ),
    ("format", "unknown lane formats are int32"): lambda one, _: replace(
        one, format=one.format if one.format in list(LaneFormat) else LaneFormat.INT32
    ),
    ("version", "any wire version is taken"): lambda one, _: replace(one, version=WIRE_VERSION),
    ("kind", "every frame is a contribution"): lambda one, _: replace(one, kind=Kind.CONTRIBUTION),
}
for (_rule, _what), _change in _LIES.items():
    _breaks(_rule, _what)(_believes(_change))


@_breaks("length", "lanes that are missing count as zeros")
class FillsUp(_Believes):
    """Makes every payload as long as it should be."""

    def put_right(self, packet: Packet, member: AdmittedMember) -> tuple[Header, bytes]:
        """Return the header, and the lanes with zeros behind them."""
        whole = payload_bytes(self.lanes_per_frame)
        is_short = packet.header.flags & Flag.PAYLOAD and packet.header.format not in WIDENED_FORMATS
        return packet.header, packet.payload.ljust(whole, b"\0") if is_short else packet.payload


@_breaks("padding", "padding is not asked for")
class NeedsNoPadding(ReferenceSwitch):
    """Lets any frame grow."""

    def _reason_to_refuse(self, member: AdmittedMember | None, header: Header, size: int) -> Reason | None:
        reason = super()._reason_to_refuse(member, header, size)
        return None if reason is Reason.PADDING else reason


@_breaks("cookie", "a wrong cookie is told from a right one")
class AnswersWrongCookies(ReferenceSwitch):
    """Lets everybody try cookies and see."""

    def _reason_to_refuse(self, member: AdmittedMember | None, header: Header, size: int) -> Reason | None:
        reason = super()._reason_to_refuse(member, header, size)
        return Reason.NOT_ADMITTED if reason is Reason.COOKIE else reason

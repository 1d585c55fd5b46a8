"""The P4 program's aggregation in plain Python, one frame at a time, for tests that have no switch.

It does to frames for the switch's own address what `p4src/switchsum.p4` does, check by check in the same order; other
traffic and the controller's packets it does not know.  Any number of lanes will do.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from switchsum.protocol.serial import is_older
from switchsum.protocol.wire import (
    AGGREGATION_PORT,
    ETHERNET_BYTES,
    IPV4_BYTES,
    LOWER_BYTES,
    NO_BLOCK,
    PADDING_LESS_BYTES,
    WIRE_VERSION,
    Address,
    Flag,
    Header,
    Kind,
    LaneFormat,
    Operator,
    Packet,
    Reason,
    build_frame,
    internet_checksum,
    parse_frame,
    payload_bytes,
    udp_checksum,
)

SWITCH_ADDRESS = Address(mac=0x02_00_00_00_00_01, ip=0x0A_00_00_01, port=AGGREGATION_PORT)
_LANE_TYPES = {LaneFormat.INT32: ">i4", LaneFormat.INT16: ">i2", LaneFormat.INT8: ">i1", LaneFormat.INT64: ">i8"}
_COMBINATIONS = {Operator.SUM: np.add, Operator.MAX: np.maximum, Operator.MIN: np.minimum, Operator.OR: np.bitwise_or}

Replies = list[tuple[int, bytes]]
Tag = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """An entry of the admission table and its replica of the results."""

    job: int
    rank: int
    epoch: int
    cookie: int
    address: Address
    """Where contributions come from and results go to."""
    port: int
    """Of the switch."""
    workers: int
    """Members of the job."""
    first_slot: int = 0
    slot_count: int = 1024
    tree: int = 0

    @property
    def bit(self) -> int:
        """The member's bit in bitmaps."""
        return 1 << self.rank

    @property
    def everybody(self) -> int:
        """The bits of all members."""
        return (1 << self.workers) - 1


@dataclass(slots=True, kw_only=True)
class Cell:
    """One version of a slot."""

    lanes: npt.NDArray[np.uint8]
    """As they lie in a frame."""
    number: int = 0
    seen: int = 0
    tag: Tag = (0, 0, 0, 0, 0)
    """Operator, format, exponent, block and digest of the round's first contribution."""
    next_block: int = NO_BLOCK
    next_exponent: int = 0
    flags: int = 0


class ReferenceSwitch:
    """A switch that only aggregates.  Subclasses break a rule to see whether tests notice."""

    def __init__(self, *, lanes: int, growth_bytes: int | None = None, address: Address = SWITCH_ADDRESS) -> None:
        self.lanes = lanes
        self.address = address
        self.growth_bytes = payload_bytes(lanes) if growth_bytes is None else growth_bytes
        self.events: Counter[Reason] = Counter()
        """How often each reason occurred."""
        self._members: dict[tuple[int, int, int, int, int, int, int], Member] = {}
        self._cells: dict[int, Cell] = {}

    def admit(self, member: Member) -> None:
        """Write a member's entry."""
        source = member.address
        key = (member.job, member.tree, member.rank, member.epoch, source.ip, source.port, member.port)
        self._members[key] = member

    def clear(self) -> None:
        """Forget all rounds, as a restart does; the entries stay."""
        self._cells.clear()

    def process(self, port: int, frame: bytes) -> Replies:
        """Process one frame."""
        packet = parse_frame(frame)
        if packet is None or packet.destination.ip != self.address.ip or packet.destination.port != AGGREGATION_PORT:
            # The program tells broken frames from other people's; here both are nobody's.
            return self._count(Reason.UNKNOWN_DESTINATION)
        header, size = packet.header, len(packet.payload)
        if size not in self._payload_sizes(header):
            return self._count(Reason.LENGTH)
        if not _checksums_are_right(frame):
            return self._count(Reason.CHECKSUM)
        if header.version != WIRE_VERSION:
            return self._count(Reason.VERSION)
        if header.kind != Kind.CONTRIBUTION:
            return self._count(Reason.KIND)
        source = packet.source
        member = self._members.get((header.job, header.tree, header.rank, header.epoch, source.ip, source.port, port))
        reason = self._refuse(member, header, size)
        if reason is Reason.COOKIE:
            return self._count(reason)
        if member is None or reason is not None:
            return self._reject(port, packet, reason or Reason.NOT_ADMITTED)
        return self._contribute(port, member, packet)

    def _count(self, reason: Reason) -> Replies:
        self.events[reason] += 1
        return []

    def _payload_sizes(self, header: Header) -> tuple[int, ...]:
        if header.flags & Flag.PAYLOAD:
            return (payload_bytes(self.lanes),)
        return (0, max(0, payload_bytes(self.lanes) - PADDING_LESS_BYTES))

    def _refuse(self, member: Member | None, header: Header, size: int) -> Reason | None:
        if member is None:
            return Reason.NOT_ADMITTED
        if header.cookie != member.cookie:
            return Reason.COOKIE
        if header.operator not in _COMBINATIONS:
            return Reason.OPERATOR
        if header.format not in _LANE_TYPES:
            return Reason.FORMAT
        if not member.first_slot <= header.slot < member.first_slot + member.slot_count:
            return Reason.SLOT
        if size == 0 and self.growth_bytes < payload_bytes(self.lanes):
            return Reason.PADDING
        return None

    # The rules of the slot machine, one method each.

    def is_stale(self, cell: Cell, number: int) -> bool:
        """Rule 1: a number older than the cell's."""
        return cell.seen != 0 and is_older(number, cell.number)

    def open(self, cell: Cell, number: int, tag: Tag) -> None:
        """Rule 2: a newer number means that the cell's round is over."""
        cell.number = number
        cell.seen = 0
        cell.tag = tag
        cell.next_block = NO_BLOCK
        cell.next_exponent = 0
        cell.flags = 0

    def has_contributed(self, cell: Cell, member: Member) -> bool:
        """Rule 3: a member's second contribution to a round is not combined."""
        return bool(cell.seen & member.bit)

    def combine(self, cell: Cell, packet: Packet) -> bool:
        """Rule 4: the first lanes are stored, later ones combined; True when a lane's sum overflowed."""
        lanes = np.frombuffer(packet.payload, np.uint8)
        if not cell.flags & Flag.PAYLOAD:
            cell.lanes[:] = lanes
            return False
        kind = _LANE_TYPES[LaneFormat(packet.header.format)]
        whole = len(lanes) // np.dtype(kind).itemsize * np.dtype(kind).itemsize
        old, new = cell.lanes[:whole].view(kind), lanes[:whole].view(kind)
        result = _COMBINATIONS[Operator(packet.header.operator)](old, new)  # sums wrap
        overflowed = packet.header.operator == Operator.SUM and bool((((old ^ result) & (new ^ result)) < 0).any())
        cell.lanes[:whole] = result.astype(kind).view(np.uint8)
        return overflowed

    def _contribute(self, port: int, member: Member, packet: Packet) -> Replies:
        header = packet.header
        tag = (int(header.operator), int(header.format), header.exponent, header.block, header.digest)
        index = header.slot << 1 | header.number & 1
        cell = self._cells.get(index)
        if cell is None:
            cell = self._cells[index] = Cell(lanes=np.zeros(payload_bytes(self.lanes), np.uint8))
        if self.is_stale(cell, header.number):
            return self._count(Reason.STALE)
        if cell.seen == 0 or cell.number != header.number:
            self.open(cell, header.number, tag)
        if self.has_contributed(cell, member):
            complete = cell.seen == member.everybody
            self.events[Reason.REPEATED if complete else Reason.HELD] += 1
            answer = self._describe(cell, header, Kind.RESULT if complete else Kind.HELD)
            return [(port, self._to(packet.source, cell, answer))]
        cell.seen |= member.bit
        self._merge(cell, packet, tag)
        if cell.seen != member.everybody:
            return []
        self.events[Reason.COMPLETED] += 1
        answer = self._describe(cell, header, Kind.RESULT)
        members = [other for other in self._members.values() if other.job == member.job]
        return [
            (one.port, self._to(one.address, cell, replace(answer, rank=one.rank, cookie=one.cookie)))
            for one in members
        ]

    def _merge(self, cell: Cell, packet: Packet, tag: Tag) -> None:
        header = packet.header
        cell.flags |= header.flags & Flag.MARK
        if cell.tag != tag:
            cell.flags |= Flag.MISMATCH
            self.events[Reason.MISMATCH] += 1
            return
        if header.next_block < cell.next_block:
            cell.next_block, cell.next_exponent = header.next_block, header.next_exponent
        elif header.next_block == cell.next_block:
            cell.next_exponent = max(cell.next_exponent, header.next_exponent)
        overflowed = False
        if header.flags & Flag.PAYLOAD:
            overflowed = self.combine(cell, packet)
            cell.flags |= Flag.PAYLOAD
        if overflowed:
            cell.flags |= Flag.OVERFLOW
        self.events[Reason.OVERFLOW if overflowed else Reason.CONTRIBUTED] += 1

    def _describe(self, cell: Cell, header: Header, kind: Kind) -> Header:
        operator, lane_format, exponent, block, digest = cell.tag
        return replace(
            header,
            kind=kind,
            operator=operator,
            format=lane_format,
            exponent=exponent,
            block=block,
            digest=digest,
            next_block=cell.next_block,
            next_exponent=cell.next_exponent,
            bitmap=cell.seen,
            number=cell.number,
            flags=cell.flags if kind is Kind.RESULT else cell.flags & ~Flag.PAYLOAD,
            reason=0,
        )

    def _to(self, destination: Address, cell: Cell, header: Header) -> bytes:
        payload = cell.lanes.tobytes() if header.flags & Flag.PAYLOAD else b""
        return build_frame(self.address, destination, header, payload)

    def _reject(self, port: int, packet: Packet, reason: Reason) -> Replies:
        self.events[reason] += 1
        header = replace(packet.header, kind=Kind.REJECT, flags=0, reason=reason)
        return [(port, build_frame(self.address, packet.source, header))]


def _checksums_are_right(frame: bytes) -> bool:
    if internet_checksum(frame[ETHERNET_BYTES : ETHERNET_BYTES + IPV4_BYTES]) != 0:
        return False
    checksum = int.from_bytes(frame[LOWER_BYTES - 2 : LOWER_BYTES])
    return checksum in (0, udp_checksum(frame))

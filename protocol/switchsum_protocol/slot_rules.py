"""The rules of a slot: the switch's half of the slot machine in plain Python, one frame at a time.

This is the definition.  The P4 program (`p4src/slot.p4`, with the same rows) is held against it, frame by frame, in
tests/host/test_program.py, and state by state, as the model of `checks/verify`, in tests/checks/test_relation.py; tests
without a switch use it as one.  It has no clock and no socket, and takes any
number of lanes.  `switchsum_host` has the worker's half.

A slot works through rounds, numbered one after another modulo 2^32.  It has two *cells*, one for odd and one for even
numbers: while members may still ask for the result of round k in one, round k+1 fills the other.  A cell is *unused*
until a contribution comes, *open* while contributions are missing, and *complete* when every member's is there; it
stays complete until a newer number comes.  What a cell does with the contribution of a member:

    row | the cell     | the number, the tag      | the member    | what happens                    | counted as
    ----|--------------|--------------------------|---------------|---------------------------------|------------
      3 | not unused   | older than the cell's    | any           | dropped                         | STALE
      4 | unused       | any                      | any           | opens a round, then as row 6    |
      5 | not unused   | newer than the cell's    | any           | opens a round, then as row 6    |
      6 | open         | the cell's, the same tag | has not sent  | lanes are combined, and the     | CONTRIBUTED
        |              |                          |               | member counts as contributor    |
      7 | open         | the same, without lanes  | has not sent  | as row 6; the lanes stay        | CONTRIBUTED
      8 | open         | as row 6                 | has not sent  | as row 6, and the sum of a lane | OVERFLOW
        |              |                          |               | overflowed: overflow flag       |
      9 | open         | the cell's, another tag  | has not sent  | not combined, but the member    | MISMATCH
        |              |                          |               | counts; mismatch flag           |
     10 | open         | the cell's               | has sent      | it alone gets HELD              | HELD
     11 | complete     | the cell's               | has sent      | it alone gets the RESULT again  | REPEATED
     12 | complete now, by row 6, 7, 8 or 9       |               | each member gets the RESULT     | COMPLETED

Rows 1 and 2 are the controller's: QUERY reads a cell, SET writes its number and its contributors (`answer_request`).
The *tag* is what all contributions to a round must agree in: operator, format, exponent, block and digest.

What can be lost, and why nothing is added twice or left out.  A worker sends number k+1 in a slot only when it holds
result k; until then it repeats its contribution k from time to time, with the same lanes.

* **A contribution is lost.**  The round stays open and no member gets an answer.  The member whose frame it was
  repeats it, and to the cell it is the first one (row 6).  The others repeat theirs, too, since they cannot know:
  they get HELD (row 10) with a bitmap of the contributors, so that they know that the switch lives and for whom it
  waits.
* **A result is lost on the way to one member.**  That member repeats its contribution, and gets the stored result
  (row 11).  It is still there: only number k+2 overwrites the cell, no member sends k+2 without result k+1, and there
  is no result k+1 without a contribution k+1 of this very member, which it sends only when it holds result k.
* **HELD or REJECT is lost.**  No state depends on these; the next repeat gets another one.
* **A contribution comes twice** (the network's copy, or a repeat of one that was only late).  While the cell is open:
  row 10; when it is complete: row 11, and the worker drops a second result.  Neither combines anything.
* **A copy comes very late**, when the cell is at k+2 or later: row 3.  In between, number k and number k+1 are in
  different cells and cannot disturb each other.
* **The switch restarts** and forgets all cells.  Members of a slot differ by at most one round, and each repeats the
  contribution of the round that it waits for and that of the round before, so that either round can be completed anew
  (row 4).  A member that has the result already gets the same one and drops it: integers add up to the same lanes in
  any order, so members that got it before the restart and members that get it after agree.
* **A late copy from before a restart opens a round** (row 4).  If that is the round that members are in, it is one of
  the contributions that belong there; if it is an older one, the next number overwrites it (row 5).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from switchsum_switch.wires.headers import (
    ETHERNET_BYTES,
    IPV4_BYTES,
    LOWER_BYTES,
    Address,
    internet_checksum,
    udp_checksum,
)

from .frame import (
    AGGREGATION_PORT,
    NO_BLOCK,
    PADDING_LESS_BYTES,
    WIDENED_FORMATS,
    WIRE_VERSION,
    Flag,
    Header,
    Kind,
    LaneFormat,
    Operator,
    Reason,
    is_selected,
    may_be_narrow,
    narrow_bytes,
    payload_bytes,
)
from .lanes import widened
from .serial import is_older
from .wire import Packet, build_frame, parse_frame

SWITCH_ADDRESS: Final = Address(mac=0x02_00_00_00_00_01, ip=0x0A_00_00_01, port=AGGREGATION_PORT)
"""Address of a switch that is not told another one."""
_LANE_TYPES: Final = {format_: format_.dtype for format_ in LaneFormat}
OWN_FUNCTIONS: Final[dict[str, Callable[[Any, Any], Any]]] = {}
"""Functions of operators that numpy lacks, by the name in the operator's row."""
COMBINATIONS: Final[dict[Operator, Callable[[Any, Any], Any]]] = {
    operator: OWN_FUNCTIONS.get(operator.function) or getattr(np, operator.function) for operator in Operator
}
"""What each operator does to two arrays of lanes."""

_ECN_AT: Final = ETHERNET_BYTES + 1
_CONGESTION_EXPERIENCED: Final = 3
"""Value of the two ECN bits in an IPv4 header that says congestion was experienced (RFC 3168, section 5)."""

Replies = list[tuple[int, bytes]]
"""Frames that leave the switch, each with its port."""
Tag = tuple[int, int, int, int, int]
"""Operator, format, exponent, block and digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedMember:
    """What the switch knows of a member: its entry in the admission table, and where results go."""

    job: int
    rank: int
    epoch: int
    cookie: int
    """64 bits; a contribution with another one is dropped."""
    address: Address
    """Address that contributions come from and results go to."""
    port: int
    """Port of the switch."""
    workers: int
    """Members of the job."""
    first_slot: int = 0
    slot_count: int = 1024
    """How many slots the job has on the switch."""
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
    """The lanes' bytes as they lie in a frame; they mean something only with the payload flag."""
    number: int = 0
    """Number of the round, modulo 2^32."""
    seen: int = 0
    """A bit for each member that has contributed; 0: unused."""
    tag: Tag = (0, 0, 0, 0, 0)
    """Tag of the round's first contribution."""
    next_block: int = 0
    """The smallest block that a contribution named next."""
    next_exponent: int = 255
    """The largest exponent that a contribution named for that block.  The program stores 255 less the exponent, so that
    QUERY shows exponent 255 and `next_block` 0 for an unused cell, which is all zeros."""
    flags: int = 0
    """Flags of the round: each is set if any contribution set it."""
    asked: int = 0
    """In a tree, a bit for each member that has repeated since the partial went up again last."""


class ReferenceSwitch:
    """A switch that only aggregates.  Subclasses break a rule to see whether tests notice.

    Ordinary traffic and hellos, which the program hands on, are unknown here.
    """

    def __init__(
        self, *, lanes_per_frame: int, growth_bytes: int | None = None, address: Address = SWITCH_ADDRESS
    ) -> None:
        self.lanes_per_frame = lanes_per_frame
        self.address = address
        self.growth_bytes = payload_bytes(lanes_per_frame) if growth_bytes is None else growth_bytes
        self._takes_narrow = may_be_narrow(lanes_per_frame, self.growth_bytes)
        self.events: Counter[Reason] = Counter()
        """How often each reason occurred."""
        self.members: dict[tuple[int, int, int, int, int, int, int], AdmittedMember] = {}
        """Entries of the admission table."""
        self.cells: dict[int, Cell] = {}
        """Cells by twice the slot plus the lowest bit of the number. A cell that is missing is unused."""

    def admit(self, member: AdmittedMember) -> None:
        """Write a member's entry."""
        source = member.address
        key = (member.job, member.tree, member.rank, member.epoch, source.ip, source.port, member.port)
        self.members[key] = member

    def clear(self) -> None:
        """Forget all rounds, as a restart does; the entries stay."""
        self.cells.clear()

    def process(self, port: int, frame: bytes) -> Replies:
        """Process a frame that came in at a port: check it as the program does, in its order, then take it."""
        packet = parse_frame(frame)
        if packet is None or packet.destination.ip != self.address.ip or packet.destination.port != AGGREGATION_PORT:
            # The program tells broken frames from other people's; here both are nobody's.
            return self.drop(Reason.UNKNOWN_DESTINATION)
        header, size = packet.header, len(packet.payload)
        if size not in self._payload_sizes(header):
            return self.drop(Reason.LENGTH)
        if not _checksums_are_right(frame):
            return self.drop(Reason.CHECKSUM)
        if header.version != WIRE_VERSION:
            return self.drop(Reason.VERSION)
        if frame[_ECN_AT] & 3 == _CONGESTION_EXPERIENCED:
            header = replace(header, flags=header.flags | Flag.MARK)
            packet = replace(packet, header=header)
        if header.kind != Kind.CONTRIBUTION:
            return self._take_other_kind(port, packet)
        source = packet.source
        member = self.members.get((header.job, header.tree, header.rank, header.epoch, source.ip, source.port, port))
        reason = self._reason_to_refuse(member, header, size)
        if reason is Reason.COOKIE:
            return self.drop(reason)  # no answer, so that nobody can try cookies and see
        if member is None or reason is not None:
            return self._reject(port, packet, reason or Reason.NOT_ADMITTED)
        return self._contribute(port, member, packet)

    def answer_request(self, request: Header) -> Header:
        """Answer the controller's QUERY (row 1) or SET (row 2) of a cell.

        `slot` and the lowest bit of `number` name it.  SET writes `number` and `bitmap`, and clears the flags.
        """
        cell = self.cell(request)
        if request.kind == Kind.SET:
            cell.number, cell.seen, cell.flags, cell.asked = request.number, request.bitmap, 0, 0
        return self.answer(cell, request, Kind.STATE)

    def _take_other_kind(self, port: int, packet: Packet) -> Replies:
        """Take a whole frame for this switch that is no contribution; `tree_rules` knows some."""
        return self.drop(Reason.KIND)

    def drop(self, reason: Reason) -> Replies:
        """Count a frame under a reason, and answer nothing."""
        self.events[reason] += 1
        return []

    def _reject(self, port: int, packet: Packet, reason: Reason) -> Replies:
        self.events[reason] += 1
        header = replace(packet.header, kind=Kind.REJECT, flags=0, reason=reason)
        return [(port, build_frame(self.address, packet.source, header))]

    def _payload_sizes(self, header: Header) -> tuple[int, ...]:
        if header.flags & Flag.PAYLOAD:
            whole = payload_bytes(self.lanes_per_frame)
            is_widened = header.kind == Kind.CONTRIBUTION and header.format in WIDENED_FORMATS
            return (whole, narrow_bytes(self.lanes_per_frame)) if is_widened else (whole,)
        return (0, max(0, payload_bytes(self.lanes_per_frame) - PADDING_LESS_BYTES))

    def _reason_to_refuse(self, member: AdmittedMember | None, header: Header, size: int) -> Reason | None:
        if member is None:
            return Reason.NOT_ADMITTED
        if header.cookie != member.cookie:
            return Reason.COOKIE
        if header.operator not in COMBINATIONS:
            return Reason.OPERATOR
        if header.format not in _LANE_TYPES:
            return Reason.FORMAT
        if not member.first_slot <= header.slot < member.first_slot + member.slot_count:
            return Reason.SLOT
        if size == 0 and self.growth_bytes < payload_bytes(self.lanes_per_frame):
            return Reason.PADDING
        if size == narrow_bytes(self.lanes_per_frame) and header.flags & Flag.PAYLOAD and not self._takes_narrow:
            return Reason.PADDING
        return None

    # The rules of the slot machine.

    def is_stale(self, cell: Cell, number: int) -> bool:
        """Row 3: tell whether a number is older than the cell's."""
        return cell.seen != 0 and is_older(number, cell.number)

    def open(self, cell: Cell, number: int, tag: Tag) -> None:
        """Rows 4 and 5: begin a round; what the cell had before is over."""
        cell.number = number
        cell.seen = 0
        cell.tag = tag
        cell.next_block = NO_BLOCK
        cell.next_exponent = 0
        cell.flags = 0
        cell.asked = 0

    def has_contributed(self, cell: Cell, member: AdmittedMember) -> bool:
        """Rows 10 and 11: tell whether the member has contributed; a second contribution is not combined."""
        return bool(cell.seen & member.bit)

    def lanes_of(self, packet: Packet) -> npt.NDArray[np.uint8]:
        """Return a frame's lanes, widened if they are narrow."""
        is_narrow = len(packet.payload) == narrow_bytes(self.lanes_per_frame)
        if is_narrow:
            return widened(packet.payload, LaneFormat(packet.header.format))
        return np.frombuffer(packet.payload, np.uint8)

    def combine(self, cell: Cell, packet: Packet) -> bool:
        """Rows 6 and 8: store the round's first lanes, combine later ones; True when the sum of a lane overflowed."""
        lanes = self.lanes_of(packet)
        if not cell.flags & Flag.PAYLOAD:
            cell.lanes[:] = lanes
            return False
        kind = _LANE_TYPES[LaneFormat(packet.header.format)]
        whole = len(lanes) // np.dtype(kind).itemsize * np.dtype(kind).itemsize
        old, new = cell.lanes[:whole].view(kind), lanes[:whole].view(kind)
        result = COMBINATIONS[Operator(packet.header.operator)](old, new)  # sums wrap
        # A sum has overflowed when both numbers have a sign that the result has not.
        overflowed = packet.header.operator == Operator.SUM and bool((((old ^ result) & (new ^ result)) < 0).any())
        cell.lanes[:whole] = result.astype(kind).view(np.uint8)
        return overflowed

    def _contribute(self, port: int, member: AdmittedMember, packet: Packet) -> Replies:
        header = packet.header
        tag = (int(header.operator), int(header.format), header.exponent, header.block, header.digest)
        cell = self.cell(header)
        if self.is_stale(cell, header.number):
            return self.drop(Reason.STALE)
        if cell.seen == 0 or cell.number != header.number:
            self.open(cell, header.number, tag)
        if self.has_contributed(cell, member):
            return self._take_repeat(port, member, cell, packet)
        cell.seen |= member.bit
        self.events[self._merge(cell, packet, tag)] += 1
        if cell.seen != member.everybody:
            return []
        self.events[Reason.COMPLETED] += 1
        return self._complete(member, cell, header)

    def _take_repeat(self, port: int, member: AdmittedMember, cell: Cell, packet: Packet) -> Replies:
        """Rows 10 and 11: answer the sender alone."""
        complete = cell.seen == member.everybody
        self.events[Reason.REPEATED if complete else Reason.HELD] += 1
        answer = self.answer(cell, packet.header, Kind.RESULT if complete else Kind.HELD)
        return [(port, self.frame(packet.source, cell, answer))]

    def _complete(self, member: AdmittedMember, cell: Cell, header: Header) -> Replies:
        """Row 12: the round has its last contribution."""
        return self._tell_members(member, cell, self.answer(cell, header, Kind.RESULT))

    def _tell_members(self, member: AdmittedMember, cell: Cell, answer: Header) -> Replies:
        members = [other for other in self.members.values() if other.job == member.job]
        return [
            (one.port, self.frame(one.address, cell, replace(answer, rank=one.rank, cookie=one.cookie)))
            for one in members
        ]

    def cell(self, header: Header) -> Cell:
        """Return the cell of a frame's slot and version."""
        index = header.slot << 1 | header.number & 1
        if index not in self.cells:
            self.cells[index] = Cell(lanes=np.zeros(payload_bytes(self.lanes_per_frame), np.uint8))
        return self.cells[index]

    def _merge(self, cell: Cell, packet: Packet, tag: Tag) -> Reason:
        """Rows 6 to 9: make a contribution part of the cell's round; return what it is counted as."""
        header = packet.header
        cell.flags |= header.flags & Flag.MARK
        if cell.tag != tag:
            cell.flags |= Flag.MISMATCH
            return Reason.MISMATCH
        cell.flags |= header.flags & Flag.SELECT
        if header.next_block < cell.next_block:
            cell.next_block, cell.next_exponent = header.next_block, header.next_exponent
        elif header.next_block == cell.next_block:
            cell.next_exponent = max(cell.next_exponent, header.next_exponent)
        if not header.flags & Flag.PAYLOAD:
            return Reason.CONTRIBUTED
        overflowed = self.combine(cell, packet)
        cell.flags |= Flag.PAYLOAD
        if not overflowed:
            return Reason.CONTRIBUTED
        cell.flags |= Flag.OVERFLOW
        return Reason.OVERFLOW

    def answer(self, cell: Cell, header: Header, kind: Kind) -> Header:
        """Return what the cell answers to a frame; fields that it has nothing to say about stay as they came."""
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
            bitmap=header.bitmap if kind is Kind.RESULT and cell.flags & Flag.SELECT else cell.seen,
            number=cell.number,
            flags=cell.flags if kind is Kind.RESULT else cell.flags & ~Flag.PAYLOAD,
            reason=0,
        )

    def frame(self, destination: Address, cell: Cell, header: Header) -> bytes:
        """Write an answer, with a cell's lanes if it has a payload."""
        if header.kind == Kind.RESULT and header.flags & Flag.SELECT and not is_selected(header.bitmap, header.rank):
            header = replace(header, flags=header.flags & ~Flag.PAYLOAD)
        payload = cell.lanes.tobytes() if header.flags & Flag.PAYLOAD else b""
        return build_frame(self.address, destination, header, payload)


def _checksums_are_right(frame: bytes) -> bool:
    if internet_checksum(frame[ETHERNET_BYTES : ETHERNET_BYTES + IPV4_BYTES]) != 0:
        return False
    checksum = int.from_bytes(frame[LOWER_BYTES - 2 : LOWER_BYTES])
    return checksum in (0, udp_checksum(frame))

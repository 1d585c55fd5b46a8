"""One case on a switch: frames go in, and what comes out is compared with what the rules say.

The rules are `protocol.slot_rules.ReferenceSwitch`, which gets every frame that the target gets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from switchsum_protocol.frame import (
    FIELDS,
    NO_BLOCK,
    WIRE_VERSION,
    Flag,
    Header,
    Kind,
    Reason,
    padding_bytes,
    payload_bytes,
)
from switchsum_protocol.slot_rules import ReferenceSwitch
from switchsum_protocol.wire import Packet, build_frame, parse_frame
from switchsum_switch.wires.headers import ETHERNET_BYTES, IPV4_BYTES, internet_checksum

from .facts import Facts
from .rules import rule_of

Answers = Mapping[int, Sequence[bytes]]
"""Frames that members got, by rank."""

OPERATION: Final = 0x0C0F_0CE5
"""Digest of the kit's operation."""
FAR: Final = 0x7FFF_FFFE
"""Largest distance by which a number can be newer and still belong to the same cell."""


class Target(Protocol):
    """The switch that is tested, as its members see it."""

    @property
    def is_raw(self) -> bool:
        """Return whether frames get there with the lower headers that the kit has written."""
        ...

    def exchange(self, frames: Sequence[tuple[int, bytes]]) -> Answers:
        """Send frames, each as the member with this rank; return everything that came out of the switch."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Frames that went in together, what should have come out, and what came."""

    sent: tuple[tuple[int, bytes], ...]
    """Ranks and their frames."""
    rule: str
    """Rule that the reference followed."""
    expected: Answers
    came: Answers


class Different(Exception):
    """The target did not do what the rules say, at the last of the steps."""

    def __init__(self, steps: Sequence[Step], text: str) -> None:
        super().__init__(text)
        self.steps = tuple(steps)
        self.text = text


@dataclass(slots=True, kw_only=True)
class Bench:
    """A target, the facts of its job and the reference beside it."""

    target: Target
    facts: Facts
    reference: ReferenceSwitch = field(init=False)
    _last: dict[int, int] = field(default_factory=dict)
    """Newest number that was used, by slot."""

    def __post_init__(self) -> None:
        """Give the reference the job's members."""
        facts = self.facts
        self.reference = ReferenceSwitch(
            lanes_per_frame=facts.lanes, growth_bytes=facts.growth_bytes, address=facts.switch
        )
        for member in facts.members:
            self.reference.admit(facts.admission(member))

    def base(self, slot: int, version: int) -> int:
        """Return a number for a case in a slot: newer than all before, and of this version."""
        last = self._last.get(slot, (self.facts.first_number - 1) & 0xFFFF_FFFF)
        number = last + 1
        # Two more: the case completes the round before its own, in the other cell.
        return number + 2 + ((number ^ version) & 1) & 0xFFFF_FFFF

    def note(self, slot: int, number: int) -> None:
        """Remember that a number was used."""
        last = self._last.get(slot)
        if last is None or (number - last) & 0xFFFF_FFFF < 1 << 31:
            self._last[slot] = number


class Play:
    """What a case does: it contributes, and everything that comes out must be right."""

    def __init__(self, bench: Bench, slot: int, version: int, seed: int) -> None:
        self.bench, self.facts = bench, bench.facts
        self.slot = slot
        self.base = bench.base(slot, version)
        self.random = np.random.default_rng(seed)
        self.steps: list[Step] = []
        self.event = 0
        """Steps before this one only prepare the case."""

    @property
    def ranks(self) -> range:
        """All ranks of the job."""
        return range(len(self.facts.members))

    def lanes(self, low: int = -1000, high: int = 1000) -> bytes:
        """Return lanes of 32 bits with random numbers."""
        return self.random.integers(low, high, self.facts.lanes).astype(">i4").tobytes()

    def contribution(self, rank: int, payload: bytes | None = None, step: int = 0, /, **fields: int) -> bytes:
        """Build a contribution to the case's round, or one that is `step` rounds later; fields may be overridden."""
        facts = self.facts
        values: dict[str, int] = {
            "kind": Kind.CONTRIBUTION,
            "flags": Flag(0) if payload is None else Flag.PAYLOAD,
            "job": facts.job,
            "epoch": facts.epoch,
            "tree": facts.tree,
            "rank": rank,
            "cookie": facts.members[rank].cookie,
            "slot": self.slot,
            "number": self.base + step & 0xFFFF_FFFF,
            "block": 3,
            "next_block": NO_BLOCK,
            "digest": OPERATION,
        }
        body = bytes(padding_bytes(facts.lanes, facts.growth_bytes)) if payload is None else payload
        header = Header(**(values | fields))
        return build_frame(facts.members[rank].address, facts.switch, header, body)

    def contribute(self, rank: int, payload: bytes | None = None, step: int = 0, /, **fields: int) -> None:
        """Send a contribution, and check what comes."""
        self.send([(rank, self.contribution(rank, payload, step, **fields))])

    def round(self, step: int = 0, /, *, without: Sequence[int] = (), **fields: int) -> list[bytes]:
        """Have all ranks contribute lanes to a round, except those that contribute none; return the lanes."""
        payloads = [self.lanes() for _ in self.ranks]
        for rank in self.ranks:
            self.contribute(rank, None if rank in without else payloads[rank], step, **fields)
        return payloads

    def send(self, frames: Sequence[tuple[int, bytes]]) -> None:
        """Send frames, and check everything that comes; several go at once, and their answers may overtake each other.

        Raises Different.
        """
        expected: dict[int, list[bytes]] = {}
        reference, before = self.bench.reference, self.bench.reference.events.copy()
        for rank, frame in frames:
            if (packet := parse_frame(frame)) is not None:
                self.bench.note(packet.header.slot, packet.header.number)
            for port, answer in reference.process(rank + 1, frame):
                expected.setdefault(port - 1, []).append(answer)
        came = self.bench.target.exchange(frames)
        followed = [reason for reason in reference.events - before if reason is not Reason.COMPLETED]
        rule = rule_of(followed[0]) if followed else "length"
        self.steps.append(Step(sent=tuple(frames), rule=rule, expected=expected, came=came))
        if (text := difference(expected, came, is_ordered=len(frames) == 1)) is not None:
            raise Different(self.steps, text)

    @property
    def payload_bytes(self) -> int:
        """Bytes of a frame's lanes."""
        return payload_bytes(self.facts.lanes)


def difference(expected: Answers, came: Answers, *, is_ordered: bool = True) -> str | None:
    """Return in words how answers differ from those that are expected; None: in nothing that a member reads."""
    for rank in sorted({*expected, *came}):
        wanted, got = list(expected.get(rank, ())), list(came.get(rank, ()))
        packets = [_parse(frame) for frame in got]
        for packet in packets:
            if isinstance(packet, str):
                return f"rank {rank} got {packet}"
        right = [_parse(frame) for frame in wanted]
        if len(got) != len(wanted):
            return f"rank {rank} got {_kinds(packets)}, and should get {_kinds(right)}"
        if not is_ordered:
            right.sort(key=_place)
            packets.sort(key=_place)
        for one, other in zip(right, packets, strict=True):
            if isinstance(one, Packet) and isinstance(other, Packet) and (text := _compare(one, other)):
                return f"rank {rank}: {text}"
    return None


def _parse(frame: bytes) -> Packet | str:
    """Return a frame's parts, or in words why it has none."""
    packet = parse_frame(frame)
    if packet is None:
        return f"a frame of {len(frame)} bytes that is no frame of this wire format"
    if internet_checksum(frame[ETHERNET_BYTES : ETHERNET_BYTES + IPV4_BYTES]) != 0:
        return "a frame with a wrong IPv4 checksum"
    if packet.header.version != WIRE_VERSION:
        return f"a frame of wire version {packet.header.version}, where this kit speaks version {WIRE_VERSION}"
    return packet


def _place(packet: Packet | str) -> tuple[int, int, int]:
    """Return what orders answers that may overtake each other."""
    if isinstance(packet, str):
        return (0, 0, 0)
    return packet.header.slot, packet.header.number, packet.header.kind


def _kinds(packets: Sequence[Packet | str]) -> str:
    names = [_kind(packet.header.kind) if isinstance(packet, Packet) else packet for packet in packets]
    return " and ".join(names) if names else "nothing"


def _kind(kind: int) -> str:
    return Kind(kind).name if kind in list(Kind) else f"a frame of kind {kind}"


def _compare(expected: Packet, came: Packet) -> str:
    """Return in words what of a frame is wrong; empty: nothing."""
    one, other = expected.header, came.header
    if one.kind != other.kind:
        return f"got {_kind(other.kind)}, and should get {_kind(one.kind)}"
    for name, row in FIELDS.items():
        # What means nothing in this kind of frame is nobody's business.
        if one.kind in row.wire.kinds and (right := getattr(one, name)) != (wrong := getattr(other, name)):
            shown = (f"{value:#x}" if row.wire.is_hexadecimal else str(value) for value in map(int, (wrong, right)))
            return f"{name} of the {_kind(one.kind)} is {' and should be '.join(shown)}"
    if expected.payload != came.payload:
        return f"lanes of the {_kind(one.kind)}: {_first_difference(expected.payload, came.payload)}"
    for end in ("source", "destination"):
        right_end, wrong_end = getattr(expected, end), getattr(came, end)
        if (right_end.ip, right_end.port) != (wrong_end.ip, wrong_end.port):
            return f"the {end} of the {_kind(one.kind)} is {wrong_end} and should be {right_end}"
    return ""


def _first_difference(expected: bytes, came: bytes) -> str:
    if len(expected) != len(came):
        return f"{len(came)} bytes, and should be {len(expected)}"
    at = next(place for place, (a, b) in enumerate(zip(expected, came, strict=True)) if a != b) // 4 * 4
    return f"bytes {at} to {at + 3} are {came[at : at + 4].hex()} and should be {expected[at : at + 4].hex()}"

"""Cases of frames that a switch must refuse: wherever they come, nothing changes."""

from __future__ import annotations

from typing import Final

from switchsum_protocol.frame import WIRE_VERSION, Flag, Kind, LaneFormat, Operator
from switchsum_protocol.wire import build_frame, parse_frame
from switchsum_switch.wires.headers import ETHERNET_BYTES, IPV4_BYTES, LOWER_BYTES, internet_checksum

from .case import case
from .play import Play
from .table import reveal

KINDS: Final = (Kind.RESULT, Kind.HELD, Kind.REJECT, Kind.QUERY, Kind.SET, Kind.STATE, 0, 11, 255)
"""Kinds of frames that are neither contributions nor hellos."""


@case("not_admitted", "another job, epoch, tree or rank, and a rank that is another member's")
def _not_admitted(play: Play) -> None:
    facts = play.facts
    wrong: list[dict[str, int]] = [
        {"job": facts.job ^ 1},
        {"job": facts.job ^ 0x8000},
        {"epoch": facts.epoch + 1 & 0xFFFF},
        {"epoch": facts.epoch - 1 & 0xFFFF},
        {"tree": facts.tree + 1 & 0xFFFF},
        {"rank": len(facts.members)},
        {"rank": 0xFFFF},
        {"rank": 1, "cookie": facts.members[1].cookie},
    ]
    play.round(-1)
    for fields in wrong:
        play.contribute(0, play.lanes(), **fields)
    reveal(play)


@case("cookie", "cookies of nobody, of another member, and 0", version=1)
def _cookie(play: Play) -> None:
    members = play.facts.members
    play.round(-1)
    wrong = {members[0].cookie ^ 1, members[0].cookie ^ 1 << 63, members[1].cookie, 0} - {members[0].cookie}
    for cookie in sorted(wrong):
        play.contribute(0, play.lanes(), cookie=cookie)
    play.contribute(0, play.lanes())
    for cookie in sorted(wrong):
        play.contribute(0, play.lanes(), cookie=cookie)
    reveal(play)


@case("slot", "slots beside those of the job, and slots that are on no switch")
def _slot(play: Play) -> None:
    facts = play.facts
    beside = {facts.first_slot - 1, facts.first_slot + facts.slot_count, facts.first_slot + (1 << 31), -1}
    for slot in sorted(slot & 0xFFFF_FFFF for slot in beside):
        play.contribute(0, play.lanes(), slot=slot)
        play.contribute(0, None, slot=slot)


@case("operator", "operators that do not exist, in an open round")
def _operator(play: Play) -> None:
    _refused(play, "operator", (0, max(Operator) + 1, 128, 255))


@case("format", "lane formats that do not exist, in an open round", version=1)
def _format(play: Play) -> None:
    _refused(play, "format", (*sorted({*range(max(LaneFormat) + 2)} - {*LaneFormat}), 128, 255))


def _refused(play: Play, field: str, values: tuple[int, ...]) -> None:
    play.round(-1)
    for rank in play.ranks[:-1]:
        play.contribute(rank, play.lanes())
    for value in values:
        play.contribute(play.ranks[-1], play.lanes(), **{field: value})
        play.contribute(play.ranks[-1], None, **{field: value})
    reveal(play)


@case("padding", "contributions without lanes, padded and not")
def _padding(play: Play) -> None:
    facts = play.facts
    play.round(-1)
    for rank in play.ranks:
        frame = play.contribution(rank)
        packet = parse_frame(frame)
        assert packet is not None
        play.send([(rank, build_frame(packet.source, facts.switch, packet.header))])
    reveal(play)


@case("length", "lanes that are missing, cut, too many, or not told of", version=1)
def _length(play: Play) -> None:
    facts, whole = play.facts, play.lanes()
    play.round(-1)
    for rank in play.ranks[:-1]:
        play.contribute(rank, play.lanes())
    last = play.ranks[-1]
    wrong = [(Flag.PAYLOAD, whole[:-1]), (Flag.PAYLOAD, whole[:-4]), (Flag.PAYLOAD, b"")]
    wrong += [(Flag.PAYLOAD, whole + bytes(4)), (Flag(0), whole), (Flag(0), bytes(4)), (Flag.PAYLOAD, whole[::2])]
    for flags, payload in wrong:
        play.contribute(last, payload, flags=flags)
    frame = play.contribution(last, None)
    packet = parse_frame(frame)
    assert packet is not None
    for size in (0, 1, 20, 47):
        play.send([(last, _shorter(build_frame(packet.source, facts.switch, packet.header), size))])
    reveal(play)


def _shorter(frame: bytes, size: int) -> bytes:
    """Return a frame whose UDP datagram has only so many bytes, and whose lower headers say so."""
    ip = bytearray(frame[ETHERNET_BYTES : ETHERNET_BYTES + IPV4_BYTES])
    ip[2:4] = (IPV4_BYTES + 8 + size).to_bytes(2)
    ip[10:12] = b"\0\0"
    ip[10:12] = internet_checksum(bytes(ip)).to_bytes(2)
    udp = bytearray(frame[ETHERNET_BYTES + IPV4_BYTES : LOWER_BYTES])
    udp[4:6] = (8 + size).to_bytes(2)
    return frame[:ETHERNET_BYTES] + bytes(ip) + bytes(udp) + frame[LOWER_BYTES : LOWER_BYTES + size]


@case("version", "other wire versions, in an open round")
def _version(play: Play) -> None:
    play.round(-1)
    play.contribute(0, play.lanes())
    for version in (0, WIRE_VERSION - 1, WIRE_VERSION + 1, 255):
        play.contribute(0, play.lanes(), version=version)
        play.contribute(play.ranks[-1], play.lanes(), version=version)
    reveal(play)


@case("kind", "each kind that is no contribution, in an open round", version=1)
def _kind(play: Play) -> None:
    play.round(-1)
    play.contribute(0, play.lanes())
    for kind in KINDS:
        play.contribute(0, play.lanes(), kind=kind)
        play.contribute(play.ranks[-1], play.lanes(), kind=kind, bitmap=(1 << len(play.ranks)) - 1)
    reveal(play)


@case("checksum", "wrong checksums of IPv4 and UDP, and a right one of UDP", is_raw=True)
def _checksum(play: Play) -> None:
    play.round(-1)
    for rank in play.ranks:
        frame = play.contribution(rank, play.lanes())
        packet = parse_frame(frame)
        assert packet is not None
        for at in (ETHERNET_BYTES + 10, LOWER_BYTES - 2):
            play.send(
                [(rank, frame[:at] + (int.from_bytes(frame[at : at + 2]) ^ 0x0101).to_bytes(2) + frame[at + 2 :])]
            )
        play.send([(rank, build_frame(packet.source, play.facts.switch, packet.header, packet.payload, checksum=True))])
    reveal(play)


def marked(frame: bytes) -> bytes:
    """Return a frame with the mark "congestion experienced" of IPv4."""
    ip = bytearray(frame[ETHERNET_BYTES : ETHERNET_BYTES + IPV4_BYTES])
    ip[1] |= 3
    ip[10:12] = b"\0\0"
    ip[10:12] = internet_checksum(bytes(ip)).to_bytes(2)
    return frame[:ETHERNET_BYTES] + bytes(ip) + frame[ETHERNET_BYTES + IPV4_BYTES :]

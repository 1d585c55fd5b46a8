"""Super-frames: what is sent together comes out as it went in, and what cannot go together goes alone."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator

import numpy as np
import pytest

from switchsum_protocol.frame import AGGREGATION_PORT, FRAME_BYTES, LANE_BUILDS, Flag, Header, Kind, payload_bytes
from switchsum_protocol.wire import build_frame
from switchsum_switch.wires.checksum import sum16
from switchsum_switch.wires.headers import ETHERNET_BYTES, LOWER_BYTES, Address
from switchsum_switch.wires.messages import MOST_SEGMENTS, TOGETHER
from switchsum_switch.wires.segmentation import SUPER_BYTES, VNET_BYTES, FrameSender, frames_of, send_frames

SWITCH = Address(mac=0x02_00_00_00_00_01, ip=0x0A_00_00_01, port=AGGREGATION_PORT)
WORKERS = [Address(mac=0x02_00_00_00_01_00 + n, ip=0x0A_00_01_00 + n, port=21000 + n) for n in range(2)]
LONGEST = 9014


class VethPair:
    """What a packet socket would be given, one message after the other."""

    def __init__(self) -> None:
        self.near, self.far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        for end in (self.near, self.far):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        self.sender = FrameSender()

    def carry(self, frames: list[bytes], longest: int = LONGEST) -> list[bytes]:
        """Send frames, in as many turns as it takes; return the messages."""
        memories = [np.frombuffer(frame, np.uint8) for frame in frames]
        addresses = np.array([memory.ctypes.data for memory in memories], np.int64)
        lengths = np.array([len(frame) for frame in frames], np.int32)
        messages, sent = [], 0
        while sent < len(frames):
            went = send_frames(self.near.fileno(), self.sender.words, addresses[sent:], lengths[sent:], longest)
            sent += went
            messages += self.arrived()
        return messages

    def arrived(self) -> list[bytes]:
        messages = []
        while True:
            try:
                messages.append(self.far.recv(1 << 17, socket.MSG_DONTWAIT))
            except OSError:  # nothing there, or closed
                return messages


@pytest.fixture
def link() -> Iterator[VethPair]:
    link = VethPair()
    yield link
    link.near.close()
    link.far.close()


def contribution(worker: int, slot: int, payload: int) -> bytes:
    header = Header(kind=Kind.CONTRIBUTION, slot=slot, flags=Flag.PAYLOAD if payload else Flag(0))
    return build_frame(WORKERS[worker], SWITCH, header, random.Random(slot).randbytes(payload))


def sum_of(octets: bytes) -> int:
    memory = np.frombuffer(octets, np.uint8)
    return sum16(memory.ctypes.data, len(memory))


def cut(messages: list[bytes]) -> list[bytes]:
    return [frame for message in messages for frame in frames_of(message)]


@pytest.mark.parametrize("lanes", LANE_BUILDS)
def test_frames_of_one_length_go_together(link: VethPair, lanes: int) -> None:
    frames = [contribution(0, slot, payload_bytes(lanes)) for slot in range(200)]
    messages = link.carry(frames)
    assert cut(messages) == frames
    together = min(MOST_SEGMENTS, (SUPER_BYTES - LOWER_BYTES) // (len(frames[0]) - LOWER_BYTES))
    assert len(messages) == -(-len(frames) // together)
    assert max(map(len, messages)) <= VNET_BYTES + SUPER_BYTES


def test_headers_of_a_super_frame_are_those_of_one_datagram(link: VethPair) -> None:
    (message,) = link.carry([contribution(0, slot, 1024) for slot in range(5)])
    frame = message[VNET_BYTES:]
    assert message[0] & 1
    assert message[1] == 5
    assert [int.from_bytes(message[at : at + 2], "little") for at in (2, 4, 6, 8)] == [42, FRAME_BYTES + 982, 34, 6]
    assert int.from_bytes(frame[16:18]) == len(frame) - ETHERNET_BYTES
    assert int.from_bytes(frame[38:40]) == len(frame) - ETHERNET_BYTES - 20
    assert sum_of(frame[14:34]) == 0xFFFF
    # The field holds the sum over addresses, protocol and length, from which the kernel goes on.
    pseudo = frame[26:34] + b"\x00\x11" + frame[38:40]
    assert int.from_bytes(frame[40:42]) == sum_of(pseudo)


def test_what_differs_goes_apart_and_in_order(link: VethPair) -> None:
    draw = random.Random(7)
    frames = [contribution(draw.randrange(2), slot, draw.choice([0, 0, 512, 1024, 8192])) for slot in range(400)]
    messages = link.carry(frames)
    assert cut(messages) == frames
    assert len(messages) < len(frames)


@pytest.mark.parametrize(
    ("at", "octets"),
    [
        (12, b"\x86\xdd"),  # IPv6
        (14, b"\x46"),  # IPv4 options
        (16, b"\x00\x50"),  # padding behind the datagram
        (20, b"\x20\x00"),  # a fragment
        (23, b"\x06"),  # TCP
        (38, b"\x00\x50"),  # a datagram that ends elsewhere
        (40, b"\x12\x34"),  # with a checksum
    ],
)
def test_other_frames_go_as_they_are(link: VethPair, at: int, octets: bytes) -> None:
    plain = contribution(0, 1, 512)
    frames = [plain[:at] + octets + plain[at + len(octets) :]] * 3
    assert link.carry(frames) == [bytes(VNET_BYTES) + frame for frame in frames]


def test_none_go_together_beyond_the_longest(link: VethPair) -> None:
    frames = [contribution(0, slot, 1024) for slot in range(4)]
    assert len(link.carry(frames, longest=len(frames[0]) - 1)) == 4
    assert len(link.carry(frames, longest=0)) == 4
    assert len(link.carry(frames, longest=len(frames[0]))) == 1


def test_an_older_kernel_gets_frames_one_by_one(link: VethPair) -> None:
    frames = [contribution(0, slot, 1024) for slot in range(4)]
    link.sender.words.state[TOGETHER] = 0  # what EINVAL sets
    assert link.carry(frames) == [bytes(VNET_BYTES) + frame for frame in frames]


def test_frames_that_a_socket_does_not_take_stay(link: VethPair) -> None:
    frames = [contribution(0, slot, 8192) for slot in range(64)]
    memories = [np.frombuffer(frame, np.uint8) for frame in frames]
    addresses = np.array([memory.ctypes.data for memory in memories], np.int64)
    lengths = np.array([len(frame) for frame in frames], np.int32)
    rounds, sent = 0, 1
    while sent == len(frames) or not rounds:
        sent = send_frames(link.near.fileno(), link.sender.words, addresses, lengths, LONGEST)
        rounds += 1
    assert 0 <= sent < len(frames)
    assert cut(link.arrived()) == (frames * rounds)[: len(frames) * (rounds - 1) + sent]
    assert link.sender.refused == 0


def test_frames_that_a_socket_refuses_are_counted(link: VethPair) -> None:
    link.far.close()
    assert link.carry([contribution(0, slot, 8192) for slot in range(20)]) == []
    assert link.sender.refused == 20


def test_an_unfinished_checksum_is_finished() -> None:
    plain = bytearray(contribution(0, 1, 511))  # of an odd length
    pseudo = bytes(plain[26:34]) + b"\x00\x11" + bytes(plain[38:40])
    plain[40:42] = sum_of(pseudo).to_bytes(2)
    header = bytes([1, 0, 0, 0, 0, 0, 34, 0, 6, 0])
    (frame,) = frames_of(header + bytes(plain))
    assert frame[:40] + frame[42:] == plain[:40] + plain[42:]
    assert sum_of(pseudo + frame[34:]) == 0xFFFF


@pytest.mark.parametrize(
    "header",
    [
        bytes([1, 0, 0, 0, 0, 0, 255, 255, 6, 0]),  # begins behind the end
        bytes([1, 0, 0, 0, 0, 0, 34, 0, 255, 255]),  # goes behind the end
    ],
)
def test_a_checksum_that_points_nowhere_is_left_alone(header: bytes) -> None:
    plain = contribution(0, 1, 512)
    assert frames_of(header + plain) == [plain]


@pytest.mark.parametrize("kind", [1, 3, 4, 7])
def test_super_frames_of_other_kinds_are_not_cut(link: VethPair, kind: int) -> None:
    (message,) = link.carry([contribution(0, slot, 512) for slot in range(3)])
    assert frames_of(message[:1] + bytes([kind]) + message[2:]) == []
    assert len(frames_of(message[:1] + bytes([5 | 0x80]) + message[2:])) == 3


def test_pieces_of_no_length_are_not_cut(link: VethPair) -> None:
    (message,) = link.carry([contribution(0, slot, 512) for slot in range(3)])
    assert frames_of(message[:4] + bytes(2) + message[6:]) == []


def test_the_last_piece_may_be_shorter(link: VethPair) -> None:
    (message,) = link.carry([contribution(0, slot, 512) for slot in range(3)])
    assert [len(frame) for frame in frames_of(message[:-100])] == [602, 602, 502]

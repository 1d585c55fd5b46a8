"""Datagrams and super-datagrams between real sockets: what goes together, and what comes out of it."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from support.timing import patience
from switchsum_switch.wires.datagrams import (
    NO_NAMES,
    DatagramReceiver,
    DatagramSender,
    has_more,
    knows_segments,
    receive_rows,
    take_marks,
    take_together,
)
from switchsum_switch.wires.encapsulation import template, wrap
from switchsum_switch.wires.headers import ETHERNET_BYTES, IPV4_BYTES, Address, internet_checksum
from switchsum_switch.wires.messages import TOGETHER, grow_buffers
from switchsum_switch.wires.rows import LEAD_BYTES, MARK_AT

SKIP = 42
MOST = 1064
SO_NO_CHECK = 11
FULL = 61
"""Datagrams of `MOST` bytes that fit into one."""

Links = tuple[socket.socket, socket.socket]


@pytest.fixture
def links() -> Iterator[Links]:
    """Yield a sender and the receiver it is connected to, which takes super-datagrams."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
    ):
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(patience(5))
        grow_buffers(receiver)
        take_together(receiver)
        sender.connect(receiver.getsockname())
        yield sender, receiver


def datagrams(sizes: Sequence[int]) -> list[bytes]:
    return [random.Random(index).randbytes(size) for index, size in enumerate(sizes)]


def send(sender: DatagramSender, link: socket.socket, sent: Sequence[bytes]) -> int:
    memory = [np.frombuffer(datagram, np.uint8) for datagram in sent]
    addresses = np.array([datagram.ctypes.data for datagram in memory], np.int64)
    return sender.send(link.fileno(), addresses, np.array([len(datagram) for datagram in sent], np.int32))


def messages(link: socket.socket, count: int) -> list[bytes]:
    """Return so many messages as they cross the kernel."""
    return [link.recvmsg(1 << 16, 64)[0] for _ in range(count)]


def received(receiver: DatagramReceiver, link: socket.socket, count: int) -> list[bytes | None]:
    """Return the next datagrams; None for one that fits no row."""
    came: list[bytes | None] = []
    while len(came) < count:
        rows, lengths, names = receiver.receive(link.fileno())
        assert len(rows) or not has_more(receiver.words.state)
        assert len(set(rows.tolist())) == len(rows) == len(names)
        for row, length in zip(rows.tolist(), lengths.tolist(), strict=True):
            start = LEAD_BYTES + SKIP
            came.append(receiver.rows[row, start : start + length - SKIP].tobytes() if length else None)
    return came


@pytest.mark.parametrize(
    ("sizes", "lengths"),
    [
        ([MOST] * 10, [10 * MOST]),
        ([MOST] * 9 + [40], [9 * MOST + 40]),
        ([MOST, 40, MOST, 40, MOST], [MOST + 40, MOST + 40, MOST]),
        ([40, MOST, MOST], [40, 2 * MOST]),
        ([40] * 150, [64 * 40, 64 * 40, 22 * 40]),
        ([MOST] * 100, [FULL * MOST, 39 * MOST]),
        ([8232] * 9, [7 * 8232, 2 * 8232]),
        ([MOST, 0, 0, MOST], [MOST, 0, 0, MOST]),
        ([65_507, 1], [65_507, 1]),
    ],
)
def test_neighbours_of_one_length_go_together(links: Links, sizes: list[int], lengths: list[int]) -> None:
    link, other = links
    assert knows_segments(link)
    sent = datagrams(sizes)
    sender = DatagramSender(together=True)
    assert send(sender, link, sent) == len(sizes)
    came = messages(other, len(lengths))
    assert [len(message) for message in came] == lengths
    assert b"".join(came) == b"".join(sent)
    assert sender.refused == 0


def test_nobody_who_does_not_ask_gets_a_super_datagram(links: Links) -> None:
    link, other = links
    sent = datagrams([MOST] * 9 + [40])
    assert send(DatagramSender(), link, sent) == 10
    assert messages(other, 10) == sent


def test_a_kernel_that_refuses_gets_them_one_by_one_from_then_on(links: Links) -> None:
    link, other = links
    link.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)  # without checksums it makes no datagrams of one
    sender = DatagramSender(together=True)
    sent = datagrams([40, *[MOST] * 99, 0, 41])
    assert send(sender, link, sent) == len(sent)
    assert messages(other, len(sent)) == sent
    assert (sender.refused, sender.words.state[TOGETHER]) == (0, 0)
    link.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 0)
    assert send(sender, link, sent) == len(sent)
    assert messages(other, len(sent)) == sent


def test_datagrams_that_can_go_nowhere_are_counted_each() -> None:
    sender = DatagramSender(named=True, together=True)
    memory, names = np.zeros(MOST, np.uint8), np.full(10, 0xFFFF_FFFF_0900_0002 - (1 << 64), np.int64)  # broadcast
    addresses = np.full(10, memory.ctypes.data, np.int64)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unconnected:
        assert sender.send(unconnected.fileno(), addresses, np.full(10, MOST, np.int32), names) == 10
    assert (sender.refused, sender.words.state[TOGETHER]) == (10, 1)


def test_a_full_socket_says_how_many_datagrams_went() -> None:
    """On a Unix socket, which has room for few messages and takes what would be cut as it is."""
    link, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with link, other:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        sent = datagrams(([100] * 3 + [50]) * 40)
        went = send(DatagramSender(together=True), link, sent)
        assert 0 < went < len(sent)
        assert went % 4 == 0
        assert b"".join(messages(other, went // 4)) == b"".join(sent[:went])


@pytest.mark.parametrize(
    "bursts",
    [
        pytest.param([[MOST] * 61] * 4, id="full segments"),
        pytest.param([[40] * 64] * 4, id="short segments"),
        pytest.param([[MOST] * 30 + [40] * 30 + [MOST] * 2] * 4, id="both"),
        pytest.param([[MOST] * 130, [40] * 130, [MOST], [0], [40] * 3, [0, 0], [MOST] * 130], id="in turn"),
        pytest.param([[MOST] * 3, *[[MOST]] * 200, [MOST] * 3], id="single ones"),
        pytest.param([[7, 3]] * 100, id="pairs"),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_datagrams_come_out_as_they_went_in(links: Links, bursts: list[list[int]], *, at_once: bool) -> None:
    link, other = links
    sender, receiver = DatagramSender(together=True), DatagramReceiver(SKIP + MOST, skip=SKIP)
    waiting: list[bytes] = []
    for sizes in bursts:
        waiting += datagrams(sizes)
        assert send(sender, link, datagrams(sizes)) == len(sizes)
        if not at_once:
            assert received(receiver, other, len(waiting)) == waiting
            waiting = []
    assert received(receiver, other, len(waiting)) == waiting
    assert len(receiver.receive(other.fileno())[0]) == 0


@pytest.mark.parametrize("seed", range(20))
def test_any_sizes_come_out_as_they_went_in(links: Links, seed: int) -> None:
    link, other = links
    choose = random.Random(seed)
    sender, receiver = DatagramSender(together=True), DatagramReceiver(SKIP + MOST, skip=SKIP)
    for _ in range(30):
        sizes = [size for _ in range(3) for size in [choose.choice((0, 1, 40, 1000, MOST))] * choose.randrange(70)]
        sent = datagrams(sizes)
        assert send(sender, link, sent) == len(sent)
        assert received(receiver, other, len(sent)) == sent


def test_of_datagrams_that_came_together_only_those_that_fit_no_row_are_lost(links: Links) -> None:
    link, other = links
    sender, receiver = DatagramSender(together=True), DatagramReceiver(SKIP + MOST, skip=SKIP)
    for sizes in ([MOST + 1] * 5 + [40], [MOST] * 20, [MOST + 1, 50, 2 * MOST, 2 * MOST, 3], [60_000], [MOST] * 3):
        sent = datagrams(sizes)
        assert send(sender, link, sent) == len(sent)
        wanted = [datagram if len(datagram) <= MOST else None for datagram in sent]
        assert received(receiver, other, len(sent)) == wanted


def test_full_datagrams_are_received_into_their_rows(links: Links) -> None:
    link, other = links
    sender, receiver = DatagramSender(together=True), DatagramReceiver(SKIP + MOST, skip=SKIP)
    sent = datagrams([MOST] * FULL)
    for _ in range(2):
        assert send(sender, link, sent) == FULL
        assert received(receiver, other, FULL) == sent
    receiver.words.wholes[:] = 0
    assert send(sender, link, sent) == FULL
    assert received(receiver, other, FULL) == sent
    assert not receiver.words.wholes.any()


def test_a_reader_with_little_room_gets_a_super_datagram_piece_by_piece(links: Links) -> None:
    link, other = links
    sender, receiver = DatagramSender(together=True), DatagramReceiver(SKIP + MOST, skip=SKIP)
    for size in (MOST, 40, MOST):
        sent = datagrams([size] * 50 + [30])
        assert send(sender, link, sent) == len(sent)
        rows, lengths, names = np.zeros(7, np.int32), np.zeros(7, np.int32), np.zeros(7, np.int64)
        came: list[bytes] = []
        while len(came) < len(sent):
            count = receive_rows(other.fileno(), receiver.words, rows, lengths, names)
            assert 0 < count <= 7
            assert has_more(receiver.words.state) == (len(came) + count < len(sent))
            for row, length in zip(rows[:count].tolist(), lengths.tolist(), strict=False):
                came.append(receiver.rows[row, LEAD_BYTES + SKIP : LEAD_BYTES + length].tobytes())
        assert came == sent


@pytest.mark.parametrize("together", [False, True])
def test_marks_of_congestion_come_with_the_datagrams(links: Links, *, together: bool) -> None:
    """Also those of super-datagrams, which have one mark for all; `wrap` keeps it in the headers that it makes up."""
    link, other = links
    for end in links:
        take_marks(end)
    sender, receiver = DatagramSender(together=together), DatagramReceiver(SKIP + MOST, skip=SKIP)
    here = Address(mac=2, ip=3, port=4)
    headers = template(here, here)
    for mark in (2, 3, 0, 3, 2):
        link.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, mark)
        assert send(sender, link, datagrams([MOST] * 5)) == 5
        left = 5
        while left:
            rows, lengths, _ = receiver.receive(other.fileno())
            wrap(receiver.rows, rows, lengths, headers, NO_NAMES)
            left -= len(rows)
            for frame in receiver.rows[rows, LEAD_BYTES:]:
                assert frame[MARK_AT] & 3 == (3 if mark == 3 else 2)
                assert internet_checksum(frame[ETHERNET_BYTES : ETHERNET_BYTES + IPV4_BYTES].tobytes()) == 0


def test_each_datagram_has_its_source(links: Links) -> None:
    _, other = links
    receiver = DatagramReceiver(SKIP + MOST, skip=SKIP)
    wanted: dict[int, bytes] = {}
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as first,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as second,
    ):
        for link, letter in ((first, b"a"), (second, b"b")):
            link.connect(other.getsockname())
            wanted[link.getsockname()[1]] = letter
            assert send(DatagramSender(together=True), link, [letter * 9] * 5) == 5
        rows, _, names = receiver.receive(other.fileno())
    assert len(rows) == 10
    for row, name in zip(rows.tolist(), names.tolist(), strict=True):
        words = name.to_bytes(8, "little")
        assert words[4:] == bytes((127, 0, 0, 1))
        assert (
            receiver.rows[row, LEAD_BYTES + SKIP : LEAD_BYTES + SKIP + 1].tobytes()
            == wanted[int.from_bytes(words[2:4])]
        )


def test_a_kernel_that_knows_no_super_datagrams_is_told_of_none() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:  # has no such options
        assert not knows_segments(link)
        take_together(link)

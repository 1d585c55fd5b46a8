"""The hand-shake's messages and the memory that is passed."""

from __future__ import annotations

import dataclasses
import errno
import json
import mmap
import os
import socket
import struct
from typing import cast

import pytest

from switchsum_protocol.errors import TransportError
from switchsum_switch.messages.codec import encode
from switchsum_switch.wires import shared_memory
from switchsum_switch.wires.outbox import LAYOUT_DIGEST
from switchsum_switch.wires.shared_memory import MAX_ROWS, Answer, Hello, SharedMemory, check_peer

HELLO = Hello(rows=10, answer_rows=8, frame_bytes=594)


def test_messages_come_back_as_they_were() -> None:
    assert Hello.decode(encode(HELLO)) == HELLO
    answer = Answer(port=3, mac=0x02_00_00_00_00_03, ip=0x0A_00_00_03, udp_port=21334)
    assert Answer.decode(encode(answer)) == answer
    assert len(encode(HELLO)) < shared_memory.MESSAGE_BYTES


def test_capacity_of_the_outboxes() -> None:
    theirs, ours = HELLO.outboxes()
    assert (theirs.rows, theirs.capacity) == (10, 16)
    assert (ours.rows, ours.capacity) == (8, 8)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"layout": "0000beef"}, f"'0000beef', the switch's '{LAYOUT_DIGEST}'"),
        ({"rows": 0}, "not 0"),
        ({"rows": MAX_ROWS + 1}, f"not {MAX_ROWS + 1}"),
        ({"rows": True}, "rows is not int: True"),
        ({"rows": "10"}, "rows is not int: '10'"),
        ({"rows": 1.5}, "rows is not int: 1.5"),
        ({"answer_rows": 12}, "power of two, not 12"),
        ({"answer_rows": -8}, "not -8"),
        ({"frame_bytes": None}, "frame_bytes is not int: None"),
        ({"color": "red"}, "color"),
    ],
)
def test_a_hello_that_makes_no_sense_is_refused(changes: dict[str, object], says: str) -> None:
    with pytest.raises(TransportError, match=says):
        Hello.decode(json.dumps({**dataclasses.asdict(HELLO), **changes}).encode())


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"7", b'"x"', b"\xff\xfe", b"{}"])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(TransportError):
        Hello.decode(data)
    if data != b"{}":
        with pytest.raises(TransportError):
            Answer.decode(data)


def test_both_sides_see_one_memory_and_its_size_is_fixed() -> None:
    memory = SharedMemory.create("test", 8192, theirs=False)
    with pytest.raises(PermissionError):
        os.ftruncate(memory.descriptor, 4096)
    with pytest.raises(PermissionError):
        os.ftruncate(memory.descriptor, 65536)
    other = SharedMemory(os.dup(memory.descriptor), 8192, writable=False)
    memory.bytes[5000] = 77
    assert other.bytes[5000] == 77
    assert not other.bytes.flags.writeable
    memory.close()
    other.close()
    memory.close()


def test_nobody_else_can_write_our_memory() -> None:
    memory = SharedMemory.create("test", 4096, theirs=False)
    with pytest.raises(PermissionError):
        mmap.mmap(memory.descriptor, 4096)
    reopened = os.open(f"/proc/self/fd/{memory.descriptor}", os.O_RDWR)
    with pytest.raises(PermissionError):
        mmap.mmap(reopened, 4096)
    os.close(reopened)
    memory.close()


def test_their_memory_is_theirs_to_write() -> None:
    memory = SharedMemory.create("test", 4096, theirs=True)
    assert not memory.bytes.flags.writeable
    theirs = SharedMemory(os.dup(memory.descriptor), 4096, writable=True)
    theirs.bytes[0] = 1
    assert memory.bytes[0] == 1
    theirs.close()
    memory.close()


def test_more_memory_than_there_is_is_not_even_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    # Never with the real amounts: the kernel would kill processes before it said no.
    monkeypatch.setattr(shared_memory, "_available_bytes", lambda: 3_000_000)
    monkeypatch.setattr(os, "memfd_create", lambda *_: pytest.fail("it was tried"))
    with pytest.raises(TransportError, match=r"needs 4.1 MB of memory, but only 3.0 MB are left"):
        SharedMemory.create("test", 4_096_000, theirs=True)


def test_available_memory_is_the_kernels_figure() -> None:
    assert 1 << 20 < shared_memory._available_bytes() < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_memory_that_is_refused_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(TransportError, match=r"cannot get 0.0 MB of shared memory for a link: No space left"):
        SharedMemory.create("test", 4096, theirs=True)
    assert os.listdir("/proc/self/fd") == before


def test_an_array_outlives_closing() -> None:
    memory = SharedMemory.create("test", 4096, theirs=False)
    array = memory.bytes
    memory.close()
    array[:] = 3
    assert array.sum() == 3 * 4096


class PeerOf:
    """A connection whose other side has these credentials."""

    def __init__(self, pid: int, uid: int) -> None:
        self._credentials = struct.pack("3i", pid, uid, 100)

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        assert (level, option, size) == (socket.SOL_SOCKET, socket.SO_PEERCRED, len(self._credentials))
        return self._credentials


@pytest.mark.parametrize(("uid", "welcome"), [(1000, True), (0, True), (1001, False)])
def test_only_our_own_user_and_root_are_trusted(uid: int, welcome: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchsum_switch.wires.shared_memory.os.geteuid", lambda: 1000)
    connection = cast(socket.socket, PeerOf(77, uid))
    if welcome:
        assert check_peer(connection) == 77
    else:
        with pytest.raises(TransportError, match="process 77 belongs to user 1001, neither root nor 1000"):
            check_peer(connection)


def test_credentials_are_the_kernels() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert check_peer(one) == os.getpid()

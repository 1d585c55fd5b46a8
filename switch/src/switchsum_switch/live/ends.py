"""What may be at a host's end of a cable in place of a program: a capture file, or this machine's network stack.

    frames.pcap ---- 1 s1 2 ---- tap0, with an address and a network stack

Each has a thread of the network, which ends with it.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from io import BufferedWriter
from pathlib import Path
from typing import Final, Protocol

from switchsum_switch.errors import TransportError, UsageError

from ..ports.base import MAX_FRAME_BYTES

ETHERNET_BYTES: Final = 14
_AT_ONCE: Final = 64
"""Frames that are read of one side before the other one is looked at."""


class End(Protocol):
    """Sends and takes the frames of a host; `run` ends when `stopped` is readable."""

    sent: int
    """Frames that the host has sent."""
    received: int
    """Frames that have come to it."""

    @property
    def text(self) -> str:
        """Return what it is, for tables."""
        ...

    def run(self, link: socket.socket, stopped: int) -> None:
        """Send and take frames until a descriptor is readable."""
        ...

    def close(self) -> None:
        """Give back what was opened; `run` has ended."""
        ...


_FILE_HEAD: Final = "IHHiIII"
_RECORD_HEAD: Final = "IIII"
"""Seconds, further micro- or nanoseconds, bytes that are here, bytes of the frame."""
_HEAD_BYTES: Final = 24
_RECORD_BYTES: Final = 16
_MICROSECONDS, _NANOSECONDS, _PCAPNG = 0xA1B2C3D4, 0xA1B23C4D, b"\x0a\x0d\x0d\x0a"
_MAGICS: Final = (_MICROSECONDS, _NANOSECONDS)
_MOST_BYTES: Final = 1 << 26
"""More than any frame: a length that is damaged asks for no more memory."""
_ETHERNET: Final = 1
_KIND: Final = 0xFFFF
"""Bits of the last word of the head that say what kind of frames there are."""


@dataclass(slots=True)
class PcapEnd:
    """A host that sends the frames of a capture file, and may write those that come to it to another one."""

    path: Path
    record: Path | None = None
    """Capture file of the frames that come; None: they are counted."""
    pace: float = 1.0
    """How many times as fast as they were captured frames are sent; 0: one after the other, without pauses."""
    after_s: float = 0.0
    """Seconds from the network's start to the first frame."""
    sent: int = field(default=0, init=False)
    received: int = field(default=0, init=False)
    played: threading.Event = field(default_factory=threading.Event, init=False)
    """Is set when the last frame was sent."""
    _file: BufferedWriter | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Look through the file; raises UsageError in one line if it is none, or a frame of it cannot be sent."""
        if not self.pace >= 0 or not 0 <= self.after_s < float("inf"):
            raise UsageError(f"{self.path}: pace and after_s are numbers from 0, not {self.pace} and {self.after_s}")
        for number, (_, frame) in enumerate(frames(self.path), start=1):
            if not ETHERNET_BYTES <= len(frame) <= MAX_FRAME_BYTES:
                raise UsageError(
                    f"{self.path}: frame {number} has {len(frame)} bytes, and a port takes {ETHERNET_BYTES} to "
                    f"{MAX_FRAME_BYTES}"
                )
        if self.record is not None:
            if self.record.exists() and self.record.samefile(self.path):
                raise UsageError(f"{self.record}: the file would be written over while it is played")
            try:
                self._file = self.record.open("wb")
                self._file.write(struct.pack(f"={_FILE_HEAD}", _MICROSECONDS, 2, 4, 0, 0, MAX_FRAME_BYTES, _ETHERNET))
                self._file.flush()
            except OSError as error:
                raise UsageError(f"{self.record}: {error.strerror}") from error

    @property
    def text(self) -> str:
        """Return the file's name."""
        return f"pcap:{self.path}"

    def run(self, link: socket.socket, stopped: int) -> None:
        """Send the frames at their times, and take those that come."""
        began, first_s = time.monotonic() + self.after_s, None
        for time_s, frame in frames(self.path):
            first_s = time_s if first_s is None else first_s
            due = began + ((time_s - first_s) / self.pace if self.pace else 0.0)
            if self._take_until(link, stopped, due):
                return
            with suppress(OSError):  # about an earlier frame, or no room: lost as on a cable
                link.send(frame)
            self.sent += 1
        self.played.set()
        self._take_until(link, stopped, float("inf"))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()

    def _take_until(self, link: socket.socket, stopped: int, due: float) -> bool:
        """Take frames until a time; return whether the network ends."""
        while True:
            wait_s = due - time.monotonic()
            ready = _ready(link.fileno(), stopped, wait_s=None if wait_s == float("inf") else max(0.0, wait_s))
            if stopped in ready:
                return True
            if not ready:
                return False
            for frame in _received(link):
                self.received += 1
                self._write(frame)

    def _write(self, frame: bytes) -> None:
        if self._file is None:
            return
        seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
        head = struct.pack(f"={_RECORD_HEAD}", seconds, nanoseconds // 1000, len(frame), len(frame))
        try:
            self._file.write(head + frame)
            self._file.flush()
        except OSError as error:
            self._file = None
            raise TransportError(f"{self.record}: {error.strerror}") from error


def frames(path: Path) -> Iterator[tuple[float, bytes]]:
    """Yield the frames of a capture file, and the time of each in seconds; raises UsageError in one line."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    with file:
        order, parts = _form(path, file.read(_HEAD_BYTES))
        number = 1
        while head := file.read(_RECORD_BYTES):
            seconds, part, here, length = struct.unpack(f"{order}{_RECORD_HEAD}", head.ljust(_RECORD_BYTES, b"\xff"))
            if here != length and len(head) == _RECORD_BYTES:
                raise UsageError(f"{path}: of frame {number} only {here} of {length} bytes were captured")
            frame = file.read(min(here, _MOST_BYTES))
            if len(head) < _RECORD_BYTES or len(frame) < here:
                raise UsageError(f"{path}: the file ends within frame {number}")
            yield seconds + part / parts, frame
            number += 1


def _form(path: Path, head: bytes) -> tuple[str, float]:
    """Return the order of bytes of a file, and into how many parts a second is divided."""
    if not head:
        raise UsageError(f"{path}: the file is empty")
    if head[:4] == _PCAPNG:
        raise UsageError(f"{path}: pcapng is not read here; `editcap -F pcap` makes a pcap file of it")
    order = next((one for one in "<>" if struct.unpack(f"{one}I", head[:4].ljust(4))[0] in _MAGICS), None)
    if order is None or len(head) < _HEAD_BYTES:
        raise UsageError(f"{path}: this is no pcap file")
    magic, *_, kind = struct.unpack(f"{order}{_FILE_HEAD}", head)
    if kind & _KIND != _ETHERNET:
        raise UsageError(f"{path}: the frames are of link type {kind & _KIND}, not of Ethernet, which is 1")
    return order, 1e9 if magic == _NANOSECONDS else 1e6


_TUN: Final = "/dev/net/tun"
_TUNSETIFF: Final = 0x400454CA
_IFF_TAP, _IFF_NO_PI, _IFF_UP = 0x0002, 0x1000, 0x0001
_SET_ADDRESS, _SET_MASK, _GET_FLAGS, _SET_FLAGS, _SET_HARDWARE = 0x8916, 0x891C, 0x8913, 0x8914, 0x8924
_NAME_BYTES: Final = 15


@dataclass(slots=True)
class TapEnd:
    """A host that is this machine's network stack, behind a TAP device; needs CAP_NET_ADMIN.

    The device is there from construction to `close`.  It may be moved into a namespace meanwhile.
    """

    name: str
    """Name of the device, which must not exist."""
    mac: str | None = None
    """Its Ethernet address; None: the kernel draws one."""
    ip: str | None = None
    """Its IPv4 address with the length of the prefix, such as 10.0.1.1/24; None: it has none."""
    sent: int = field(default=0, init=False)
    received: int = field(default=0, init=False)
    _device: int = field(default=-1, init=False)

    def __post_init__(self) -> None:
        """Make the device; raises UsageError for words that are no names or addresses, and TransportError."""
        if not 0 < len(self.name.encode()) <= _NAME_BYTES or set(self.name) & set("/: \t\n%"):
            raise UsageError(f"{self.name!r} is no name of a TAP device: it has 1 to {_NAME_BYTES} bytes")
        mac, address = _mac_of(self.mac), _ip_of(self.ip)
        try:
            self._device = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            fcntl.ioctl(self._device, _TUNSETIFF, struct.pack("16sH22x", self._named(), _IFF_TAP | _IFF_NO_PI))
            self._set_up(mac, address)
        except OSError as error:
            self.close()
            why = "it needs root, or CAP_NET_ADMIN" if isinstance(error, PermissionError) else error.strerror
            raise TransportError(f"cannot make the TAP device {self.name}: {why}") from error

    @property
    def text(self) -> str:
        """Return the device's name."""
        return f"tap:{self.name}"

    def run(self, link: socket.socket, stopped: int) -> None:
        """Carry frames between the device and the cable."""
        cable = link.fileno()
        while stopped not in (ready := _ready(cable, self._device, stopped)):
            if cable in ready:
                for frame in _received(link):
                    self.received += 1
                    with suppress(OSError):  # the device is down, or the frame is longer than its MTU
                        os.write(self._device, frame)
            if self._device in ready:
                for frame in self._of_the_kernel():
                    self.sent += 1
                    with suppress(OSError):
                        link.send(frame)

    def close(self) -> None:
        """Remove the device."""
        if self._device >= 0:
            os.close(self._device)
            self._device = -1

    def _of_the_kernel(self) -> Iterator[bytes]:
        for _ in range(_AT_ONCE):
            try:
                yield os.read(self._device, MAX_FRAME_BYTES)
            except OSError:  # nothing more, or the device is down
                return

    def _named(self) -> bytes:
        return self.name.encode()

    def _set_up(self, mac: bytes | None, address: ipaddress.IPv4Interface | None) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            if mac is not None:
                fcntl.ioctl(asking, _SET_HARDWARE, struct.pack("16sH6s16x", self._named(), _ETHERNET, mac))
            if address is not None:
                for order, value in ((_SET_ADDRESS, address.ip), (_SET_MASK, address.netmask)):
                    packed = struct.pack("16sHH4s16x", self._named(), socket.AF_INET, 0, value.packed)
                    fcntl.ioctl(asking, order, packed)
            said = fcntl.ioctl(asking, _GET_FLAGS, struct.pack("16sH22x", self._named(), 0))
            [flags] = struct.unpack_from("H", said, 16)
            fcntl.ioctl(asking, _SET_FLAGS, struct.pack("16sH22x", self._named(), flags | _IFF_UP))


def _mac_of(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        mac = bytes.fromhex(text.replace(":", ""))
    except ValueError:
        mac = b""
    if len(mac) != 6 or mac[0] & 1:
        raise UsageError(f"{text!r} is no Ethernet address of a host, such as 02:00:00:00:00:01")
    return mac


def _ip_of(text: str | None) -> ipaddress.IPv4Interface | None:
    try:
        return None if text is None else ipaddress.IPv4Interface(text)
    except ValueError:
        raise UsageError(f"{text!r} is no IPv4 address with a prefix, such as 10.0.1.1/24") from None


def _ready(*descriptors: int, wait_s: float | None = None) -> list[int]:
    """Return the descriptors that are readable, as soon as one is."""
    return select.select(descriptors, [], [], wait_s)[0]


def _received(link: socket.socket) -> Iterator[bytes]:
    """Yield frames that have come, as many as are taken at once."""
    for _ in range(_AT_ONCE):
        try:
            yield link.recv(MAX_FRAME_BYTES, socket.MSG_DONTWAIT)
        except OSError:  # nothing more, or the switch is not there
            return

"""Writes pcapng files: frames with port, direction and comment, and records of ours that other readers skip.

The format is described in https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcapng/.  Each port is an interface of the
file.  Our records are Custom Blocks, which Wireshark, tcpdump and Scapy skip.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

from .base import MAX_FRAME_BYTES

SECTION: Final = 0x0A0D0D0A
INTERFACE: Final = 1
PACKET: Final = 6
CUSTOM: Final = 0x0BAD
BYTE_ORDER: Final = 0x1A2B3C4D
ENTERPRISE: Final = 32473
"""The number that RFC 5612 keeps for documents; the magic tells our blocks from those of others that use it."""
MAGIC: Final = b"switchsum"
INBOUND: Final = 1
OUTBOUND: Final = 2
COMMENT: Final = 1
MOST_COMMENT: Final = 0xFFFF
"""Bytes of an option: its length has 16 bits."""
CUT: Final = b" ..."
NAME: Final = 2
FLAGS: Final = 2

_ETHERNET: Final = 1
_CONTROLLER: Final = 147
"""Link type of the CPU port, LINKTYPE_USER0.  A packet-in or packet-out begins with a header that the program declares,
and is no Ethernet frame."""
_RESOLUTION: Final = 9


class PcapngFile:
    """A file that is written; methods raise OSError."""

    def __init__(self, path: Path, cpu_port: int | None = None) -> None:
        """Create or overwrite `path`.  `cpu_port`: the CPU port, None: there is none."""
        self.name = str(path)
        self._file = path.open("wb")
        self._cpu_port = cpu_port
        self._interfaces: dict[int, int] = {}
        self._block(SECTION, struct.pack("<IHHq", BYTE_ORDER, 1, 0, -1))

    def frame(self, port: int, time_ns: int, frame: bytes, direction: int, comment: str = "") -> None:
        """Write a frame; of a comment that is too long for the format the end is left out."""
        length = len(frame)
        head = struct.pack("<IIIII", self._interface(port), time_ns >> 32, time_ns & 0xFFFF_FFFF, length, length)
        options = _option(COMMENT, _shortened(comment)) if comment else b""
        self._block(PACKET, head + _padded(frame) + options + _option(FLAGS, struct.pack("<I", direction)) + _option(0))

    def record(self, kind: bytes, data: bytes) -> None:
        """Write a record of ours; `kind` is one byte."""
        body = MAGIC + kind + data
        self._block(CUSTOM, struct.pack("<II", ENTERPRISE, len(body)) + _padded(body))

    def flush(self) -> None:
        """Give what was written to the kernel."""
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _interface(self, port: int) -> int:
        """Return the number of a port's interface in the file; write its description before its first frame."""
        if port not in self._interfaces:
            self._interfaces[port] = len(self._interfaces)
            options = _option(NAME, f"port {port}".encode()) + _option(_RESOLUTION, b"\x09") + _option(0)
            link = _CONTROLLER if port == self._cpu_port else _ETHERNET
            self._block(INTERFACE, struct.pack("<HHI", link, 0, MAX_FRAME_BYTES) + options)
        return self._interfaces[port]

    def _block(self, kind: int, body: bytes) -> None:
        length = struct.pack("<I", len(body) + 12)
        self._file.write(struct.pack("<I", kind) + length + body + length)


def _shortened(comment: str) -> bytes:
    text = comment.encode()
    if len(text) <= MOST_COMMENT:
        return text
    return text[: MOST_COMMENT - len(CUT)].decode(errors="ignore").encode() + CUT  # no half of a character


def _option(code: int, value: bytes = b"") -> bytes:
    return struct.pack("<HH", code, len(value)) + _padded(value)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)

"""Writes every frame that a switch receives or sends to a pcapng file, with its port and direction.

Each port is an interface of the file.  The format is described in
https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcapng/; Wireshark, tcpdump and Scapy read it.
"""

from __future__ import annotations

import ctypes
import logging
import struct
import time
from pathlib import Path
from typing import Final

from .base import MAX_FRAME_BYTES, Addresses, Batch, Words

_SECTION: Final = 0x0A0D0D0A
_INTERFACE: Final = 1
_PACKET: Final = 6
_BYTE_ORDER: Final = 0x1A2B3C4D
_ETHERNET: Final = 1
_CONTROLLER: Final = 147
"""Link type of the CPU port, LINKTYPE_USER0.  A packet-in or packet-out begins with a header that the program declares,
and is no Ethernet frame."""
_NAME: Final = 2
_RESOLUTION: Final = 9
_FLAGS: Final = 2
_INBOUND: Final = 1
_OUTBOUND: Final = 2

_log = logging.getLogger(__name__)


class Capture:
    """A pcapng file that is written."""

    def __init__(self, path: Path, cpu_port: int | None = None) -> None:
        """Create or overwrite `path`; raises OSError.  `cpu_port`: the CPU port, None: there is none."""
        self._file = path.open("wb")
        self._cpu_port = cpu_port
        self._interfaces: dict[int, int] = {}
        self._is_full = False
        self._block(_SECTION, struct.pack("<IHHq", _BYTE_ORDER, 1, 0, -1))

    def received(self, batch: Batch) -> None:
        """Record a batch that has arrived."""
        count = batch.count
        self._record(batch.ports[:count], batch.addresses[:count], batch.lengths[:count], _INBOUND)

    def sent(self, ports: Words, addresses: Addresses, lengths: Words) -> None:
        """Record frames that are about to leave, also those that a full port drops."""
        self._record(ports, addresses, lengths, _OUTBOUND)

    def close(self) -> None:
        """Close the file."""
        self._is_full = True
        try:
            self._file.close()
        except OSError as error:
            _log.error("the end of %s is missing: %s", self._file.name, error.strerror)

    def _record(self, ports: Words, addresses: Addresses, lengths: Words, direction: int) -> None:
        """Record frames; after an error of the file the switch goes on without it."""
        if self._is_full:
            return
        try:
            self._write(ports, addresses, lengths, direction)
        except OSError as error:
            _log.error("%s: %s; nothing more is recorded", self._file.name, error.strerror)
            self.close()

    def _write(self, ports: Words, addresses: Addresses, lengths: Words, direction: int) -> None:
        now_ns = time.time_ns()
        for port, address, length in zip(ports.tolist(), addresses.tolist(), lengths.tolist(), strict=True):
            head = struct.pack("<IIIII", self._interface(port), now_ns >> 32, now_ns & 0xFFFF_FFFF, length, length)
            frame = ctypes.string_at(address, length)
            self._block(_PACKET, head + _padded(frame) + _option(_FLAGS, struct.pack("<I", direction)) + _option(0))
        self._file.flush()

    def _interface(self, port: int) -> int:
        """Return the number of a port's interface in the file; write its description before its first frame."""
        if port not in self._interfaces:
            self._interfaces[port] = len(self._interfaces)
            options = _option(_NAME, f"port {port}".encode()) + _option(_RESOLUTION, b"\x09") + _option(0)
            link = _CONTROLLER if port == self._cpu_port else _ETHERNET
            self._block(_INTERFACE, struct.pack("<HHI", link, 0, MAX_FRAME_BYTES) + options)
        return self._interfaces[port]

    def _block(self, kind: int, body: bytes) -> None:
        length = struct.pack("<I", len(body) + 12)
        self._file.write(struct.pack("<I", kind) + length + body + length)


def _option(code: int, value: bytes = b"") -> bytes:
    return struct.pack("<HH", code, len(value)) + _padded(value)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)

"""Taps, which see every frame of a switch: two pcap files for each interface, and log lines, both as in BMv2.

`capture.Capture` is a third tap: one pcapng file for all ports.
"""

from __future__ import annotations

import ctypes
import logging
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from io import BufferedWriter
from pathlib import Path
from typing import Final, Protocol

from .base import MAX_FRAME_BYTES, Addresses, Batch, Words, rows

_log = logging.getLogger("switchsum.switch.ports.taps")

_MAGIC: Final = 0xA1B2C3D4
"""A pcap file with timestamps in microseconds."""
_ETHERNET: Final = 1


class Tap(Protocol):
    """Sees every frame that arrives or leaves."""

    def received(self, batch: Batch) -> None:
        """See a batch that has arrived."""
        ...

    def sent(self, ports: Words, addresses: Addresses, lengths: Words) -> None:
        """See frames that are about to leave."""
        ...

    def close(self) -> None:
        """End; no frames follow."""
        ...


class InterfaceFiles:
    """For each interface a pcap file of the frames that arrived and one of those that left, named as BMv2 does."""

    def __init__(
        self, directory: Path, interfaces: Mapping[int, str], epoch_ns: Callable[[], int] = time.time_ns
    ) -> None:
        """Create `NAME_in.pcap` and `NAME_out.pcap` for interfaces by port number; raises OSError.

        In the name of a UDP peer `_` stands for the slash.
        """
        self._epoch_ns = epoch_ns
        self._in: dict[int, BufferedWriter] = {}
        self._out: dict[int, BufferedWriter] = {}
        self._is_full = False
        try:
            for port, name in interfaces.items():
                file = name.replace("/", "_")
                self._in[port] = _create(directory / f"{file}_in.pcap")
                self._out[port] = _create(directory / f"{file}_out.pcap")
        except OSError:
            self.close()
            raise

    def received(self, batch: Batch) -> None:
        """Record a batch that has arrived."""
        self._record(self._in, *batch.frames())

    def sent(self, ports: Words, addresses: Addresses, lengths: Words) -> None:
        """Record frames that are about to leave, also those that a full port drops."""
        self._record(self._out, ports, addresses, lengths)

    def close(self) -> None:
        """Close the files."""
        for file in (*self._in.values(), *self._out.values()):
            with suppress(OSError):  # the disk is full, which was said
                file.close()

    def _record(self, files: Mapping[int, BufferedWriter], ports: Words, addresses: Addresses, lengths: Words) -> None:
        """Write frames; after an error of a file the switch goes on without all of them."""
        if self._is_full:
            return
        try:
            _write(files, self._epoch_ns(), ports, addresses, lengths)
        except OSError as error:
            self._is_full = True
            _log.error("--pcap: %s; nothing more is recorded", error.strerror)
            self.close()


class FrameLog:
    """A log line for each frame, at level DEBUG; and its first bytes, at level INFO, if `dump_bytes` is not 0."""

    def __init__(self, dump_bytes: int = 0) -> None:
        self._dump_bytes = dump_bytes

    def received(self, batch: Batch) -> None:
        """Log a batch that has arrived."""
        self._write("received on", *batch.frames())

    def sent(self, ports: Words, addresses: Addresses, lengths: Words) -> None:
        """Log frames that are about to leave."""
        self._write("sent to", ports, addresses, lengths)

    def close(self) -> None:
        """Do nothing: the process owns the log."""

    def _write(self, what: str, ports: Words, addresses: Addresses, lengths: Words) -> None:
        for port, address, length in rows(ports, addresses, lengths):
            _log.debug("frame of %d bytes %s port %d", length, what, port)
            if self._dump_bytes:
                _log.info("%s", ctypes.string_at(address, min(length, self._dump_bytes)).hex(" "))


def _create(path: Path) -> BufferedWriter:
    file = path.open("wb")
    file.write(struct.pack("<IHHiIII", _MAGIC, 2, 4, 0, 0, MAX_FRAME_BYTES, _ETHERNET))
    try:
        file.flush()
    except OSError as error:
        with suppress(OSError):
            file.close()
        error.filename = str(path)
        raise
    return file


def _write(
    files: Mapping[int, BufferedWriter], now_ns: int, ports: Words, addresses: Addresses, lengths: Words
) -> None:
    seconds, microseconds = divmod(now_ns // 1000, 1_000_000)
    for port, address, length in rows(ports, addresses, lengths):
        if port in files:
            files[port].write(struct.pack("<IIII", seconds, microseconds, length, length))
            files[port].write(ctypes.string_at(address, length))
            files[port].flush()

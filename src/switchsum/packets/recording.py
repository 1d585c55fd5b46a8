"""Reads what `switchsum switch --pcap` has written: frames, and what the controller changed between them."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from google.protobuf.message import DecodeError

from switchsum_protocol.errors import LocalError
from switchsum_switch.messages.p4runtime import v1
from switchsum_switch.ports.capture import CHANGES, END, SETTINGS
from switchsum_switch.ports.pcapng import (
    BYTE_ORDER,
    CUSTOM,
    ENTERPRISE,
    FLAGS,
    INBOUND,
    INTERFACE,
    MAGIC,
    NAME,
    OUTBOUND,
    PACKET,
    SECTION,
)
from switchsum_switch.program.v1model import MAX_PASSES, MAX_QUEUES, QUEUE_SHIFT
from switchsum_switch.queues.queues import PORTS

MOST_BYTES: Final = 1 << 26
"""Longest block, and longest request once it is inflated."""
_LIMITS: Final = {
    "cpu_port": (0, PORTS - 1),
    "drop_port": (0, PORTS - 1),
    "priority_queues": (1, MAX_QUEUES),
    "max_passes": (1, MAX_PASSES),
}
"""Least and largest value of each setting."""
_KINDS: Final = {kind: getattr(v1, name) for name, kind in CHANGES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a switch was started with, as far as its program sees it."""

    cpu_port: int | None
    drop_port: int
    priority_queues: int
    max_passes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A frame that came or left."""

    number: int
    """Number of the frame, from 1, as in Wireshark."""
    port: int
    time_ns: int
    is_inbound: bool
    data: bytes


class _Broken(LocalError):
    """A file is no recording of the switch, or is damaged."""


class Ended:
    """The last record of a recording that is whole."""


def read(path: Path, *, cut: bool = False) -> Generator[Any, None, None]:
    """Yield `Settings` first, then each `Frame` and each request of P4Runtime.

    Args:
        path: The recording.
        cut: Take what is whole of a recording that ends in the midst, because its disk was full or its switch was
            killed. Else it is refused at its end.

    Raises:
        LocalError: The file is no recording, is damaged, or ends in the midst.

    """
    is_whole, number = False, 0
    try:
        with path.open("rb") as file:
            for event in _events(file):
                is_whole = isinstance(event, Ended)
                number = event.number if isinstance(event, Frame) else number
                if not is_whole:
                    yield event
            if not is_whole and not cut:
                raise _Broken(
                    f"the recording ends in the midst, after {number} packets: its disk was full, or its switch was "
                    "killed or still runs"
                )
    except _Broken as error:
        raise _Broken(f"{path}: {error}") from None
    except OSError as error:
        raise LocalError(f"{path}: {error.strerror}") from error


def _events(file: BinaryIO) -> Iterator[Any]:
    ports: list[int] = []
    number, has_settings = 0, False
    for kind, body in _blocks(file):
        try:
            if kind == INTERFACE:
                ports.append(_port(body))
            elif kind == PACKET:
                number += 1
                yield _frame(number, ports, body)
            elif kind == CUSTOM and (record := _record(body)) is not None:
                has_settings = has_settings or isinstance(record, Settings)
                yield record
        except (struct.error, LookupError, ValueError, TypeError, RecursionError, zlib.error, DecodeError):
            raise _Broken(f"a block of type {kind} is damaged") from None
        if not has_settings and kind != SECTION:
            raise _Broken("it was not written by `switchsum switch --pcap` or `switchsum run --pcap` of this version")


def _blocks(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    head = file.read(8)
    kind, length = struct.unpack("<II", head) if len(head) == 8 else (0, 0)
    if kind != SECTION:
        raise _Broken("it is not a pcapng file")
    while len(head) == 8:
        kind, length = struct.unpack("<II", head)
        if length < 12 or length % 4 or length > MOST_BYTES:
            raise _Broken(f"it is damaged: a block has {length} bytes")
        rest = file.read(length - 8)
        if len(rest) < length - 8:
            return
        if kind == SECTION and rest[:4] != struct.pack("<I", BYTE_ORDER):
            raise _Broken("its numbers are big-endian, but the switch writes little-endian files")
        yield kind, rest[:-4]
        head = file.read(8)


def _port(body: bytes) -> int:
    """Return the port that an interface is."""
    port = int(_options(body[8:])[NAME].removeprefix(b"port "))
    if not 0 <= port < 1 << QUEUE_SHIFT:
        raise ValueError
    return port


def _frame(number: int, ports: list[int], body: bytes) -> Frame:
    interface, high, low, length, _ = struct.unpack_from("<IIIII", body)
    data = body[20 : 20 + length]
    if len(data) < length:
        raise ValueError
    (direction,) = struct.unpack("<I", _options(body[20 + length + -length % 4 :])[FLAGS])
    if direction not in (INBOUND, OUTBOUND):
        raise ValueError
    return Frame(
        number=number, port=ports[interface], time_ns=high << 32 | low, is_inbound=direction == INBOUND, data=data
    )


def _record(body: bytes) -> Any:
    """Return a record of ours; None: of others."""
    enterprise, length = struct.unpack_from("<II", body)
    data = body[8 : 8 + length]
    if enterprise != ENTERPRISE or not data.startswith(MAGIC):
        return None
    kind, data = data[len(MAGIC) : len(MAGIC) + 1], data[len(MAGIC) + 1 :]
    if kind == END:
        return Ended()
    if kind == SETTINGS:
        found = json.loads(data)
        # The switch's memory is as large as these say, so that a file must not say what no switch is started with.
        for name, (least, most) in _LIMITS.items():
            value = found[name]
            if not (type(value) is int and least <= value <= most) and not (name == "cpu_port" and value is None):
                raise ValueError
        return Settings(**{name: found[name] for name in _LIMITS})
    inflater = zlib.decompressobj()
    inflated = inflater.decompress(data, MOST_BYTES)
    if not inflater.eof:
        raise ValueError
    return _KINDS[kind].FromString(inflated)


def _options(data: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    at = 0
    while at + 4 <= len(data):
        code, length = struct.unpack_from("<HH", data, at)
        if code == 0:
            break
        found[code] = data[at + 4 : at + 4 + length]
        at += 4 + length + -length % 4
    return found

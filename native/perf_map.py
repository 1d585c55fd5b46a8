"""Names of compiled code for perf, which knows those of files alone: `/tmp/perf-PID.map`."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_SYMBOL_TABLE: Final = 2
_FUNCTION: Final = 2
_SYMBOL_BYTES: Final = 24


def functions(code: bytes) -> Iterator[tuple[str, int, int]]:
    """Yield name, offset and length of each function in an object file (ELF, 64 bits, little endian)."""
    [at] = struct.unpack_from("<Q", code, 0x28)
    size, count = struct.unpack_from("<HH", code, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, at + number * size) for number in range(count)]
    for section in sections:
        _, kind, _, _, offset, length, link = section[:7]
        if kind != _SYMBOL_TABLE:
            continue
        names = sections[link][4]
        for place in range(offset, offset + length, _SYMBOL_BYTES):
            name, info, _, _, value, extent = struct.unpack_from("<IBBHQQ", code, place)
            if info & 15 == _FUNCTION and extent:
                yield code[names + name : code.index(b"\0", names + name)].decode(), value, extent


def note(code: bytes, symbol: str, address: int) -> None:
    """Add the functions of an object file that is loaded, and has `symbol` at `address`, to this process's map."""
    found = list(functions(code))
    [base] = [address - offset for name, offset, _ in found if name == symbol]
    with Path(f"/tmp/perf-{os.getpid()}.map").open("a") as file:
        file.writelines(f"{base + offset:x} {length:x} {name}\n" for name, offset, length in found)

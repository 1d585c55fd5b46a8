"""Machine code that is loaded into this process, and what it depends on; `target.py` makes it."""

from __future__ import annotations

import importlib.metadata
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from . import elf

if TYPE_CHECKING:
    from .target import LinkedImage

PERF_MAP_VARIABLE = "SWITCHSUM_PERF_MAP"
"""Variable that has perf told the names of loaded code, in `/tmp/perf-PID.map`. By itself, perf knows only names in
files.
"""

_CPUS: Final = Path("/proc/cpuinfo")
_MODEL: Final = (
    *("vendor_id", "cpu family", "model", "model name", "stepping"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part"),
)
"""Lines that name the CPU, on x86 and on Arm."""
_FEATURES: Final = ("flags", "Features")
"""Lines that name its instructions, on x86 and on Arm."""
_SYMBOL_TABLE: Final = 2
_FUNCTION: Final = 2
_SYMBOL_BYTES: Final = 24


@cache
def fingerprint() -> str:
    """Describe everything outside the IR that the machine code depends on: LLVM, which llvmlite holds, and the CPU."""
    try:
        with _CPUS.open(encoding="utf-8", errors="replace") as file:
            # One CPU is enough: of the others, of which there may be hundreds, the kernel need not tell anything.
            cpu = cpu_of(takewhile(str.strip, file))
    except OSError:
        cpu = ""
    if not cpu:
        from . import target  # noqa: PLC0415 - LLVM knows every CPU, and takes 40 MB

        return target.description()
    return "\n".join((importlib.metadata.version("llvmlite"), os.uname().machine, cpu))


def cpu_of(lines: Iterable[str]) -> str:
    """Return what /proc/cpuinfo says of a CPU's model and its instructions, from which LLVM chooses.

    Empty if instructions are not listed.
    """
    said = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if not any(name in said for name in _FEATURES):
        return ""
    return "\n".join(f"{name}: {said[name]}" for name in (*_MODEL, *_FEATURES) if name in said)


class Library:
    """Object code that is loaded into this process; it stays as long as this object lives."""

    def __init__(self, code: bytes, symbols: Sequence[str], given: Mapping[str, int] | None = None) -> None:
        """Load `code`, which defines `symbols` and may use what is `given`, and functions of this process.

        Raises RuntimeError when it does not define them, or uses others.
        """
        self._image = _loaded(code, symbols, given or {})
        if os.environ.get(PERF_MAP_VARIABLE) and symbols:
            note(code, symbols[0], self.address(symbols[0]))

    def address(self, symbol: str) -> int:
        """Return the address of a symbol."""
        return self._image.address(symbol)


def _loaded(code: bytes, symbols: Sequence[str], given: Mapping[str, int]) -> elf.Image | LinkedImage:
    if elf.IS_SUPPORTED:
        with suppress(elf.Unsupported):
            return elf.Image(code, symbols, given)
    from .target import LinkedImage  # noqa: PLC0415

    return LinkedImage(code, symbols, given)


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

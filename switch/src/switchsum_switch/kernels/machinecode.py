"""Machine code of this process's CPU: made from LLVM IR, and loaded."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import llvmlite
import llvmlite.binding as llvm

PERF_MAP_VARIABLE = "SWITCHSUM_PERF_MAP"
"""Variable that has perf told the names of loaded code, in `/tmp/perf-PID.map`. By itself, perf knows only names in
files.
"""

_SYMBOL_TABLE: Final = 2
_FUNCTION: Final = 2
_SYMBOL_BYTES: Final = 24


def fingerprint() -> str:
    """Describe everything outside the IR that the machine code depends on."""
    version = ".".join(map(str, llvm.llvm_version_info))
    return "\n".join((llvmlite.__version__, version, llvm.get_default_triple(), *_host()))


def target_machine(optimisation: int) -> llvm.TargetMachine:
    """Return LLVM's target machine for this CPU, with the level of `-O<optimisation>`."""
    _initialise()
    name, features = _host()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=name, features=features, opt=optimisation, reloc="pic", codemodel="small", jit=True
    )


class Library:
    """Object code that is loaded into this process; it stays as long as this object lives."""

    def __init__(self, code: bytes, symbols: Sequence[str], given: Mapping[str, int] | None = None) -> None:
        """Load `code`, which defines `symbols` and may use what is `given`, and functions of this process.

        Raises RuntimeError when it does not define them, or uses others.
        """
        # JITLink has one range of addresses for all of it.  LLVM's older linker takes each section from where there is
        # room, and aborts where that is further than 32 bits away, as in a large process.
        self._engine = llvm.create_lljit_compiler(target_machine(2), use_jit_link=True)
        builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        for symbol, address in (given or {}).items():
            builder.import_symbol(symbol, address)
        for symbol in symbols:
            builder.export_symbol(symbol)
        self._tracker = builder.link(self._engine, "program")
        if os.environ.get(PERF_MAP_VARIABLE) and symbols:
            note(code, symbols[0], self.address(symbols[0]))

    def address(self, symbol: str) -> int:
        """Return the address of a symbol."""
        return int(self._tracker[symbol])


@cache
def _host() -> tuple[str, str]:
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


@cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


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

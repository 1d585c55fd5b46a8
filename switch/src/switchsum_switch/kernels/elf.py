"""Object code that is loaded without LLVM, whose libraries cost a process 40 MB and a tenth of a second.

LLVM writes relocatable ELF files.  Loading one takes four steps: find room for its sections, copy them there, enter the
addresses that they name, and take the right to write away from what is code or constant.  This module does so for
x86-64, and for the few kinds of relocation that LLVM uses in position-independent code.  Anything else raises
`Unsupported`, and then LLVM's own linker loads the file (`target.py`).

The kinds of relocation are those of the System V ABI for x86-64, table 4.9.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

IS_SUPPORTED: Final = platform.machine() in ("x86_64", "AMD64")

_RELOCATIONS, _NO_BITS, _REL, _UNWIND = 4, 8, 9, 0x70000001
"""Types of sections: relocations with addends, zeros, relocations without addends, unwinding tables."""
_WRITE, _ALLOCATED, _EXECUTABLE, _THREAD_LOCAL = 1, 2, 4, 0x400
"""Flags of sections."""
_FIRST_RESERVED, _ABSOLUTE, _COMMON = 0xFF00, 0xFFF1, 0xFFF2
"""Sections of symbols that lie in none. Common symbols are zeros, for which the linker finds room."""
_BINDING: Final = 4
"""Bits in front of which `info` says whether other files may use a symbol."""
_WORD, _PC32, _PLT32 = 1, 2, 4
_GOT_RELATIVE: Final = frozenset((9, 41, 42))
"""Relocations by a table of addresses: GOTPCREL, GOTPCRELX, REX_GOTPCRELX."""
_JUMP: Final = b"\xff\x25"
"""`jmp *offset(%rip)`, in front of the offset's four bytes."""
_STUB_BYTES: Final = 8
_CODE, _CONSTANTS, _DATA = range(3)
"""Parts of the memory, by what may be done there: run, read, write."""


class Unsupported(Exception):
    """A file that is left to LLVM."""


class _Section(NamedTuple):
    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry: int

    @property
    def part(self) -> int:
        """Return the part of the memory where it belongs."""
        if self.flags & _EXECUTABLE:
            return _CODE
        return _DATA if self.flags & _WRITE else _CONSTANTS


class _Symbol(NamedTuple):
    name: int
    info: int
    other: int
    section: int
    value: int
    size: int


class Image:
    """An object file in memory, ready to run; the memory is free again when this object is gone."""

    def __init__(self, code: bytes, symbols: Sequence[str], given: Mapping[str, int]) -> None:
        """Load `code`, which defines `symbols` and may use what is `given`, and functions of this process.

        Raises RuntimeError when it does not define them, or uses others, and Unsupported for other kinds of files.
        """
        try:
            file = _File(code)
            placed = _place(file)
            self._memory = mmap.mmap(-1, placed.size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
            self._addresses = _Linker(file, placed, self._memory, base, given).link(symbols)
        except (struct.error, IndexError, ValueError, OverflowError, OSError) as error:
            raise Unsupported(f"no object file that this loader knows: {error}") from error
        _protect(base, placed)

    def address(self, symbol: str) -> int:
        """Return the address of one of the symbols."""
        return self._addresses[symbol]


class _File:
    """The tables of an object file."""

    def __init__(self, code: bytes) -> None:
        magic, kind, machine = struct.unpack_from("<6s10xHH", code)
        if (magic, kind, machine) != (b"\x7fELF\x02\x01", 1, 62):
            raise Unsupported("not an object file for x86-64")
        self.code = code
        [at] = struct.unpack_from("<Q", code, 0x28)
        size, count = struct.unpack_from("<HH", code, 0x3A)
        self.sections = [_Section(*struct.unpack_from("<IIQQQQIIQQ", code, at + n * size)) for n in range(count)]
        self.relocations = [one for one in self.sections if one.type == _RELOCATIONS]
        [table] = [one for one in self.sections if one.type == 2]
        self._names = self.sections[table.link].offset
        self.symbols = [_Symbol(*words) for words in struct.iter_unpack("<IBBHQQ", self.contents(table))]
        if any(one.type == _REL or one.flags & _THREAD_LOCAL for one in self.sections):
            raise Unsupported("relocations without addends, or variables of threads")

    def contents(self, section: _Section) -> bytes:
        """Return the bytes of a section."""
        return self.code[section.offset : section.offset + section.size]

    def name(self, symbol: _Symbol) -> str:
        """Return the name of a symbol."""
        first = self._names + symbol.name
        return self.code[first : self.code.index(b"\0", first)].decode()


class _Placed(NamedTuple):
    """Where everything lies, as offsets into the memory."""

    sections: dict[int, int]
    """By number; those that are not needed at run time are absent."""
    stubs: dict[int, int]
    """Jumps to functions of the process, by number of symbol."""
    table: dict[int, int]
    """Cells with addresses, by number of symbol."""
    common: dict[int, int]
    """Common symbols that code uses, by number."""
    parts: list[int]
    """Where the parts begin, and the end; pages are not shared."""

    @property
    def size(self) -> int:
        """Return the size of the memory."""
        return max(self.parts[-1], mmap.PAGESIZE)


def _place(file: _File) -> _Placed:
    wanted = {
        number: section
        for number, section in enumerate(file.sections)
        if section.flags & _ALLOCATED and section.type != _UNWIND and section.size
    }
    jumps, cells, zeros = _needs(file, wanted)
    sections, parts, at = dict[int, int](), [0], 0
    stubs, table, common = dict[int, int](), dict[int, int](), dict[int, int]()
    for part in (_CODE, _CONSTANTS, _DATA):
        for number, section in wanted.items():
            if section.part == part:
                at = _aligned(at, max(section.alignment, 1))
                sections[number] = at
                at += section.size
        for symbol in sorted(jumps) if part == _CODE else ():
            stubs[symbol] = at = _aligned(at, _STUB_BYTES)
            at += _STUB_BYTES
        for symbol in sorted(cells) if part == _CONSTANTS else ():
            table[symbol] = at = _aligned(at, 8)
            at += 8
        for symbol in sorted(zeros) if part == _DATA else ():
            common[symbol] = at = _aligned(at, max(file.symbols[symbol].value, 1))
            at += file.symbols[symbol].size
        at = _aligned(at, mmap.PAGESIZE)
        parts.append(at)
    return _Placed(sections, stubs, table, common, parts)


def _needs(file: _File, wanted: Mapping[int, _Section]) -> tuple[set[int], set[int], set[int]]:
    """Return three kinds of symbols.

    Code jumps to the first outside of the file, the addresses of the second lie in a table, and the third are common.
    """
    jumps, cells, zeros = set[int](), set[int](), set[int]()
    for relocations in file.relocations:
        if relocations.info not in wanted:
            continue
        for _, info, _ in struct.iter_unpack("<QQq", file.contents(relocations)):
            symbol, kind = info >> 32, info & 0xFFFFFFFF
            if file.symbols[symbol].section == _COMMON:
                zeros.add(symbol)
            if kind in _GOT_RELATIVE:
                cells.add(symbol)
            elif kind == _PLT32 and not file.symbols[symbol].section:
                jumps.add(symbol)
                cells.add(symbol)
    return jumps, cells, zeros


def _aligned(value: int, alignment: int) -> int:
    return -(-value // alignment) * alignment


class _Linker:
    """Copies sections into memory, and enters addresses."""

    def __init__(self, file: _File, placed: _Placed, memory: Any, base: int, given: Mapping[str, int]) -> None:
        self._file, self._placed, self._memory, self._base, self._given = file, placed, memory, base, given
        self._found: dict[int, int] = {}

    def link(self, symbols: Sequence[str]) -> dict[str, int]:
        """Fill the memory; return the addresses of symbols; raises RuntimeError where one is not defined."""
        file, placed, memory = self._file, self._placed, self._memory
        for number, offset in placed.sections.items():
            section = file.sections[number]
            if section.type != _NO_BITS:
                memory[offset : offset + section.size] = file.contents(section)
        for symbol, offset in placed.table.items():
            struct.pack_into("<Q", memory, offset, self._address(symbol))
        for symbol, offset in placed.stubs.items():
            reach = placed.table[symbol] - (offset + len(_JUMP) + 4)
            struct.pack_into("<2si", memory, offset, _JUMP, reach)
        for relocations in file.relocations:
            if (offset := placed.sections.get(relocations.info, -1)) >= 0:
                self._relocate(offset, file.contents(relocations))
        defined = {
            file.name(symbol): number
            for number, symbol in enumerate(file.symbols)
            if symbol.info >> _BINDING and 0 < symbol.section < _FIRST_RESERVED
        }
        if missing := [name for name in symbols if name not in defined]:
            raise RuntimeError(f"the code does not define {', '.join(missing)}")
        return {name: self._address(defined[name]) for name in symbols}

    def _relocate(self, start: int, entries: bytes) -> None:
        memory, base, placed, symbols = self._memory, self._base, self._placed, self._file.symbols
        for place, info, addend in struct.iter_unpack("<QQq", entries):
            symbol, kind, at = info >> 32, info & 0xFFFFFFFF, start + place
            if kind == _WORD:
                struct.pack_into("<Q", memory, at, (self._address(symbol) + addend) & 0xFFFF_FFFF_FFFF_FFFF)
                continue
            if kind in _GOT_RELATIVE:
                target = placed.table[symbol]
            elif kind == _PLT32 and symbol in placed.stubs:
                target = placed.stubs[symbol]
            elif kind in (_PC32, _PLT32) and symbols[symbol].section:
                target = self._address(symbol) - base
            else:
                raise Unsupported(f"a relocation of type {kind} of {self._file.name(symbols[symbol])}")
            struct.pack_into("<i", memory, at, target + addend - at)

    def _address(self, number: int) -> int:
        """Return where a symbol is; raises RuntimeError if it is nowhere."""
        found = self._found.get(number)
        if found is None:
            found = self._found[number] = self._look_up(number, self._file.symbols[number])
        return found

    def _look_up(self, number: int, symbol: _Symbol) -> int:
        if number in self._placed.common:
            return self._base + self._placed.common[number]
        if not symbol.section:
            name = self._file.name(symbol)
            return self._given[name] if name in self._given else of_process(name)
        if symbol.section in self._placed.sections:
            return self._base + self._placed.sections[symbol.section] + symbol.value
        if symbol.section == _ABSOLUTE:
            return symbol.value
        if symbol.section >= _FIRST_RESERVED:
            raise Unsupported(f"a symbol in section {symbol.section:#x}")
        if not self._file.sections[symbol.section].size:
            return self._base  # of an empty section, which nothing reads
        raise Unsupported(f"a symbol in section {symbol.section}, which is not loaded")


def of_process(name: str) -> int:
    """Return the address of a function or variable of this process; raises RuntimeError if there is none."""
    try:
        return ctypes.addressof(ctypes.c_char.in_dll(_process(), name))
    except ValueError:
        raise RuntimeError(f"the code uses {name}, which this process does not have") from None


@cache
def _process() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _protect(base: int, placed: _Placed) -> None:
    """Let code run and constants be read; nothing that may be written may run."""
    protect = _process().mprotect
    protect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    for part, right in ((_CODE, mmap.PROT_READ | mmap.PROT_EXEC), (_CONSTANTS, mmap.PROT_READ)):
        first, end = placed.parts[part : part + 2]
        if end > first and protect(base + first, end - first, right):
            raise RuntimeError("the system lets no memory of this process become code")

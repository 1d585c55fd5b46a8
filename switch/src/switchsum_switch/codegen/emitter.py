"""Tools to write one LLVM function: integers, memory, and the fields of a packet.

`Emitter` wraps llvmlite's IRBuilder and knows nothing of packets beyond the context.  `Fields` adds access to a
packet's fields according to `Layout`: a narrow field is an integer in a variable of the function, in hot memory, or in
a header's bytes as they are on the wire; a wide field is a pointer to bytes.

Bytes of a frame in shared memory may change at any time.  A value that was loaded once is therefore never loaded again:
`copy(..., volatile=True)` and `own_copy` read each byte exactly once, and LLVM must not repeat the read.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import llvmlite.ir as ll

from ..program import ir
from ..program.passes.analysis import is_wide
from .layout import ZEROS, Layout, machine_bytes

Value = Any
"""An LLVM value; llvmlite has no types of its own."""

BIT, BYTE, I16, I32, I64 = (ll.IntType(width) for width in (1, 8, 16, 32, 64))
POINTER = ll.PointerType()
VOID = ll.VoidType()

_MOST_SWAPPED_BITS = 256
"""Longer integers are stored in parts: LLVM counts the bits of a shift in a byte where it swaps them, and aborts."""


def integer(width: int) -> ll.IntType:
    """Return the integer type of that width."""
    return ll.IntType(width)


def constant(width: int, value: int) -> Value:
    """Return an integer constant."""
    return ll.Constant(ll.IntType(width), value)


@dataclass(slots=True)
class Unit:
    """The LLVM module under construction, and what all its functions share."""

    program: ir.Program
    layout: Layout
    module: ll.Module
    debug: bool = False
    """True: an index beyond an array's end stops the process."""
    _helpers: dict[Hashable, ll.Value] = field(default_factory=dict)
    """Functions and constants that were made on demand."""

    def function(self, name: str, result: ll.Type, arguments: Sequence[ll.Type]) -> ll.Function:
        """Declare a function that is private to the module."""
        made = ll.Function(self.module, ll.FunctionType(result, arguments), name)
        made.linkage = "internal"
        made.attributes.add("nounwind")
        return made

    def helper(self, key: Hashable, make: Callable[[], ll.Value]) -> ll.Value:
        """Return the object that `make` made at the first call with this key."""
        if key not in self._helpers:
            self._helpers[key] = make()
        return self._helpers[key]

    def constant_bytes(self, data: bytes) -> Value:
        """Return the address of constant bytes."""

        def make() -> ll.GlobalVariable:
            array = ll.ArrayType(BYTE, len(data))
            made = ll.GlobalVariable(self.module, array, self.module.get_unique_name("bytes"))
            made.linkage, made.global_constant, made.align = "internal", True, 64
            made.initializer = ll.Constant(array, bytearray(data))
            return made

        return self.helper(("bytes", data), make)


class Emitter:
    """Writes one function; `build` is its IRBuilder."""

    def __init__(self, unit: Unit, function: ll.Function) -> None:
        self.unit = unit
        self.program = unit.program
        self.layout = unit.layout
        self.function = function
        # Stack memory is reserved in a block of its own at the start: in a loop it would grow with each turn.
        self._entry = function.append_basic_block("entry")
        start = function.append_basic_block("start")
        self._allocas = ll.IRBuilder(self._entry)
        self._allocas.branch(start)
        self.build = ll.IRBuilder(start)

    def stack(self, kind: ll.Type, count: int = 1, align: int = 0) -> Value:
        """Reserve memory on the stack, uninitialised; return its address."""
        self._allocas.position_before(self._entry.terminator)
        made = self._allocas.alloca(kind if count == 1 else ll.ArrayType(kind, count))
        made.type = POINTER  # llvmlite still gives it the type of what it points to, an opaque pointer is wanted
        if align:
            made.align = align
        return made

    def at(self, base: Value, offset: int | Value) -> Value:
        """Return the address that is `offset` bytes behind another."""
        if isinstance(offset, int):
            if offset == 0:
                return base
            offset = constant(64, offset)
        return self.build.gep(base, [offset], inbounds=True, source_etype=BYTE)

    def load(self, kind: ll.Type, address: Value, align: int = 1) -> Value:
        """Load a value."""
        return self.build.load(address, typ=kind, align=align)

    def store(self, value: Value, address: Value, align: int = 1) -> None:
        """Store a value."""
        self.build.store(value, address, align=align)

    @contextmanager
    def loop(self, count: Callable[[], Value]) -> Iterator[Value]:
        """Write a loop around what is written meanwhile; gives the number of the turn, 64 bits, from 0 on.

        `count` writes how many turns there are, which is asked before each.
        """
        build, before = self.build, self.build.block
        head, body, end = (self.function.append_basic_block(name) for name in ("head", "body", "end"))
        build.branch(head)
        build.position_at_end(head)
        turn = build.phi(I64)
        turn.add_incoming(constant(64, 0), before)
        build.cbranch(build.icmp_unsigned("<", turn, count()), body, end)
        build.position_at_end(body)
        yield turn
        turn.add_incoming(build.add(turn, constant(64, 1)), build.block)
        build.branch(head)
        build.position_at_end(end)

    def context_word(self, context: Value, index: int, kind: ll.Type = POINTER) -> Value:
        """Load a word of the context; LLVM may load it once, since it does not change while native code runs."""
        loaded = self.load(kind, self.at(context, 8 * index), 8)
        loaded.set_metadata("invariant.load", self.unit.module.add_metadata([]))
        return loaded

    def resize(self, value: Value, width: int, signed: bool = False) -> Value:
        """Return an integer in another width."""
        old = value.type.width
        if old == width:
            return value
        if old > width:
            return self.build.trunc(value, integer(width))
        return self.build.sext(value, integer(width)) if signed else self.build.zext(value, integer(width))

    def load_network(self, address: Value, size: int) -> Value:
        """Load a number of `size` bytes in network byte order."""
        return self.swap(self.load(integer(8 * size), address))

    def store_network(self, value: Value, address: Value) -> None:
        """Store a number of whole bytes in network byte order."""
        width = value.type.width
        if width <= _MOST_SWAPPED_BITS:
            self.store(self.swap(value), address)
            return
        for start in range(0, width, 64):
            end = min(start + 64, width)
            word = self.build.trunc(self._shift_right(value, start), integer(end - start))
            self.store(self.swap(word), self.at(address, (width - end) // 8))

    def swap(self, value: Value) -> Value:
        """Reverse the bytes of an integer."""
        # LLVM swaps integers of an even number of bytes; one of an odd number is swapped with a byte more.
        width = value.type.width
        if width == 8:
            return value
        if width % 16 == 0:
            return self.build.bswap(value)
        longer = self.build.bswap(self.build.zext(value, integer(width + 8)))
        return self.build.trunc(self.build.lshr(longer, constant(width + 8, 8)), integer(width))

    def load_bits(self, address: Value, offset: int, width: int) -> Value:
        """Load a number of `width` bits that starts `offset` bits behind an address."""
        first, last = offset // 8, (offset + width + 7) // 8
        value = self.load_network(self.at(address, first), last - first)
        return self.resize(self._shift_right(value, 8 * last - offset - width), width)

    def store_bits(self, value: Value, address: Value, offset: int) -> None:
        """Store a number `offset` bits behind an address; the bits around it do not change."""
        width = value.type.width
        first, last = offset // 8, (offset + width + 7) // 8
        size = 8 * (last - first)
        address = self.at(address, first)
        if size != width:
            shift = 8 * last - offset - width
            keep = ((1 << size) - 1) ^ (((1 << width) - 1) << shift)
            old = self.build.and_(self.load_network(address, last - first), constant(size, keep))
            value = self.build.or_(old, self.build.shl(self.resize(value, size), constant(size, shift)))
        self.store_network(value, address)

    def copy(self, target: Value, source: Value, size: int | Value, *, volatile: bool = False) -> None:
        """Copy bytes; a volatile copy reads each byte once and only once."""
        size = constant(64, size) if isinstance(size, int) else size
        copy = self.unit.module.declare_intrinsic("llvm.memcpy", [POINTER, POINTER, I64])
        self.build.call(copy, [target, source, size, constant(1, volatile)])

    def fill(self, target: Value, size: int) -> None:
        """Set bytes to 0."""
        fill = self.unit.module.declare_intrinsic("llvm.memset", (POINTER, I64))
        self.build.call(fill, [target, constant(8, 0), constant(64, size), constant(1, 0)])

    def own_copy(self, address: Value, size: int) -> Value:
        """Return the address of a copy of bytes that another process may change; every reader of it sees the same."""
        copied = self.stack(BYTE, size)
        self.copy(copied, address, size, volatile=True)
        return copied

    def _shift_right(self, value: Value, amount: int) -> Value:
        return self.build.lshr(value, constant(value.type.width, amount)) if amount else value


@dataclass(slots=True)
class PacketArguments:
    """The arguments of a graph's function: a packet and the context."""

    hot: Value
    storage: Value
    context: Value
    frame: Value
    length: Value
    """Bytes of the frame as it arrived, 64 bits."""
    cursor: Value
    """Address of the number of bytes that the parser has taken, 64 bits."""


class Fields:
    """Access to the fields of a packet from one function."""

    def __init__(self, emitter: Emitter, packet: PacketArguments, graph: str) -> None:
        self._emit = emitter
        self.packet = packet
        self._program, self._layout = emitter.program, emitter.layout
        # Metadata that only this graph uses lives in variables of the function, which start at 0 as in BMv2.
        self._local: dict[int, Value] = {}
        zeros = emitter.context_word(packet.context, ZEROS)
        for slot in sorted(self._layout.local[graph]):
            wide = is_wide(self._program, slot)
            kind = POINTER if wide else integer(self._program.fields[slot].width)
            self._local[slot] = emitter.stack(kind)
            emitter.build.store(zeros if wide else ll.Constant(kind, 0), self._local[slot])

    def load(self, slot: int) -> Value:
        """Load a narrow field."""
        width = self._program.fields[slot].width
        if slot in self._local:
            return self._emit.build.load(self._local[slot], typ=integer(width))
        if slot in self._layout.metadata:
            size = machine_bytes(width)
            address = self._emit.at(self.packet.hot, self._layout.metadata[slot])
            return self._emit.resize(self._emit.load(integer(8 * size), address, min(size, 16)), width)
        offset, bits = self._layout.bit_address(slot)
        return self._emit.load_bits(self._emit.at(self.packet.hot, offset), bits, width)

    def store(self, slot: int, value: Value) -> None:
        """Store a narrow field."""
        if slot in self._local:
            self._emit.build.store(value, self._local[slot])
        elif slot in self._layout.metadata:
            size = machine_bytes(value.type.width)
            address = self._emit.at(self.packet.hot, self._layout.metadata[slot])
            self._emit.store(self._emit.resize(value, 8 * size), address, min(size, 16))
        else:
            offset, bits = self._layout.bit_address(slot)
            self._emit.store_bits(value, self._emit.at(self.packet.hot, offset), bits)

    def pointer(self, slot: int) -> Value:
        """Load the address of a wide field's bytes."""
        return self._emit.load(POINTER, self._pointer_address(slot), 8)

    def set_pointer(self, slot: int, address: Value) -> None:
        """Set the address of a wide field's bytes."""
        self._emit.store(address, self._pointer_address(slot), 8)

    def own_bytes(self, slot: int) -> Value:
        """Return the address of the storage into which a wide field is computed."""
        return self._emit.at(self.packet.storage, self._layout.storage[slot])

    def valid(self, header: int) -> Value:
        """Load the validity of a header as one bit."""
        loaded = self._emit.load(BYTE, self._emit.at(self.packet.hot, self._layout.valid[header]))
        return self._emit.build.trunc(loaded, BIT)

    def set_valid(self, header: int, valid: Value) -> None:
        """Store the validity of a header; if it is valid, the other headers of its union are not."""
        emit, hot = self._emit, self.packet.hot
        emit.store(emit.resize(valid, 8), emit.at(hot, self._layout.valid[header]))
        if isinstance(valid, ll.Constant) and not valid.constant:
            return
        for sibling in self._program.headers[header].siblings:
            place = emit.at(hot, self._layout.valid[sibling])
            emit.store(emit.build.select(valid, constant(8, 0), emit.load(BYTE, place)), place)

    def _pointer_address(self, slot: int) -> Value:
        if slot in self._local:
            return self._local[slot]
        return self._emit.at(self.packet.hot, self._layout.pointers[slot])

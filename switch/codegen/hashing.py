"""Hashes of fields in native code; `switch/hashes.py` defines them.

`csum16` has a module of its own (`checksum.py`).  For the other algorithms the inputs' bits are first put side by side
in a buffer on the stack, and then a loop goes over its bytes.  CRCs use a table of 256 entries, one step for each byte.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import llvmlite.ir as ll

from .. import ir
from ..hashes import crc_ccitt, reflected_crc
from .checksum import ChecksumCode
from .emitter import (
    BIT,
    BYTE,
    I16,
    I64,
    POINTER,
    Emitter,
    Fields,
    Unit,
    Value,
    constant,
    integer,
)
from .wide import WideFields, is_wide_value

_ONES = 0xFFFFFFFF
_CRCS = {
    "crc16": (16, [reflected_crc(bytes([byte]), 0xA001, 0, 0) for byte in range(256)], 0, 0, True),
    "crc32": (32, [reflected_crc(bytes([byte]), 0xEDB88320, 0, 0) for byte in range(256)], _ONES, _ONES, True),
    "crcCCITT": (16, [crc_ccitt(bytes([0xFF, 0xFF ^ byte])) for byte in range(256)], 0xFFFF, 0, False),
}
"""For each CRC: width, table, initial value, final exclusive or, and whether the lowest bit goes first."""
_SPARE_BYTES = 8
"""Bytes in front of the buffer, for the zeros that fill up the first byte of the first input; and bytes behind it,
since `identity` loads eight bytes of any buffer."""
_THREE = constant(64, 3)


class _Values(Protocol):
    wide: WideFields

    def integer(self, value: ir.Expr) -> Value: ...


class HashEmitter:
    """Emits hashes in one function."""

    def __init__(self, emitter: Emitter, fields: Fields, values: _Values) -> None:
        self._emit = emitter
        self._fields = fields
        self._values = values

    def hash(self, value: ir.Hash) -> Value:
        """Return a hash in its own width."""
        if value.algorithm == "csum16":
            address = self._values.wide.address
            return ChecksumCode(self._emit, self._fields, self._values.integer, address).compute(value)
        address, size = self._buffer(value)
        parts = [(address, size), *([self._payload()] if value.payload else [])]
        if value.algorithm == "identity":
            return self._identity(parts)
        if value.algorithm == "xor16":
            return self._xor16(parts)
        width, _, initial, final, _ = _CRCS[value.algorithm]
        state = constant(width, initial)
        for part in parts:
            state = self._emit.build.call(_crc(self._emit.unit, value.algorithm), [*part, state])
        return self._emit.build.xor(state, constant(width, final))

    def _identity(self, parts: list[tuple[Value, Value]]) -> Value:
        """Return the first eight bytes as a number; if there are fewer, all of them."""
        build, eight = self._emit.build, constant(64, 8)
        address, size = parts[0]
        for start, rest in parts[1:]:
            more = build.select(build.icmp_unsigned("<", rest, eight), rest, eight)
            self._emit.copy(self._emit.at(address, size), start, more)
            size = build.add(size, more)
        # Eight bytes are always loaded, and those that are missing are shifted out.
        missing = build.select(build.icmp_unsigned("<", size, eight), build.sub(eight, size), constant(64, 0))
        first = build.lshr(self._emit.load_network(address, 8), build.shl(build.and_(missing, constant(64, 7)), _THREE))
        return build.select(build.icmp_unsigned("==", missing, eight), constant(64, 0), first)

    def _xor16(self, parts: list[tuple[Value, Value]]) -> Value:
        build, state, total = self._emit.build, constant(16, 0), constant(64, 0)
        for address, size in parts:
            state = build.call(_xor16(self._emit.unit), [address, size, state])
            total = build.add(total, size)
        return build.select(build.trunc(total, BIT), build.bswap(state), state)

    def _payload(self) -> tuple[Value, Value]:
        """Return the address of the payload, and its number of bytes."""
        emit, packet = self._emit, self._fields.packet
        cursor = emit.load(I64, packet.cursor, 8)
        return emit.at(packet.frame, cursor), emit.build.sub(packet.length, cursor)

    def _buffer(self, value: ir.Hash) -> tuple[Value, Value]:
        """Put the inputs' bits side by side in memory; return the address, and how many bytes they fill."""
        # The position is a run-time value: an input whose header is not valid is left out.  `start` is the bit at which
        # the input's whole bytes begin, zeros in front included; `_append` ors them in, so that the zeros do no harm.
        emit, build = self._emit, self._emit.build
        most = sum(part.value.width for part in value.inputs) // 8 + 1
        memory = emit.stack(BYTE, most + 2 * _SPARE_BYTES)
        emit.fill(memory, most + 2 * _SPARE_BYTES)
        bits = constant(64, 8 * _SPARE_BYTES)
        for part in value.inputs:
            width = part.value.width
            source = self._in_memory(part.value)
            size, step, front = constant(64, (width + 7) // 8), constant(64, width), constant(64, -width % 8)
            if part.bits is not None:  # these bits are whole bytes at the top, with no zeros in front
                step = emit.resize(self._values.integer(part.bits), 64)
                size = build.lshr(step, _THREE)
            if part.header is not None:
                valid = self._fields.valid(part.header)
                size, step = (build.select(valid, number, constant(64, 0)) for number in (size, step))
            start = build.sub(bits, front)
            build.call(_append(emit.unit), [source, size, memory, start])
            bits = build.add(bits, step)
        bits = build.sub(bits, constant(64, 8 * _SPARE_BYTES - 7))
        return emit.at(memory, _SPARE_BYTES), build.lshr(bits, _THREE)

    def _in_memory(self, value: ir.Expr) -> Value:
        """Return the address of a value in whole bytes, with zeros in front."""
        if is_wide_value(value):
            return self._values.wide.address(value)
        size = (value.width + 7) // 8
        address = self._emit.stack(BYTE, size)
        self._emit.store_network(self._emit.resize(self._values.integer(value), 8 * size), address)
        return address


def _append(unit: Unit) -> ll.Function:
    """Return a function (source, its bytes, target, bit) that ors bytes into `target` from bit number `bit` on."""

    def step(build: ll.IRBuilder, place: Value, byte: Value) -> Value:
        _, _, target, start = build.function.args
        address = build.gep(target, [place], source_etype=BYTE)
        shift = build.sub(constant(16, 8), build.trunc(build.and_(start, constant(64, 7)), I16))
        moved = build.bswap(build.shl(build.zext(byte, I16), shift))
        build.store(build.or_(build.load(address, typ=I16, align=1), moved), address, align=1)
        return build.add(place, constant(64, 1))

    def first(build: ll.IRBuilder) -> Value:
        return build.lshr(build.function.args[3], _THREE)

    return _each_byte(unit, "append", I64, [POINTER, I64], first, step)


def _crc(unit: Unit, algorithm: str) -> ll.Function:
    """Return a function (address, bytes, state) that continues a CRC from a state and returns the new state."""
    width, table, _, _, reflected = _CRCS[algorithm]
    kind = integer(width)
    array = ll.ArrayType(kind, 256)

    def constants() -> Value:
        made = ll.GlobalVariable(unit.module, array, f"{algorithm}.table")
        made.linkage, made.global_constant, made.initializer = "internal", True, ll.Constant(array, table)
        return made

    def step(build: ll.IRBuilder, state: Value, loaded: Value) -> Value:
        # One step of the table method: eight bits of the CRC and a byte of data choose what is added to the rest.
        byte = build.zext(loaded, kind)
        if reflected:
            which = build.and_(build.xor(state, byte), constant(width, 0xFF))
            moved = build.lshr(state, constant(width, 8))
        else:
            which = build.xor(build.lshr(state, constant(width, width - 8)), byte)
            moved = build.shl(state, constant(width, 8))
        entry = build.gep(constants(), [build.zext(which, I64)], source_etype=kind)
        return build.xor(build.load(entry, typ=kind), moved)

    return _each_byte(unit, algorithm, kind, [kind], lambda build: build.function.args[2], step)


def _xor16(unit: Unit) -> ll.Function:
    """Return a function (address, bytes, state) that continues an exclusive or of 16-bit words."""
    # The state is rotated by a byte for each byte, so that the last byte is always the low one.

    def step(build: ll.IRBuilder, state: Value, byte: Value) -> Value:
        return build.xor(build.bswap(state), build.zext(byte, I16))

    return _each_byte(unit, "xor16", I16, [I16], lambda build: build.function.args[2], step)


def _each_byte(
    unit: Unit,
    name: str,
    kind: ll.Type,
    more: list[ll.Type],
    first: Callable[[ll.IRBuilder], Value],
    step: Callable[[ll.IRBuilder, Value, Value], Value],
) -> ll.Function:
    """Return a function (address, bytes, and `more`) that steps from the `first` state over all bytes to the last."""

    def write() -> ll.Function:
        function = unit.function(name, kind, [POINTER, I64, *more])
        address, size, *_ = function.args
        entry, head, body, end = (function.append_basic_block(block) for block in ("entry", "head", "body", "end"))
        build = ll.IRBuilder(entry)
        start = first(build)
        build.branch(head)
        build.position_at_end(head)
        offset, state = build.phi(I64), build.phi(kind)
        offset.add_incoming(constant(64, 0), entry)
        state.add_incoming(start, entry)
        build.cbranch(build.icmp_unsigned("<", offset, size), body, end)
        build.position_at_end(body)
        byte = build.load(build.gep(address, [offset], source_etype=BYTE), typ=BYTE)
        state.add_incoming(step(build, state, byte), body)
        offset.add_incoming(build.add(offset, constant(64, 1)), body)
        build.branch(head)
        build.position_at_end(end)
        build.ret(state)
        return function

    return unit.helper(name, write)

"""Hashes of fields: the checksum by itself, the others over a buffer of the inputs' bits."""

from __future__ import annotations

from itertools import groupby
from typing import Protocol

import llvmlite.ir as ll

from switchsum.switch import ir
from switchsum.switch.codegen.checksum import Checksum
from switchsum.switch.codegen.emitter import (
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
from switchsum.switch.codegen.wide import WideFields
from switchsum.switch.hashes import crc_ccitt, reflected_crc

_CRCS = {
    "crc16": (16, [reflected_crc(bytes([byte]), 0xA001, 0, 0) for byte in range(256)], 0, 0, True),
    "crc32": (
        32,
        [reflected_crc(bytes([byte]), 0xEDB88320, 0, 0) for byte in range(256)],
        0xFFFFFFFF,
        0xFFFFFFFF,
        True,
    ),
    "crcCCITT": (16, [crc_ccitt(bytes([0xFF, 0xFF ^ byte])) for byte in range(256)], 0xFFFF, 0, False),
}
"""Bits, table, initial value, final exclusive or, and whether the lowest bit goes first."""


class _Values(Protocol):
    wide: WideFields

    def integer(self, value: ir.Expr) -> Value: ...


class HashEmitter:
    """Computes hashes in one function."""

    def __init__(self, emitter: Emitter, fields: Fields, values: _Values) -> None:
        self._emit = emitter
        self._fields = fields
        self._values = values

    def hash(self, value: ir.Hash) -> Value:
        """Return a hash in its own width."""
        if value.algorithm == "csum16":
            address = self._values.wide.address
            return Checksum(self._emit, self._fields, self._values.integer, address).compute(value)
        address, size = self._buffer(value)
        build = self._emit.build
        if value.algorithm == "identity":
            first = self._emit.load_network(address, 8)
            missing = build.sub(constant(64, 8), size)
            missing = build.select(build.icmp_signed(">", missing, constant(64, 0)), missing, constant(64, 0))
            whole = build.icmp_unsigned("<", missing, constant(64, 8))
            shifted = build.lshr(first, build.and_(build.mul(missing, constant(64, 8)), constant(64, 63)))
            return build.select(whole, shifted, constant(64, 0))
        function = _xor16(self._emit.unit) if value.algorithm == "xor16" else _crc(self._emit.unit, value.algorithm)
        return build.call(function, [address, size])

    def _buffer(self, value: ir.Hash) -> tuple[Value, Value]:
        """Put the inputs' bits side by side in memory; return where, and how many bytes they fill."""
        build = self._emit.build
        width = -(-max(64, sum(part.value.width for part in value.inputs)) // 8) * 8
        width += width % 16
        number, bits = constant(width, 0), constant(64, 0)
        for header, group in groupby(value.inputs, key=lambda part: part.header):
            longer, more = number, bits
            for part in group:
                shift = constant(width, part.value.width)
                moved = build.shl(longer, shift) if part.value.width < width else constant(width, 0)
                longer = build.or_(moved, self._emit.resize(self._values.integer(part.value), width))
                more = build.add(more, constant(64, part.value.width))
            if header is not None:
                valid = self._fields.valid(header)
                longer, more = build.select(valid, longer, number), build.select(valid, more, bits)
            number, bits = longer, more
        unused = self._emit.resize(build.sub(constant(64, width), bits), width)
        none = build.icmp_unsigned("==", bits, constant(64, 0))
        number = build.select(none, constant(width, 0), build.shl(number, unused))
        address = self._emit.stack(BYTE, width // 8)
        self._emit.store_network(number, address)
        return address, build.lshr(build.add(bits, constant(64, 7)), constant(64, 3))


def _loop(function: ll.Function, start: Value, step: int) -> tuple[ll.IRBuilder, Value, Value, ll.Block, ll.Block]:
    """Begin a loop over the offsets below the second argument; return builder, offset, state and the blocks."""
    entry, head, body, end = (function.append_basic_block(name) for name in ("entry", "head", "body", "end"))
    ll.IRBuilder(entry).branch(head)
    build = ll.IRBuilder(head)
    offset, state = build.phi(I64), build.phi(start.type)
    offset.add_incoming(constant(64, 0), entry)
    state.add_incoming(start, entry)
    build.cbranch(build.icmp_unsigned("<", offset, function.args[1]), body, end)
    build.position_at_end(body)
    offset.add_incoming(build.add(offset, constant(64, step)), body)
    return build, offset, state, head, end


def _crc(unit: Unit, algorithm: str) -> ll.Function:
    if ("crc", algorithm) in unit.helpers:
        made: ll.Function = unit.helpers["crc", algorithm]
        return made
    width, table, initial, final, reflected = _CRCS[algorithm]
    kind = integer(width)
    function = unit.function(algorithm, kind, [POINTER, I64])
    unit.helpers["crc", algorithm] = function
    array = ll.ArrayType(kind, 256)
    constants = ll.GlobalVariable(unit.module, array, f"{algorithm}.table")
    constants.linkage, constants.global_constant = "internal", True
    constants.initializer = ll.Constant(array, table)
    build, offset, state, head, end = _loop(function, constant(width, initial), 1)
    loaded = build.load(build.gep(function.args[0], [offset], source_etype=BYTE), typ=BYTE)
    byte = build.zext(loaded, kind)
    if reflected:
        which = build.and_(build.xor(state, byte), constant(width, 0xFF))
        moved = build.lshr(state, constant(width, 8))
    else:
        which = build.xor(build.lshr(state, constant(width, width - 8)), byte)
        moved = build.shl(state, constant(width, 8))
    entry = build.gep(constants, [build.zext(which, I64)], source_etype=kind)
    state.add_incoming(build.xor(build.load(entry, typ=kind), moved), build.block)
    build.branch(head)
    build.position_at_end(end)
    build.ret(build.xor(state, constant(width, final)))
    return function


def _xor16(unit: Unit) -> ll.Function:
    if "xor16" in unit.helpers:
        made: ll.Function = unit.helpers["xor16"]
        return made
    function = unit.function("xor16", I16, [POINTER, I64])
    unit.helpers["xor16"] = function
    build, offset, state, head, end = _loop(function, constant(16, 0), 2)
    word = build.load(build.gep(function.args[0], [offset], source_etype=BYTE), typ=I16, align=1)
    state.add_incoming(build.xor(state, build.bswap(word)), build.block)
    build.branch(head)
    build.position_at_end(end)
    build.ret(state)
    return function

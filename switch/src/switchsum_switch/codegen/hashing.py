"""Hashes of fields in native code; `program/hashes.py` defines them.

`csum16` has a module of its own (`checksum.py`).  For the other algorithms the inputs' bits are first put side by side
in a buffer on the stack, and then a loop goes over its bytes.  CRCs use a table of 256 entries, one step for each byte.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import llvmlite.ir as ll

from ..program import ir
from ..program.hashes import XXH_PRIMES, crc8, crc_ccitt, reflected_crc
from .checksum import ChecksumCode
from .emitter import BYTE, I16, I64, POINTER, Emitter, Fields, Unit, Value, constant, integer
from .wide import WideFields, is_wide_value

_ONES = 0xFFFFFFFF
_CRC64 = 0xD800000000000000
_XOR_BITS = {"xor16": 16, "xor32": 32}
_CRCS = {
    "crc16": (16, [reflected_crc(bytes([byte]), 0xA001, 0, 0) for byte in range(256)], 0, 0, True),
    "crc32": (32, [reflected_crc(bytes([byte]), 0xEDB88320, 0, 0) for byte in range(256)], _ONES, _ONES, True),
    "crc8_custom": (8, [crc8(bytes([byte])) for byte in range(256)], 0, 0, False),
    "crc64_custom": (64, [reflected_crc(bytes([byte]), _CRC64, 0, 0) for byte in range(256)], 0, 0, True),
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
        if value.algorithm == "toeplitz":
            return constant(32, 0)
        address, size = self._buffer(value)
        parts = [(address, size), *([self._payload()] if value.payload else [])]
        if value.algorithm == "identity":
            return self._identity(parts)
        if value.algorithm in _XOR_BITS:
            return self._xor(parts, _XOR_BITS[value.algorithm])
        if value.algorithm == "xxh64":
            nothing = ll.Constant(POINTER, None), constant(64, 0)
            return self._emit.build.call(_xxh64(self._emit.unit), [*parts[0], *(parts[1] if parts[1:] else nothing)])
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

    def _xor(self, parts: list[tuple[Value, Value]], width: int) -> Value:
        build, state, total = self._emit.build, constant(width, 0), constant(64, 0)
        for address, size in parts:
            state = build.call(_xor(self._emit.unit, width), [address, size, state])
            total = build.add(total, size)
        # The last byte is the low one; zeros behind it fill up the last word.
        missing = build.and_(build.sub(constant(64, 0), total), constant(64, width // 8 - 1))
        return _rotate(build, state, build.trunc(build.shl(missing, _THREE), integer(width)))

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
        byte = build.zext(loaded, kind) if width > 8 else loaded
        if reflected:
            which = build.and_(build.xor(state, byte), constant(width, 0xFF))
            moved = build.lshr(state, constant(width, 8))
        else:
            which = build.xor(build.lshr(state, constant(width, width - 8)) if width > 8 else state, byte)
            moved = build.shl(state, constant(width, 8)) if width > 8 else constant(width, 0)
        place = which if width == 64 else build.zext(which, I64)
        entry = build.gep(constants(), [place], source_etype=kind)
        return build.xor(build.load(entry, typ=kind), moved)

    return _each_byte(unit, algorithm, kind, [kind], lambda build: build.function.args[2], step)


def _rotate(build: ll.IRBuilder, value: Value, amount: Value) -> Value:
    """Rotate a number to the left."""
    width = value.type.width
    amount = build.and_(amount, constant(width, width - 1))
    other = build.and_(build.sub(constant(width, width), amount), constant(width, width - 1))
    return build.or_(build.shl(value, amount), build.lshr(value, other))


def _xor(unit: Unit, width: int) -> ll.Function:
    """Return a function (address, bytes, state) that continues an exclusive or of words of `width` bits."""
    # The state is rotated by a byte for each byte, so that the last byte is always the low one.

    def step(build: ll.IRBuilder, state: Value, byte: Value) -> Value:
        return build.xor(_rotate(build, state, constant(width, 8)), build.zext(byte, integer(width)))

    kind = integer(width)
    return _each_byte(unit, f"xor{width}", kind, [kind], lambda build: build.function.args[2], step)


def _xxh64(unit: Unit) -> ll.Function:
    """Return a function (address, bytes, address, bytes) that computes XXH64 of both runs of bytes together."""
    return unit.helper("xxh64", lambda: _write_xxh64(unit))


def _write_xxh64(unit: Unit) -> ll.Function:
    function = unit.function("xxh64", I64, [POINTER, I64, POINTER, I64])
    function.attributes.add("noinline")
    emit = Emitter(unit, function)
    build = emit.build
    first, first_size, second, second_size = function.args
    size = build.add(first_size, second_size)
    # Words of eight bytes go across both runs, so these are put side by side first.
    data = build.alloca(BYTE, size=size)
    emit.copy(data, first, first_size)
    emit.copy(emit.at(data, first_size), second, second_size)
    p1, p2, p3, p4, p5 = (constant(64, prime) for prime in XXH_PRIMES)

    def rotate(value: Value, amount: int) -> Value:
        return _rotate(build, value, constant(64, amount))

    def mixed(value: Value) -> Value:
        return build.mul(rotate(build.mul(value, p2), 31), p1)

    lanes = [emit.stack(I64) for _ in range(4)]
    for lane, value in zip(lanes, (XXH_PRIMES[0] + XXH_PRIMES[1], XXH_PRIMES[1], 0, -XXH_PRIMES[0]), strict=True):
        build.store(constant(64, value & ((1 << 64) - 1)), lane)
    stripes = build.lshr(size, constant(64, 5))
    with emit.loop(lambda: stripes) as number:
        at = emit.at(data, build.shl(number, constant(64, 5)))
        for place, lane in enumerate(lanes):
            word = emit.load(I64, emit.at(at, 8 * place))
            added = build.add(build.load(lane, typ=I64), build.mul(word, p2))
            build.store(build.mul(rotate(added, 31), p1), lane)
    state = emit.stack(I64)
    held = [build.load(lane, typ=I64) for lane in lanes]
    total = constant(64, 0)
    for value, amount in zip(held, (1, 7, 12, 18), strict=True):
        total = build.add(total, rotate(value, amount))
    for value in held:
        total = build.add(build.mul(build.xor(total, mixed(value)), p1), p4)
    begun = build.select(build.icmp_unsigned("!=", stripes, constant(64, 0)), total, p5)
    build.store(build.add(begun, size), state)
    done = build.shl(stripes, constant(64, 5))
    words = build.lshr(build.sub(size, done), _THREE)
    with emit.loop(lambda: words) as number:
        word = emit.load(I64, emit.at(emit.at(data, done), build.shl(number, _THREE)))
        new = build.xor(build.load(state, typ=I64), mixed(word))
        build.store(build.add(build.mul(rotate(new, 27), p1), p4), state)
    done = build.add(done, build.shl(words, _THREE))
    with build.if_then(build.icmp_unsigned(">=", build.sub(size, done), constant(64, 4))):
        word = build.zext(emit.load(integer(32), emit.at(data, done)), I64)
        new = build.xor(build.load(state, typ=I64), build.mul(word, p1))
        build.store(build.add(build.mul(rotate(new, 23), p2), p3), state)
    rest = build.and_(size, constant(64, 3))
    with emit.loop(lambda: rest) as number:
        byte = build.zext(emit.load(BYTE, emit.at(emit.at(data, build.sub(size, rest)), number)), I64)
        new = build.xor(build.load(state, typ=I64), build.mul(byte, p5))
        build.store(build.mul(rotate(new, 11), p1), state)
    last = build.load(state, typ=I64)
    for shift, factor in ((33, p2), (29, p3)):
        last = build.mul(build.xor(last, build.lshr(last, constant(64, shift))), factor)
    build.ret(build.xor(last, build.lshr(last, constant(64, 32))))
    return function


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

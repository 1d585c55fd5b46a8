"""The Internet checksum (RFC 1071) over fields and payload.

The definition (`program/hashes.py`) puts all inputs side by side in one bit string, cuts it into words of 16 bits and
adds them with end-around carry.  To build that bit string for every packet would cost more than the sum.

End-around carry is addition modulo 65535, and modulo 65535 the number 2**16 is 1.  So a field need not be cut into
words. It is added as one number; if `r` bits follow it in the bit string, it is shifted to the left by `r`, and a shift
by `r` is the same as a rotation of 16 bits by `r` modulo 16.  Example: for the fields `bit<8> a` and `bit<24> b`, the
bit string is a*2**24 + b, and the sum is rotate(a, 8) + b modulo 65535.

The same argument covers byte order.  To swap the bytes of a word is to rotate it by 8.  Bytes in memory are therefore
added as little-endian words, without a swap for each, and their sum is rotated once at the end.  Hence two sums:
`numbers`, and `words` in little-endian order.

Modulo 65535 the numbers 0 and 65535 are equal, but the checksum is not: a sum of words is 0 only if all bits are 0.
`fold` keeps that: it adds the halves and never subtracts 65535.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import llvmlite.ir as ll

from ..program import ir
from ..program.passes.analysis import is_wide
from .emitter import BYTE, I32, I64, POINTER, Emitter, Fields, Unit, Value, constant, integer
from .layout import Layout, Narrow

WORD_BITS = 16
INLINE_BYTES = 64
"""Longer runs of bytes are added by a function, which uses vector instructions."""


@dataclass(frozen=True, slots=True)
class _Term:
    """One addend: a number, or bytes in memory."""

    value: Value
    """Integer, or address of bytes."""
    bits: int
    rest: int
    """Number of bits that follow it in its group."""
    in_memory: bool


class ChecksumCode:
    """Emits one checksum."""

    def __init__(
        self,
        emitter: Emitter,
        fields: Fields,
        integer_of: Callable[[ir.Expr], Value],
        address_of: Callable[[ir.Expr], Value],
    ) -> None:
        self._emit = emitter
        self._fields = fields
        self._integer_of = integer_of
        self._address_of = address_of
        self._numbers, self._words, self._bits = (emitter.stack(I64) for _ in range(3))

    def compute(self, value: ir.Hash) -> Value:
        """Return the checksum, 16 bits."""
        build = self._emit.build
        for address in (self._numbers, self._words, self._bits):
            build.store(constant(64, 0), address)
        for (header, variable), group in groupby(value.inputs, key=lambda part: (part.header, part.bits)):
            parts = [part.value for part in group]
            terms = self._terms(parts) if variable is None else []
            valid = contextlib.nullcontext() if header is None else build.if_then(self._fields.valid(header))
            with valid:
                self._add_group(terms)
                for part in parts if variable is not None else ():
                    size = build.lshr(self._integer_of(variable), constant(variable.width, 3))
                    self._append_bytes(self._address_of(part), self._emit.resize(size, 64))
        if value.payload:
            self._add_payload()
        # The bit string is filled up with zeros to whole words, which is one more rotation.
        total = self._folded(self._numbers)
        swapped = rotate(build, self._folded(self._words), constant(64, 8))
        total = fold(build, build.add(total, swapped))
        padding = build.and_(build.sub(constant(64, 0), build.load(self._bits, typ=I64)), constant(64, WORD_BITS - 1))
        return build.not_(build.trunc(rotate(build, total, padding), integer(16)))

    def _terms(self, parts: Sequence[ir.Expr]) -> list[_Term]:
        """Compute values that are side by side in the bit string."""
        # `rest` shrinks from the width of the whole group to 0: what follows a part decides by how much it is rotated.
        terms = []
        rest = sum(part.width for part in parts)
        for run in _runs(self._emit.program, self._emit.layout, parts):
            bits = sum(part.width for part in run)
            rest -= bits
            in_memory = len(run) > 1 or is_in_memory(self._emit.program, run[0])
            value = self._address(run[0]) if in_memory else self._integer_of(run[0])
            terms.append(_Term(value, bits, rest, in_memory))
        return terms

    def _add_group(self, terms: Sequence[_Term]) -> None:
        """Append values that are side by side to the bit string."""
        self._shift_left(sum(term.bits for term in terms))
        for term in terms:
            if term.in_memory:
                self._add_bytes(term.value, term.bits // 8, term.rest)
            else:
                self._add_number(term.value, term.rest)

    def _shift_left(self, bits: int) -> None:
        """Shift both sums to the left by `bits`, and note how many bits the bit string has."""
        build = self._emit.build
        if not bits % WORD_BITS:
            return
        for address in (self._numbers, self._words):
            build.store(rotate(build, self._folded(address), constant(64, bits % WORD_BITS)), address)
        build.store(build.add(build.load(self._bits, typ=I64), constant(64, bits)), self._bits)

    def _address(self, value: ir.Expr) -> Value:
        if isinstance(value, ir.Field) and not is_wide(self._emit.program, value.slot):
            offset, _ = self._emit.layout.bit_address(value.slot)
            return self._emit.at(self._fields.packet.hot, offset)
        return self._address_of(value)

    def _add_number(self, value: Value, rest: int) -> None:
        build = self._emit.build
        for start in range(0, value.type.width, 32):
            shifted = build.lshr(value, constant(value.type.width, start)) if start else value
            word = self._emit.resize(self._emit.resize(shifted, min(32, value.type.width - start)), 64)
            self._add(self._numbers, build.shl(word, constant(64, rest % WORD_BITS)))

    def _add_bytes(self, address: Value, size: int, rest: int) -> None:
        build = self._emit.build
        if size > INLINE_BYTES:
            added = build.call(range_function(self._emit.unit), [address, constant(64, size)])
        else:
            added = constant(64, 0)
            for start in range(0, size, 4):
                count = min(4, size - start)
                word = self._emit.load(integer(8 * count), self._emit.at(address, start))
                added = build.add(added, self._emit.resize(word, 64))
        # Words start at the run's first byte.  If the number of bytes is odd, the last one was added as the low byte of
        # a little-endian word, where the bit string has it as a high byte.
        rotation = (rest + (8 if size % 2 == 0 else 0)) % WORD_BITS
        if rotation == 8:
            self._add(self._words, added)
        else:
            self._add(self._numbers, rotate(build, fold(build, added), constant(64, rotation)))

    def _add_payload(self) -> None:
        """Append the payload, behind zeros that fill up the last byte of the fields."""
        build, packet = self._emit.build, self._fields.packet
        missing = build.and_(build.sub(constant(64, 0), build.load(self._bits, typ=I64)), constant(64, 7))
        for address in (self._numbers, self._words):
            build.store(rotate(build, self._folded(address), missing), address)
        build.store(build.add(build.load(self._bits, typ=I64), missing), self._bits)
        cursor = self._emit.load(I64, packet.cursor, 8)
        self._append_bytes(self._emit.at(packet.frame, cursor), build.sub(packet.length, cursor))

    def _append_bytes(self, start: Value, size: Value) -> None:
        """Append bytes, of which there are as many as is known at run time only."""
        build = self._emit.build
        added = build.call(range_function(self._emit.unit), [start, size])
        odd = build.shl(build.and_(size, constant(64, 1)), constant(64, 3))
        for address in (self._numbers, self._words):
            build.store(rotate(build, self._folded(address), odd), address)
        even = build.xor(odd, constant(64, 8))
        self._add(self._numbers, rotate(build, fold(build, added), even))
        bits = build.add(build.load(self._bits, typ=I64), build.shl(size, constant(64, 3)))
        build.store(bits, self._bits)

    def _add(self, address: Value, value: Value) -> None:
        self._emit.build.store(self._emit.build.add(self._emit.build.load(address, typ=I64), value), address)

    def _folded(self, address: Value) -> Value:
        return fold(self._emit.build, self._emit.build.load(address, typ=I64))


def is_in_memory(program: ir.Program, value: ir.Expr) -> bool:
    """Return whether a value is a field that is kept as bytes in memory."""
    return isinstance(value, ir.Field) and is_wide(program, value.slot)


def _runs(program: ir.Program, layout: Layout, parts: Sequence[ir.Expr]) -> Iterator[list[ir.Expr]]:
    """Cut a list of values into runs of header fields that fill whole bytes side by side, and single values."""
    run: list[ir.Expr] = []
    for part in parts:
        if run and not _follows(program, layout, run[-1], part):
            yield from _whole(program, run)
            run = []
        run.append(part)
    yield from _whole(program, run)


def _whole(program: ir.Program, run: list[ir.Expr]) -> Iterator[list[ir.Expr]]:
    first, last = run[0], run[-1]
    whole = (
        isinstance(first, ir.Field)
        and isinstance(last, ir.Field)
        and program.fields[first.slot].offset % 8 == 0
        and (program.fields[last.slot].offset + last.width) % 8 == 0
    )
    if whole or len(run) == 1:
        yield run
    else:
        yield from ([part] for part in run)


def _follows(program: ir.Program, layout: Layout, before: ir.Expr, after: ir.Expr) -> bool:
    """Return whether two values are neighbours in the same run of narrow header bytes."""
    if not (isinstance(before, ir.Field) and isinstance(after, ir.Field)):
        return False
    one, other = program.fields[before.slot], program.fields[after.slot]
    if one.header != other.header or program.headers[one.header].metadata:
        return False
    for segment in layout.segments[one.header]:
        if isinstance(segment, Narrow):
            low, high = 8 * segment.start, 8 * (segment.start + segment.size)
            if low <= one.offset < high:
                return one.offset + one.width == other.offset < high
    return False


def fold(build: ll.IRBuilder, value: Value) -> Value:
    """Return a 64-bit sum modulo 65535 in 16 bits; the result is 0 only if the sum is 0."""
    value = build.add(build.and_(value, constant(64, 0xFFFFFFFF)), build.lshr(value, constant(64, 32)))
    for _ in range(3):
        value = build.add(build.and_(value, constant(64, 0xFFFF)), build.lshr(value, constant(64, 16)))
    return value


def rotate(build: ll.IRBuilder, value: Value, amount: Value) -> Value:
    """Rotate a 16-bit number, held in 64 bits, to the left."""
    shifted = build.shl(value, amount)
    return build.and_(build.or_(shifted, build.lshr(shifted, constant(64, 16))), constant(64, 0xFFFF))


def range_function(unit: Unit) -> ll.Function:
    """Return a function (address, size) that adds the little-endian 16-bit words of some bytes."""
    return unit.helper("checksum", lambda: _write_range(unit))


def _write_range(unit: Unit) -> ll.Function:
    """Add vectors of 64 bytes, then words, then a last byte.

    Each of the 16 lanes of 32 bits adds the two halves of its word; it could overflow after more than a megabyte only.
    """
    function = unit.function("checksum.range", I64, [POINTER, I64])
    function.attributes.add("noinline")
    address, size = function.args
    kind = ll.VectorType(I32, 16)
    names = ("entry", "vectors", "vector", "rest", "words", "word", "bytes", "byte", "end")
    blocks = {name: function.append_basic_block(name) for name in names}
    build = ll.IRBuilder(blocks["entry"])
    none = ll.Constant(kind, [constant(32, 0)] * 16)
    build.branch(blocks["vectors"])

    def loop(
        name: str, step: str, after: str, came: str, first: Value, start: Value, width: int
    ) -> tuple[Value, Value]:
        # `name` tests whether a step of `width` bytes is left, `step` adds it, `after` follows.
        build.position_at_end(blocks[name])
        offset, total = build.phi(I64), build.phi(first.type)
        offset.add_incoming(start, blocks[came])
        total.add_incoming(first, blocks[came])
        following = build.add(offset, constant(64, width))
        build.cbranch(build.icmp_unsigned("<=", following, size), blocks[step], blocks[after])
        build.position_at_end(blocks[step])
        source = build.gep(address, [offset], source_etype=BYTE)
        if width == 64:
            vector = build.load(source, typ=kind, align=1)
            halves = ll.Constant(kind, [constant(32, 16)] * 16)
            low = build.and_(vector, ll.Constant(kind, [constant(32, 0xFFFF)] * 16))
            added = build.add(build.add(total, low), build.lshr(vector, halves))
        else:
            loaded = build.load(source, typ=integer(8 * width), align=1)
            added = build.add(total, build.zext(loaded, I64))
        offset.add_incoming(following, blocks[step])
        total.add_incoming(added, blocks[step])
        build.branch(blocks[name])
        return offset, total

    offset, vectors = loop("vectors", "vector", "rest", "entry", none, constant(64, 0), 64)
    # The 16 lanes of the sum become one number; then whole words are added, then a last odd byte.
    build.position_at_end(blocks["rest"])
    longer = ll.VectorType(I64, 16)
    name = "llvm.vector.reduce.add.v16i64"
    reduce = ll.Function(unit.module, ll.FunctionType(I64, [longer]), name)
    total = build.call(reduce, [build.zext(vectors, longer)])
    build.branch(blocks["words"])
    offset, total = loop("words", "word", "bytes", "rest", total, offset, 2)
    offset, total = loop("bytes", "byte", "end", "words", total, offset, 1)
    build.position_at_end(blocks["end"])
    build.ret(total)
    return function

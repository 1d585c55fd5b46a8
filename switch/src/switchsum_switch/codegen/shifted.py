"""Fields of variable length that begin within a byte of the wire.

In memory such a field begins at a byte.  On the wire its first byte begins with `shift` bits of the field in front of
it, and so many of its own bits stand in the byte behind it::

    wire       aaavvvvv vvvvvvvv vvvbbbbb       shift = 3
    memory        vvvvvvvv vvvvvvvv
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import llvmlite.ir as ll

from .emitter import BYTE, I64, POINTER, VOID, Emitter, Value, constant


def take_shifted(emit: Emitter, target: Value, source: Value, size: Value, shift: int) -> None:
    """Copy a field of `size` bytes from the wire, where its first bits are in the byte at `source`."""

    def make() -> ll.Function:
        function = emit.unit.function(f"take_shifted_{shift}", VOID, [POINTER, POINTER, I64])
        inner = Emitter(emit.unit, function)
        to, of, count = function.args
        with inner.loop(lambda: count) as turn:
            high = inner.build.shl(inner.load(BYTE, inner.at(of, turn)), constant(8, shift))
            following = inner.load(BYTE, inner.at(inner.at(of, turn), 1))
            low = inner.build.lshr(following, constant(8, 8 - shift))
            inner.store(inner.build.or_(high, low), inner.at(to, turn))
        inner.build.ret_void()
        return function

    emit.build.call(emit.unit.helper(("take_shifted", shift), make), [target, source, size])


def put_shifted(emit: Emitter, target: Value, source: Value, size: Value, shift: int) -> None:
    """Copy a field of `size` bytes to the wire, behind the first bits of the byte at `target`.

    Its last bits are then the first bits of one more byte, whose other bits are 0.
    """

    def make() -> ll.Function:
        function = emit.unit.function(f"put_shifted_{shift}", VOID, [POINTER, POINTER, I64])
        inner = Emitter(emit.unit, function)
        build, (to, of, count) = inner.build, function.args
        first = build.and_(inner.load(BYTE, to), constant(8, 0xFF << (8 - shift) & 0xFF))
        inner.store(first, to)
        with inner.loop(lambda: count) as turn:
            byte, place = inner.load(BYTE, inner.at(of, turn)), inner.at(to, turn)
            joined = build.or_(inner.load(BYTE, place), build.lshr(byte, constant(8, shift)))
            inner.store(joined, place)
            inner.store(build.shl(byte, constant(8, 8 - shift)), inner.at(place, 1))
        build.ret_void()
        return function

    emit.build.call(emit.unit.helper(("put_shifted", shift), make), [target, source, size])


@contextmanager
def behind_shifted(emit: Emitter, target: Value, shift: int) -> Iterator[None]:
    """Keep the first `shift` bits of the byte at `target`, as `put_shifted` wrote them, while the others are copied."""
    build = emit.build
    if not shift:
        yield
        return
    front = emit.load(BYTE, target)
    yield
    rest = build.and_(emit.load(BYTE, target), constant(8, 0xFF >> shift))
    emit.store(build.or_(front, rest), target)

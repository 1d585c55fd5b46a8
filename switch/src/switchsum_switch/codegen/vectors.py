"""Vector loops over the bytes of wide values, one function for each shape of computation.

A wide value, such as 64 lanes of 32 bits, is up to 256 bytes in network byte order.  Bitwise operations and additions
of lanes need no carry from one lane to the next, so that they can be computed piece by piece with vector instructions.
A kernel computes several values of equal width in one pass over the bytes.  Example: `sum = old + new` and `overflow =
overflow | ((sum ^ old) & (sum ^ new))` of the same fields are one kernel with two outputs, which loads each input once.

For each piece a kernel loads all inputs before it stores any output.  So an output may be the memory of an input.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import llvmlite.ir as ll

from .emitter import BIT, BYTE, I64, POINTER, VOID, Unit, Value, constant, integer

VECTOR_BYTES = 64
"""Bytes of a piece; LLVM makes several instructions of one operation if the machine's vectors are shorter."""
UNROLLED_PIECES = 4
"""Most pieces that are written out one after the other; for more there is a loop."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a kernel computes.

    Nodes are tuples; a node names the nodes that it uses by their numbers, and comes after them:
    ("memory",), ("splat", period), ("constant", period, word), ("and"|"or"|"xor", a, b), ("add", lane, a, b),
    ("select", condition, a, b) with `condition` the number of a ("condition",) node.
    Arguments are the outputs' addresses, then one for each memory, splat and condition node in order.
    """

    size: int
    """Bytes of every value."""
    nodes: tuple[tuple[Any, ...], ...]
    outputs: tuple[int, ...]
    """Numbers of the nodes that are stored; if there are none, the kernel returns whether any bit of the last is 1."""


def kernel(unit: Unit, shape: Shape) -> ll.Function:
    """Return the function for a shape."""
    return unit.helper(shape, lambda: _write(unit, shape))


def _write(unit: Unit, shape: Shape) -> ll.Function:
    arguments: list[ll.Type] = [POINTER] * len(shape.outputs)
    for node in shape.nodes:
        if node[0] == "memory":
            arguments.append(POINTER)
        elif node[0] == "splat":
            arguments.append(integer(node[1]))
        elif node[0] == "condition":
            arguments.append(BIT)
    name = unit.module.get_unique_name("kernel")
    function = unit.function(name, VOID if shape.outputs else BIT, arguments)
    function.attributes.add("noinline")
    _Writer(unit, function, shape).write()
    return function


class _Writer:
    def __init__(self, unit: Unit, function: ll.Function, shape: Shape) -> None:
        self._unit = unit
        self._function = function
        self._shape = shape
        self._build = ll.IRBuilder(function.append_basic_block("entry"))
        self._any: list[Value] = []

    def write(self) -> None:
        build, shape = self._build, self._shape
        count, rest = divmod(shape.size, VECTOR_BYTES)
        if count <= UNROLLED_PIECES or not shape.outputs:
            for piece in range(count):
                self._piece(constant(64, piece * VECTOR_BYTES), VECTOR_BYTES)
        else:
            self._loop(count)
        start = count * VECTOR_BYTES
        # The rest is at most 63 bytes: one piece for each bit of its length.
        for size in (32, 16, 8, 4, 2, 1):
            if rest & size:
                self._piece(constant(64, start), size)
                start += size
        if shape.outputs:
            build.ret_void()
        else:
            found = self._any[0]
            for other in self._any[1:]:
                found = build.or_(found, other)
            build.ret(found)

    def _loop(self, count: int) -> None:
        build = self._build
        before = build.block
        body, after = (self._function.append_basic_block(name) for name in ("body", "after"))
        build.branch(body)
        build.position_at_end(body)
        offset = build.phi(I64)
        offset.add_incoming(constant(64, 0), before)
        self._piece(offset, VECTOR_BYTES)
        following = build.add(offset, constant(64, VECTOR_BYTES))
        offset.add_incoming(following, body)
        build.cbranch(build.icmp_unsigned("<", following, constant(64, count * VECTOR_BYTES)), body, after)
        build.position_at_end(after)

    def _piece(self, offset: Value, size: int) -> None:
        build, shape = self._build, self._shape
        kind = ll.VectorType(BYTE, size)
        outputs = self._function.args[: len(shape.outputs)]
        rest = iter(self._function.args[len(shape.outputs) :])
        values: list[Value] = []
        for node in shape.nodes:
            values.append(self._node(node, values, rest, offset, kind))
        for address, number in zip(outputs, shape.outputs, strict=True):
            build.store(values[number], self._at(address, offset), align=1)
        if not shape.outputs:
            bits = build.bitcast(values[-1], integer(8 * size))
            self._any.append(build.icmp_unsigned("!=", bits, ll.Constant(bits.type, 0)))

    def _node(self, node: tuple[Any, ...], values: list[Value], rest: Any, offset: Value, kind: ll.VectorType) -> Value:
        build, size = self._build, kind.count
        match node:
            case ("memory",):
                return build.load(self._at(next(rest), offset), typ=kind, align=1)
            case ("condition",):
                return next(rest)
            case ("splat", period):
                return self._spread(self._swapped(next(rest)), period, kind)
            # A repeated word is in network byte order in each place, machine words are not.
            case ("constant", period, word):
                swapped = int.from_bytes(word.to_bytes(period // 8, "big"), "little")
                return self._spread(constant(period, swapped), period, kind)
            case ("add", lane, left, right):
                lanes = ll.VectorType(integer(lane), 8 * size // lane)
                parts = [self._swapped(build.bitcast(values[part], lanes)) for part in (left, right)]
                return build.bitcast(self._swapped(build.add(*parts)), kind)
            case ("select", condition, left, right):
                return build.select(values[condition], values[left], values[right])
        operations: dict[str, Callable[..., Value]] = {"and": build.and_, "or": build.or_, "xor": build.xor}
        return operations[node[0]](values[node[1]], values[node[2]])

    def _swapped(self, value: Value) -> Value:
        """Change between network and machine byte order, in each element of a vector."""
        kind = value.type
        element = kind.element if isinstance(kind, ll.VectorType) else kind
        if element.width == 8:
            return value
        if not isinstance(kind, ll.VectorType):
            return self._build.bswap(value)
        module, name = self._unit.module, f"llvm.bswap.v{kind.count}i{element.width}"
        swap = self._unit.helper(name, lambda: ll.Function(module, ll.FunctionType(kind, [kind]), name))
        return self._build.call(swap, [value])

    def _spread(self, word: Value, period: int, kind: ll.VectorType) -> Value:
        lanes = ll.VectorType(integer(period), 8 * kind.count // period)
        if isinstance(word, ll.Constant):
            return self._build.bitcast(ll.Constant(lanes, [word] * lanes.count), kind)
        first = self._build.insert_element(ll.Constant(lanes, ll.Undefined), word, constant(32, 0))
        zeros = ll.Constant(ll.VectorType(integer(32), lanes.count), [constant(32, 0)] * lanes.count)
        everywhere = self._build.shuffle_vector(first, ll.Constant(lanes, ll.Undefined), zeros)
        return self._build.bitcast(everywhere, kind)

    def _at(self, base: Value, offset: Value) -> Value:
        return self._build.gep(base, [offset], inbounds=True, source_etype=BYTE)

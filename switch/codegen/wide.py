"""Wide fields within one block: values are put off and computed together, as late as possible, in few loops.

An assignment to a wide field only notes how the value is made of bytes in memory (a `Node`).  It is computed when those
bytes are about to change or the block ends, and only if somebody still reads it; what is computed at the same moment
shares one kernel.  A value that is just other memory, such as a header in the frame, is not copied at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from switchsum.switch import ir
from switchsum.switch.codegen.emitter import BYTE, Emitter, Fields, Value
from switchsum.switch.codegen.kernels import Shape, kernel
from switchsum.switch.codegen.layout import ALIGN, ZEROS
from switchsum.switch.codegen.limbs import LIMB_BYTES, LOOP_BYTES, carry_function, shift_function
from switchsum.switch.ir import Op
from switchsum.switch.passes.analysis import is_wide
from switchsum.switch.passes.repeat import PERIODS, period_of
from switchsum.switch.state import WIDE_BITS

Region = tuple[str, int]
"""Memory that does not keep what it has: ("register", number), ("field", slot), its own bytes, or a temporary's."""

_TEMPORARY: Region = ("temporary", 0)
"""Memory of the function's own, gone with it."""

_BITWISE = {Op.AND: "and", Op.OR: "or", Op.XOR: "xor"}


@dataclass(eq=False, slots=True)
class Node:
    """How a wide value is made; equal ones are one object within a block."""

    size: int
    """Bytes."""
    form: tuple[object, ...]
    """As in `Shape`, with nodes for numbers."""
    value: Value = None
    """Address of a memory node, word of a splat, bit of a condition."""
    region: Region | None = None
    """What a memory node's bytes belong to, if they may change."""

    def parts(self) -> list[Node]:
        """Return the nodes that this one is made of."""
        return [part for part in self.form if isinstance(part, Node)]


class WideFields:
    """The wide fields of one block; `integer_of` gives an expression's value as an LLVM integer."""

    def __init__(self, emitter: Emitter, fields: Fields, integer_of: Callable[[ir.Expr], Value]) -> None:
        self._emit = emitter
        self._fields = fields
        self._integer_of = integer_of
        self._pending: dict[int, Node] = {}
        self._nodes: dict[tuple[object, ...], Node] = {}
        self._words: dict[int, Node] = {}

    def node(self, value: ir.Expr) -> Node:
        """Return how an expression of whole bytes is made."""
        size = value.width // 8
        match value:
            case ir.Field(_, slot) if is_wide(self._emit.program, slot):
                return self._field(slot)
            case ir.Const(width, number):
                return self._constant(number, width)
            case ir.Repeat(_, inner) if inner.width in PERIODS:
                return self._splat(size, inner)
            case ir.Binary(_, op, left, right) if op in _BITWISE:
                return self._made(size, (_BITWISE[op], self.node(left), self.node(right)))
            case ir.AddLanes(_, lane, left, right) if lane in PERIODS:
                return self._made(size, ("add", lane, self.node(left), self.node(right)))
            case ir.Select(_, condition, then, other):
                test = Node(size, ("condition",), self._integer_of(condition))
                return self._made(size, ("select", test, self.node(then), self.node(other)))
            case ir.Binary(_, Op.ADD | Op.SUB as op, left, right) if size > LOOP_BYTES and size % LIMB_BYTES == 0:
                target = self._temporary(size)
                function = carry_function(self._emit.unit, op is Op.SUB, size)
                self._emit.build.call(function, [target, self.address(left), self.address(right)])
                return self.memory(size, target, _TEMPORARY)
            case ir.Binary(_, Op.SHR, left, right) if (
                size > LOOP_BYTES and size % LIMB_BYTES == 0 and right.width <= 64
            ):
                target, amount = self._temporary(size), self._emit.resize(self._integer_of(right), 64)
                self._emit.build.call(shift_function(self._emit.unit, size), [target, self.address(left), amount])
                return self.memory(size, target, _TEMPORARY)
        return self.from_integer(self._integer_of(value))

    def from_integer(self, value: Value) -> Node:
        """Return the node of an integer of whole bytes."""
        target = self._temporary(value.type.width // 8)
        self._emit.store_network(value, target)
        return self.memory(value.type.width // 8, target, _TEMPORARY)

    def memory(self, size: int, address: Value, region: Region | None = None) -> Node:
        """Return the node of bytes in memory."""
        return Node(size, ("memory",), address, region)

    def assign(self, slot: int, node: Node) -> None:
        """Note a field's new value."""
        self._pending[slot] = node

    def forget(self, slot: int) -> None:
        """Take note that a narrow field has changed."""
        self._words.pop(slot, None)

    def select(self, slot: int, condition: Value, node: Node) -> None:
        """Note a field's new value, which it has only under a condition."""
        test = Node(node.size, ("condition",), condition)
        self._pending[slot] = self._made(node.size, ("select", test, node, self._field(slot)))

    def zero(self, slot: int) -> Node:
        """Return a zero as wide as a field."""
        return self._constant(0, self._emit.program.fields[slot].width)

    def address(self, value: ir.Expr) -> Value:
        """Return the address of an expression's bytes; they may change with what comes after."""
        node = self.node(value)
        if node.form == ("memory",):
            return node.value
        target = self._temporary(node.size)
        self._compute([(target, node)])
        return target

    def differ(self, left: ir.Expr, right: ir.Expr) -> Value:
        """Return whether two values of equal width differ, as a bit."""
        a, b = self.node(left), self.node(right)
        is_zero = b.form[0] == "constant" and not b.form[2]
        difference = a if is_zero else self._made(a.size, ("xor", a, b))
        shape, arguments = _shape(difference.size, [difference], [])
        return self._emit.build.call(kernel(self._emit.unit, shape), arguments)

    def integer(self, slot: int) -> Value:
        """Return a wide field as an LLVM integer."""
        size = self._emit.program.fields[slot].width // 8
        return self._emit.load_network(self._emit.own_copy(self.address(ir.Field(8 * size, slot)), size), size)

    def slice(self, slot: int, shift: int, width: int) -> Value:
        """Return some bits of a wide field, the lowest of which is number `shift`."""
        total = self._emit.program.fields[slot].width
        offset = total - shift - width
        first, last = offset // 8, (offset + width + 7) // 8
        start = self._emit.at(self.address(ir.Field(total, slot)), first)
        return self._emit.load_bits(self._emit.own_copy(start, last - first), offset % 8, width)

    def write(self, address: Value, node: Node, region: Region, live: set[int]) -> None:
        """Write a value into memory of `region`; `live`: fields that are read afterwards."""
        self._settle({region}, live, [(address, node)])

    def finish(self, live: set[int], overwritten: set[int]) -> None:
        """Compute what is live at a block's end; `overwritten`: registers that may be written after it."""
        stay = {}
        for slot, node in self._pending.items():
            if slot in live:
                if node.region == ("field", slot):
                    continue
                fixed = node.region is None or (node.region[0] == "register" and node.region[1] not in overwritten)
                if node.form == ("memory",) and fixed:
                    self._fields.set_pointer(slot, node.value)
                elif node.form[0] == "constant":
                    self._fields.set_pointer(slot, self._constant_address(node))
                else:
                    stay[slot] = node
        self._pending = stay
        self._settle(set(), set(stay), [], all_pending=True)
        self._pending = {}

    def _field(self, slot: int) -> Node:
        if slot not in self._pending:
            size = self._emit.program.fields[slot].width // 8
            self._pending[slot] = self.memory(size, self._fields.pointer(slot), ("field", slot))
        return self._pending[slot]

    def _settle(
        self, changing: set[Region], live: set[int], outputs: list[tuple[Value, Node]], all_pending: bool = False
    ) -> None:
        """Compute the live fields whose values hang on memory that is about to change, together with `outputs`."""
        chosen: dict[int, Node] = {}
        if all_pending:
            chosen = dict(self._pending)
            changing = {("field", slot) for slot in chosen}
        progress = True
        while progress:
            progress = False
            for slot, node in self._pending.items():
                if slot in live and slot not in chosen and _hangs_on(node, changing) and node.region != ("field", slot):
                    chosen[slot] = node
                    changing = changing | {("field", slot)}
                    progress = True
        targets = {slot: self._fields.own_bytes(slot) for slot in chosen}
        self._compute(outputs + [(targets[slot], node) for slot, node in chosen.items()])
        for slot, target in targets.items():
            self._fields.set_pointer(slot, target)
            self._pending[slot] = self.memory(chosen[slot].size, target, ("field", slot))
        for slot in [slot for slot in self._pending if slot not in chosen]:
            node = self._pending[slot]
            if node.region != ("field", slot) and _hangs_on(node, changing):
                del self._pending[slot]  # nobody reads it any more

    def _compute(self, outputs: Iterable[tuple[Value, Node]]) -> None:
        """Compute values into memory, those of equal size in one kernel."""
        by_size: dict[int, list[tuple[Value, Node]]] = {}
        for address, node in outputs:
            by_size.setdefault(node.size, []).append((address, node))
        for size, group in by_size.items():
            shape, arguments = _shape(size, [node for _, node in group], [address for address, _ in group])
            self._emit.build.call(kernel(self._emit.unit, shape), arguments)

    def _made(self, size: int, form: tuple[object, ...]) -> Node:
        key = (size, *form)
        if key not in self._nodes:
            self._nodes[key] = Node(size, form)
        return self._nodes[key]

    def _splat(self, size: int, word: ir.Expr) -> Node:
        key = word.slot if isinstance(word, ir.Field) else None
        if key is None or key not in self._words:
            made = Node(size, ("splat", word.width), self._integer_of(word))
            if key is None:
                return made
            self._words[key] = made
        return replace(self._words[key], size=size)

    def _constant(self, number: int, width: int) -> Node:
        period = period_of(number, width)
        if period is None:
            return self.memory(width // 8, self._emit.unit.constant_bytes(number.to_bytes(width // 8, "big")))
        return self._made(width // 8, ("constant", period, number & ((1 << period) - 1)))

    def _constant_address(self, node: Node) -> Value:
        _, period, word = node.form
        assert isinstance(period, int)
        assert isinstance(word, int)
        if not word:
            return self._emit.context_word(self._fields.packet.context, ZEROS)
        return self._emit.unit.constant_bytes(word.to_bytes(period // 8, "big") * (8 * node.size // period))

    def _temporary(self, size: int) -> Value:
        return self._emit.stack(BYTE, size, ALIGN)


def is_wide_value(value: ir.Expr) -> bool:
    """Return whether a value is better kept in memory: wide fields and what vectors make of them."""
    if value.width < WIDE_BITS or value.width % 8:
        return False
    match value:
        case ir.Binary(_, op, left, right):
            return op in _BITWISE and (is_wide_value(left) or is_wide_value(right))
        case ir.Select(_, _, then, other):
            return is_wide_value(then) or is_wide_value(other)
        case ir.AddLanes(_, lane):
            return lane in PERIODS
        case ir.Repeat(_, inner):
            return inner.width in PERIODS
    return isinstance(value, ir.Field)


def _hangs_on(node: Node, regions: set[Region]) -> bool:
    if node.region is not None and node.region in regions:
        return True
    return any(_hangs_on(part, regions) for part in node.parts())


def _shape(size: int, results: list[Node], targets: list[Value]) -> tuple[Shape, list[Value]]:
    """Return a kernel's shape and its arguments; without targets it tests the one result."""
    numbers: dict[object, int] = {}
    forms: list[tuple[object, ...]] = []
    arguments = list(targets)

    def number(node: Node) -> int:
        key: object = (node.form, id(node.value)) if node.value is not None else node
        if key not in numbers:
            form = tuple(number(part) if isinstance(part, Node) else part for part in node.form)
            numbers[key] = len(forms)
            forms.append(form)
            if node.value is not None:
                arguments.append(node.value)
        return numbers[key]

    outputs = tuple(number(node) for node in results)
    return Shape(size, tuple(forms), outputs if targets else ()), arguments

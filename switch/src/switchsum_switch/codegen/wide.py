"""Wide fields (128 bits and more) within one block: assignments are delayed, and then computed together in few loops.

The problem: a program that adds a chunk of 64 lanes does so in some ten statements on fields of 2,048 bits: read a
register, mask, add, compare, write.  Computed one by one, each would be a loop over 256 bytes that loads and stores
every intermediate value.

The idea: an assignment only notes *how* the value is made of bytes in memory, as a graph of `WideNode`s.  A value is
computed when it must be:

- when the bytes that it is made of are about to change (`_compute_due` with the regions that change);
- when it is written to a register (`write`) or its bytes are needed (`address`, `integer`, `slice`);
- when the block ends and the field is live (`finish`).

All values that are due at the same time and have the same size share one kernel (`vectors.py`), so that an input is
loaded once for all of them.  A field that is not live is never computed.  A value that is other memory as it is, such
as a header in the frame or a register's cell, is not copied at all: the field's pointer is set to it.

Why it is right: a node refers to memory by its *region*, one for each register and each field's own storage.  Before a
statement changes memory of a region, every live field whose node depends on that region is computed into the field's
storage.  That changes another region, the field's storage, on which further nodes may depend, and so on: `_compute_due`
repeats until nothing is added.  A kernel loads before it stores (piece by piece), so that all of these can run in one.

Example, for a block in P4 with the register `sums` (64 lanes, `low` and `top` masks)::

    sums.read(old, i);       old -> memory of region ("register", 0)
    sum = ((old & low) + (new & low)) ^ ((old ^ new) & top);        sum -> a graph of nodes, nothing is computed
    sums.write(i, sum);      one kernel: loads old and new, stores the cell and, since it is read later, sum's storage
    hdr.lanes.c0 = sum;      c0 -> memory of sum's storage
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from ..program import ir
from ..program.ir import Op
from ..program.passes.analysis import is_wide
from ..program.passes.repeat import PERIODS, period_of
from ..state.state import WIDE_BITS
from .emitter import BYTE, Emitter, Fields, Value
from .layout import ALIGN, ZEROS
from .limbs import LIMB_BYTES, LOOP_BYTES, carry_function, shift_function
from .vectors import Shape, kernel

Region = tuple[str, int]
"""Memory whose content may change: ("register", number), a field's storage ("field", slot), or a temporary's."""

_TEMPORARY: Region = ("temporary", 0)
"""Memory on the function's stack, which ends with the function."""

_BITWISE = {Op.AND: "and", Op.OR: "or", Op.XOR: "xor"}


@dataclass(eq=False, slots=True)
class WideNode:
    """How a wide value is made.  Within a block, nodes that are made alike are one object, and computed once."""

    size: int
    """Bytes of the value."""
    form: tuple[object, ...]
    """As a node of `Shape`, with `WideNode`s in the place of numbers."""
    value: Value = None
    """The address of a memory node, the word of a splat, the bit of a condition."""
    region: Region | None = None
    """The region of a memory node's bytes; None if they never change."""

    def parts(self) -> list[WideNode]:
        """Return the nodes that this node uses."""
        return [part for part in self.form if isinstance(part, WideNode)]


class WideFields:
    """The wide fields of one block; `integer_of` computes an expression as an LLVM integer."""

    def __init__(self, emitter: Emitter, fields: Fields, integer_of: Callable[[ir.Expr], Value]) -> None:
        self._emit = emitter
        self._fields = fields
        self._integer_of = integer_of
        self._pending: dict[int, WideNode] = {}
        """By slot: the value of each field that was read or assigned in this block."""
        self._nodes: dict[tuple[object, ...], WideNode] = {}
        """By form: the nodes that were made, so that equal ones are one object."""
        self._words: dict[int, WideNode] = {}
        """By slot: the splat of each narrow field that was repeated, until the field changes (`forget`)."""

    def node(self, value: ir.Expr) -> WideNode:
        """Return the node of an expression, which must have whole bytes."""
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
                test = WideNode(size, ("condition",), self._integer_of(condition))
                return self._made(size, ("select", test, self.node(then), self.node(other)))
            # Operations with a carry cannot be delayed: they are computed at once, into temporary memory.
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

    def from_integer(self, value: Value) -> WideNode:
        """Store an integer, which must have whole bytes, and return the node of that memory."""
        target = self._temporary(value.type.width // 8)
        self._emit.store_network(value, target)
        return self.memory(value.type.width // 8, target, _TEMPORARY)

    def memory(self, size: int, address: Value, region: Region | None = None) -> WideNode:
        """Return the node of bytes in memory."""
        return WideNode(size, ("memory",), address, region)

    def assign(self, slot: int, node: WideNode) -> None:
        """Note the new value of a field."""
        self._pending[slot] = node

    def forget(self, slot: int) -> None:
        """Note that a narrow field has changed."""
        self._words.pop(slot, None)

    def select(self, slot: int, condition: Value, node: WideNode) -> None:
        """Note a new value of a field that it gets only if a condition holds."""
        test = WideNode(node.size, ("condition",), condition)
        self._pending[slot] = self._made(node.size, ("select", test, node, self._field(slot)))

    def zero(self, slot: int) -> WideNode:
        """Return a zero of the width of a field."""
        return self._constant(0, self._emit.program.fields[slot].width)

    def address(self, value: ir.Expr) -> Value:
        """Return the address of an expression's bytes; a later statement may change them."""
        node = self.node(value)
        if node.form == ("memory",):
            return node.value
        target = self._temporary(node.size)
        self._compute([(target, node)])
        return target

    def differ(self, left: ir.Expr, right: ir.Expr) -> Value:
        """Return whether two values of equal width differ, as a bit."""
        # A comparison with 0 needs no exclusive or.
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
        """Return `width` bits of a wide field, from bit number `shift` on."""
        total = self._emit.program.fields[slot].width
        offset = total - shift - width
        first, last = offset // 8, (offset + width + 7) // 8
        start = self._emit.at(self.address(ir.Field(total, slot)), first)
        return self._emit.load_bits(self._emit.own_copy(start, last - first), offset % 8, width)

    def write(self, address: Value, node: WideNode, region: Region, live: set[int]) -> None:
        """Write a value to memory of `region`; `live`: fields that are read afterwards."""
        self._compute_due({region}, live, [(address, node)])

    def finish(self, live: set[int], overwritten: set[int]) -> None:
        """Compute the live fields at the end of a block; `overwritten`: registers that may be written after it."""
        # A field that is memory which nobody will change needs a pointer only, as does a constant.  All others are
        # computed into their storage, where later blocks and graphs find them.
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
        self._compute_due(set(), set(stay), [], all_pending=True)
        self._pending = {}

    def _field(self, slot: int) -> WideNode:
        if slot not in self._pending:
            size = self._emit.program.fields[slot].width // 8
            self._pending[slot] = self.memory(size, self._fields.pointer(slot), ("field", slot))
        return self._pending[slot]

    def _compute_due(
        self, changing: set[Region], live: set[int], outputs: list[tuple[Value, WideNode]], all_pending: bool = False
    ) -> None:
        """Compute the live fields that depend on memory which is about to change, together with `outputs`."""
        # `chosen` grows until it is closed: to compute a field changes that field's storage, on which others may
        # depend.
        chosen: dict[int, WideNode] = {}
        if all_pending:
            chosen = dict(self._pending)
            changing = {("field", slot) for slot in chosen}
        progress = True
        while progress:
            progress = False
            for slot, node in self._pending.items():
                own = ("field", slot)
                if slot in live and slot not in chosen and node.region != own and _depends_on(node, changing):
                    chosen[slot] = node
                    changing = changing | {own}
                    progress = True
        targets = {slot: self._fields.own_bytes(slot) for slot in chosen}
        self._compute(outputs + [(targets[slot], node) for slot, node in chosen.items()])
        for slot, target in targets.items():
            self._fields.set_pointer(slot, target)
            self._pending[slot] = self.memory(chosen[slot].size, target, ("field", slot))
        for slot in [slot for slot in self._pending if slot not in chosen]:
            node = self._pending[slot]
            if node.region != ("field", slot) and _depends_on(node, changing):
                del self._pending[slot]  # the field is not live, and its inputs are gone

    def _compute(self, outputs: Iterable[tuple[Value, WideNode]]) -> None:
        """Compute values into memory; values of equal size share one kernel."""
        by_size: dict[int, list[tuple[Value, WideNode]]] = {}
        for address, node in outputs:
            by_size.setdefault(node.size, []).append((address, node))
        for size, group in by_size.items():
            shape, arguments = _shape(size, [node for _, node in group], [address for address, _ in group])
            self._emit.build.call(kernel(self._emit.unit, shape), arguments)

    def _made(self, size: int, form: tuple[object, ...]) -> WideNode:
        key = (size, *form)
        if key not in self._nodes:
            self._nodes[key] = WideNode(size, form)
        return self._nodes[key]

    def _splat(self, size: int, word: ir.Expr) -> WideNode:
        key = word.slot if isinstance(word, ir.Field) else None
        if key is None or key not in self._words:
            made = WideNode(size, ("splat", word.width), self._integer_of(word))
            if key is None:
                return made
            self._words[key] = made
        return replace(self._words[key], size=size)

    def _constant(self, number: int, width: int) -> WideNode:
        period = period_of(number, width)
        if period is None:
            return self.memory(width // 8, self._emit.unit.constant_bytes(number.to_bytes(width // 8, "big")))
        return self._made(width // 8, ("constant", period, number & ((1 << period) - 1)))

    def _constant_address(self, node: WideNode) -> Value:
        _, period, word = node.form
        assert isinstance(period, int)
        assert isinstance(word, int)
        if not word:
            return self._emit.context_word(self._fields.packet.context, ZEROS)
        return self._emit.unit.constant_bytes(word.to_bytes(period // 8, "big") * (8 * node.size // period))

    def _temporary(self, size: int) -> Value:
        return self._emit.stack(BYTE, size, ALIGN)


def is_wide_value(value: ir.Expr) -> bool:
    """Return whether a value should be computed in memory: wide fields, and operations that kernels have."""
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


def _depends_on(node: WideNode, regions: set[Region]) -> bool:
    """Return whether a node depends on memory of one of the regions."""
    if node.region is not None and node.region in regions:
        return True
    return any(_depends_on(part, regions) for part in node.parts())


def _shape(size: int, results: list[WideNode], targets: list[Value]) -> tuple[Shape, list[Value]]:
    """Return the shape of a kernel that computes `results`, and its arguments; without targets it tests one result."""
    numbers: dict[object, int] = {}
    forms: list[tuple[object, ...]] = []
    arguments = list(targets)

    def number(node: WideNode) -> int:
        key: object = (node.form, id(node.value)) if node.value is not None else node
        if key not in numbers:
            form = tuple(number(part) if isinstance(part, WideNode) else part for part in node.form)
            numbers[key] = len(forms)
            forms.append(form)
            if node.value is not None:
                arguments.append(node.value)
        return numbers[key]

    outputs = tuple(number(node) for node in results)
    return Shape(size, tuple(forms), outputs if targets else ()), arguments

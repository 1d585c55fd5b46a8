"""The parser: states become blocks, and selects become chains of branches.

The parser may end early: a packet that is too short, a full header stack or `verify` sets `parser_error` and ends the
graph.  Ingress runs all the same, as in BMv2; the program may look at the error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...messages.matches import MatchKind
from ...state.tables import ActionSpec, KeySpec, TableSpec
from ...state.value_sets import MEMBER
from .. import ir, model
from ..graph import GraphBuilder
from ..ir import Op, Relation
from ..model import refusal
from .actions import lower_primitive
from .bodies import each_member, is_of_member
from .expressions import Scope, leaf, low_bits, resize, truth, unsigned
from .symbols import HIDDEN, VARIABLE, Symbols

_INVALID_ADVANCE = "ParserInvalidArgument"
_NO_ERROR = "NoError"
_STACK_FULL = "StackOutOfBounds"
_TOO_LONG = "HeaderTooShort"
OPERATIONS: Final = frozenset({"extract", "extract_VL", "set", "advance", "verify"})
"""Operations that parsers alone have."""
PARTS_OF_STATES: Final = {
    *("", "error", "select", "taken", "free", "extracted", "verified", "advance", "advanced", "variable"),
    *("copied", "member", "members"),
}
"""Last parts of the names of blocks that begin no state; the block in front of the first state has no name."""


@dataclass(frozen=True, slots=True)
class _Extraction:
    """An extraction: where it stands, and the length of the variable field, if the header has one."""

    scope: Scope
    state: str
    length: model.Operand | None


class ParserLowering:
    """Lowers one parser; a case of a select that is a value set becomes a table whose entries are the members."""

    def __init__(self, symbols: Symbols, parser: model.Parser, tables: list[ir.TableInfo]) -> None:
        """Lower `parser`; tables of value sets are appended to `tables`."""
        self._symbols = symbols
        self._tables = tables
        self.value_sets: dict[str, list[int]] = {name: [] for name in symbols.value_sets}
        """For each value set, the numbers of its tables, one for each select that uses it."""
        self._parser = parser
        self._builder = GraphBuilder()
        self._accept = 0
        self._states: dict[str, int] = {}

    def lower(self) -> ir.Graph:
        """Return the parser's graph."""
        entry = self._builder.new("")
        self._accept = self._builder.add("accept", [], ir.End())
        self._states = {state.name: self._builder.new(state.name) for state in self._parser.states}
        self._builder.fill(entry, self._no_error(), ir.Jump(self._block(self._parser.start)))
        for state in self._parser.states:
            self._state(state)
        return self._builder.finish()

    def _no_error(self) -> list[ir.Statement]:
        """Begin with the number that the program has for NoError; metadata is 0, unless a field list has kept it."""
        symbols = self._symbols
        slot, number = symbols.intrinsics.parser_error, symbols.error(_NO_ERROR)
        if not number and not any(slot in kept for kept in symbols.field_lists):
            return []
        width = symbols.fields[slot].width
        return [ir.Assign(slot, ir.Const(width, number & ((1 << width) - 1)))]

    def _block(self, name: str | None) -> int:
        if name is None:
            return self._accept
        if name not in self._states:
            raise refusal(f"not a BMv2 program: the parser has no state {name}", None)
        return self._states[name]

    def _state(self, state: model.ParserState) -> None:
        block = self._states[state.name]
        statements: list[ir.Statement] = []
        for operation in state.operations:
            scope = Scope(self._symbols, (), operation.source or state.source)
            # An operation that may branch ends the block; what follows goes into a new one.
            match operation.operation, operation.operands:
                case "extract" | "extract_VL", (extracted, *length):
                    part = _Extraction(scope, state.name, length[0] if length else None)
                    block, statements = self._extract(part, block, statements, extracted)
                case "set", (target, value):
                    statements += _require_peeked(value)
                    assign = model.Primitive(operation="assign", operands=(target, value), source=operation.source)
                    statements += lower_primitive(scope, assign)
                case "advance", (amount,):
                    block = self._advance(scope, state, block, statements, amount)
                    statements = []
                case "verify", (condition, error):
                    fine = self._builder.new(f"{state.name}.verified")
                    wrong = self._fail(low_bits(scope, error, 32))
                    self._builder.fill(block, statements, ir.Branch(truth(scope, condition), fine, wrong))
                    block, statements = fine, []
                case _ if is_of_member(operation):
                    after = self._builder.new(f"{state.name}.copied")
                    chosen = each_member(self._builder, scope, operation, state.name, after)
                    self._builder.fill(block, statements, ir.Jump(chosen))
                    block, statements = after, []
                case _:
                    statements += lower_primitive(scope, operation)
        self._select(state, block, statements)

    def _fail(self, error: ir.Expr) -> int:
        """Make a block that ends the parser with an error."""
        slot = self._symbols.intrinsics.parser_error
        value = resize(error, self._symbols.fields[slot].width)
        return self._builder.add("error", [ir.Assign(slot, value)], ir.End())

    def _extract(
        self, part: _Extraction, block: int, statements: list[ir.Statement], extracted: model.Operand
    ) -> tuple[int, list[ir.Statement]]:
        """Extract into a header or the next header of a stack; return the block that follows, and what it has."""
        match extracted:
            case model.Named("header", name):
                return self._extract_header(part, block, statements, self._symbols.header(name))
            case model.Named("header_stack", stack):
                return self._extract_next(part, block, statements, stack, self._symbols.stack(stack)), []
            case model.NextUnion(stack, name):
                return self._extract_next(part, block, statements, stack, self._symbols.parts(stack, name)), []
        raise part.scope.refuse(f"extracting {extracted}")

    def _extract_header(
        self, part: _Extraction, block: int, statements: list[ir.Statement], header: int
    ) -> tuple[int, list[ir.Statement]]:
        """Extract into a header.  That of a variable field may be an error; the order of the errors is BMv2's."""
        symbols, info = self._symbols, self._symbols.headers[header]
        if (info.variable is None) != (part.length is None):
            raise part.scope.refuse(f"extracting {info.name} {'without' if part.length is None else 'with'} a length")
        if info.variable is None or part.length is None:
            return block, [*statements, ir.Extract(header)]
        bits = symbols.field(symbols.slot(HIDDEN, VARIABLE))
        fixed = ir.Const(40, info.width - symbols.fields[info.variable].width)
        whole, enough, fits = (self._builder.new(f"{part.state}.variable") for _ in range(3))
        wrong, long = (self._fail(ir.Const(32, symbols.error(name))) for name in (_INVALID_ADVANCE, _TOO_LONG))
        # The length is computed once: its operands may be bits ahead, or fields of the header itself.
        statements = [
            *statements,
            *_require_peeked(part.length),
            ir.Assign(bits.slot, low_bits(part.scope, part.length, 32)),
        ]
        is_whole = ir.Compare(Relation.EQ, resize(bits, 3), ir.Const(3, 0))
        self._builder.fill(block, statements, ir.Branch(is_whole, whole, wrong))
        needed = ir.Require(ir.Binary(40, Op.ADD, fixed, resize(bits, 40)))
        self._builder.fill(whole, [needed], ir.Jump(enough))
        most = ir.Const(32, symbols.most_variable_bits(header))
        self._builder.fill(enough, [], ir.Branch(ir.Compare(Relation.LE, bits, most), fits, long))
        return fits, [ir.Extract(header, bits)]

    def _extract_next(
        self,
        part: _Extraction,
        block: int,
        statements: list[ir.Statement],
        stack: str,
        headers: Sequence[int],
    ) -> int:
        """Extract into the first free of a stack's headers (`stack.next`): a branch for each value of the index."""
        count = self._symbols.field(self._symbols.next_slot(stack))
        after = self._builder.new(f"{part.state}.extracted")
        for position, header in enumerate(headers):
            taken, chosen = self._builder.new(f"{part.state}.taken"), self._builder.new(f"{part.state}.free")
            last, extract = self._extract_header(part, chosen, [], header)
            step = ir.Assign(count.slot, ir.Const(32, position + 1))
            self._builder.fill(last, [*extract, step], ir.Jump(after))
            is_free = ir.Compare(Relation.EQ, count, ir.Const(32, position))
            self._builder.fill(block, statements, ir.Branch(is_free, chosen, taken))
            block, statements = taken, []
        full = self._fail(ir.Const(32, self._symbols.error(_STACK_FULL)))
        self._builder.fill(block, [], ir.Jump(full))
        return after

    def _advance(
        self,
        scope: Scope,
        state: model.ParserState,
        block: int,
        statements: list[ir.Statement],
        amount: model.Operand,
    ) -> int:
        bits = unsigned(scope, amount)
        statements = [*statements, *_require_peeked(amount)]
        whole = self._builder.new(f"{state.name}.advance")
        after = self._builder.new(f"{state.name}.advanced")
        # The cursor counts bytes: `advance` by bits that are no whole bytes is an error of the parser, as in BMv2.
        if bits.width < 3:
            raise scope.refuse("advancing by less than a byte")
        is_whole = ir.Compare(Relation.EQ, resize(bits, 3), ir.Const(3, 0))
        wrong = self._fail(ir.Const(32, self._symbols.error(_INVALID_ADVANCE)))
        self._builder.fill(block, statements, ir.Branch(is_whole, whole, wrong))
        self._builder.fill(whole, [ir.Require(bits), ir.Advance(bits)], ir.Jump(after))
        return after

    def _select(self, state: model.ParserState, block: int, statements: list[ir.Statement]) -> None:
        scope = Scope(self._symbols, (), state.source)
        # A select that looks ahead of the packet's end is an error of the parser, and no case of the select.  Each
        # block that looks ahead requires it for itself.
        required = [statement for operand in state.key for statement in _require_peeked(operand)]
        statements = [*statements, *required]
        keys = [self._key(scope, operand) for operand in state.key]
        for transition in state.transitions:
            following = self._block(transition.next_state)
            if transition.value_set is not None:
                otherwise = self._builder.new(f"{state.name}.select")
                table = self._value_set(scope, transition, keys)
                self._builder.fill(block, statements, ir.Apply(table, (following,), (otherwise,)))
                block, statements = otherwise, required
                continue
            if transition.value is None:
                self._builder.fill(block, statements, ir.Jump(following))
                return
            size = sum(8 * ((key.width + 7) // 8) for key in keys)
            if transition.value >> size or (transition.mask or 0) >> size:
                raise refusal(
                    f"not a BMv2 program: a case of state {state.name} has more than {size} bits", state.source
                )
            otherwise = self._builder.new(f"{state.name}.select")
            condition = _case(keys, transition.value, transition.mask)
            self._builder.fill(block, statements, ir.Branch(condition, following, otherwise))
            block, statements = otherwise, required
        self._builder.fill(block, statements, ir.Jump(self._accept))

    def _value_set(self, scope: Scope, transition: model.Transition, keys: list[ir.Expr]) -> int:
        """Make a table for a value set and return its number."""
        name = transition.value_set
        if name not in self.value_sets or transition.mask is not None:
            raise scope.refuse(f"value set {name} with a mask" if name in self.value_sets else f"value set {name}")
        used = self.value_sets[name]
        spec = TableSpec(
            name=f"{name}${len(used)}",
            keys=tuple(
                KeySpec(name=f"{name}.{index}", width=key.width, kind=MatchKind.TERNARY)
                for index, key in enumerate(keys)
            ),
            actions=(ActionSpec(name=MEMBER),),
            size=self._symbols.value_sets[name],
        )
        used.append(len(self._tables))
        self._tables.append(ir.TableInfo(spec=spec, keys=tuple(keys), default=(MEMBER, ()), entries=()))
        return used[-1]

    def _key(self, scope: Scope, operand: model.Operand) -> ir.Expr:
        # A case is compared with the bits of a field, whether these are signed or not.
        is_leaf = isinstance(operand, model.FieldName | model.StackField)
        return leaf(scope, operand) if is_leaf else unsigned(scope, operand)


def _require_peeked(operand: model.Operand) -> list[ir.Statement]:
    """Return Require statements for the bits ahead of the cursor that an operand reads."""
    match operand:
        case model.Peek(offset, width):
            return [ir.Require(ir.Const(32, offset + width))]
        case model.Operation(_, left, right, condition):
            parts = [part for part in (left, right, condition) if part is not None and not isinstance(part, int)]
            return [statement for part in parts for statement in _require_peeked(part)]
    return []


def _case(keys: list[ir.Expr], value: int, mask: int | None) -> ir.Expr:
    """Compare the key's fields with a case, in which they are side by side, each rounded up to whole bytes."""
    condition: ir.Expr | None = None
    shift = sum(8 * ((key.width + 7) // 8) for key in keys)
    for key in keys:
        shift -= 8 * ((key.width + 7) // 8)
        full = (1 << key.width) - 1
        kept = full if mask is None else (mask >> shift) & full
        if not kept:
            continue
        masked = key if kept == full else ir.Binary(key.width, Op.AND, key, ir.Const(key.width, kept))
        equal = ir.Compare(Relation.EQ, masked, ir.Const(key.width, (value >> shift) & kept))
        condition = equal if condition is None else ir.Binary(1, Op.AND, condition, equal)
    return condition if condition is not None else ir.Const(1, 1)

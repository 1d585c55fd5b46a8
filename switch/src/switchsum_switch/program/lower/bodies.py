"""Bodies of actions: from BMv2's jumps to blocks, and from members of stacks that are chosen at run time to branches.

A BMv2 action is a flat list of primitives; `if` within an action is `_jump_if_zero` and `_jump` to a position in that
list.  Each position that is the target of a jump begins a block.  The body of an action is made anew for each table
that uses it, and for hit and miss, since the arguments and the block that follows differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .. import ir, model
from ..graph import GraphBuilder
from .actions import lower_primitive
from .expressions import FALSE, TRUE, Scope, choose, index_of, members, nonzero
from .symbols import Symbols

_OF_HEADERS = {"add_header", "remove_header", "assign_header", "copy_header", "assign_union"}
"""Primitives whose operands may be a member of a stack at an index that is known only at run time."""


class ActionLowering:
    """One use of an action: its body as blocks that end in `following`.

    In BMv2 `exit` sets a flag: the rest of the action runs, and the control ends after it.  (The P4_16 specification,
    "The exit statement", would end it at once.)  The flag is not kept at run time.  Instead a block is made twice if
    necessary, once for each value of the flag, and the copy after an exit ends in `after_exit`.
    """

    def __init__(
        self,
        builder: GraphBuilder,
        symbols: Symbols,
        action: model.Action,
        arguments: Sequence[ir.Expr],
        following: int,
        after_exit: int,
    ) -> None:
        self._builder = builder
        self._symbols = symbols
        self._action = action
        self._arguments = arguments
        self._following = {False: following, True: after_exit}
        self._blocks: dict[tuple[int, bool], int] = {}
        self._targets = {
            operand.value
            for primitive in action.primitives
            if primitive.operation in ("_jump", "_jump_if_zero")
            for operand in primitive.operands[-1:]
            if isinstance(operand, model.Number)
        }

    def entry(self) -> int:
        """Make the blocks and return the number of the first one."""
        return self._block(0, False)

    def _block(self, start: int, exited: bool) -> int:
        if start >= len(self._action.primitives):
            return self._following[exited]
        if (start, exited) not in self._blocks:
            number = self._builder.new(f"{self._action.name}.{start}")
            self._blocks[start, exited] = number
            self._fill(number, start, exited)
        return self._blocks[start, exited]

    def _fill(self, number: int, start: int, exited: bool) -> None:
        # A block ends at a jump, at an exit, or before a position to which another primitive jumps.
        statements: list[ir.Statement] = []
        for position in range(start, len(self._action.primitives)):
            if position in self._targets and position > start:
                self._builder.fill(number, statements, ir.Jump(self._block(position, exited)))
                return
            primitive = self._action.primitives[position]
            scope = Scope(self._symbols, self._arguments, primitive.source or self._action.source)
            match primitive.operation, primitive.operands:
                case "_jump", (model.Number(target),):
                    self._builder.fill(number, statements, ir.Jump(self._block(target, exited)))
                    return
                case "_jump_if_zero", (condition, model.Number(target)):
                    following = self._block(position + 1, exited), self._block(target, exited)
                    self._builder.fill(number, statements, ir.Branch(nonzero(scope, condition), *following))
                    return
                case "exit", ():
                    self._builder.fill(number, statements, ir.Jump(self._block(position + 1, True)))
                    return
                case _ if is_of_member(primitive):
                    after = self._block(position + 1, exited)
                    chosen = each_member(self._builder, scope, primitive, self._action.name, after)
                    self._builder.fill(number, statements, ir.Jump(chosen))
                    return
            statements += lower_primitive(scope, primitive)
        self._builder.fill(number, statements, ir.Jump(self._following[exited]))


def is_of_member(primitive: model.Primitive) -> bool:
    """Return whether a primitive of headers has a member of a stack whose index is known only at run time."""
    return primitive.operation in _OF_HEADERS and _member_among(primitive.operands) is not None


def each_member(builder: GraphBuilder, scope: Scope, primitive: model.Primitive, name: str, after: int) -> int:
    """Make the blocks of such a primitive, and return the first; their names begin with `name`."""
    # One branch for each member; an index beyond the end does nothing.  A copy may have two such members.
    place = _member_among(primitive.operands)
    if place is None:
        return builder.add(f"{name}.member", lower_primitive(scope, primitive), ir.Jump(after))
    index, named = _names(scope, primitive.operands[place])
    following = after
    for position, one in reversed(list(enumerate(named))):
        operands = (*primitive.operands[:place], one, *primitive.operands[place + 1 :])
        chosen = each_member(builder, scope, replace(primitive, operands=operands), name, after)
        if index is None:
            return chosen
        condition = choose(index, [FALSE] * position + [TRUE])
        branch = builder.new(f"{name}.members")
        builder.fill(branch, [], ir.Branch(condition, chosen, following))
        following = branch
    return following


def _member_among(operands: Sequence[model.Operand]) -> int | None:
    """Return the place of the first operand that is no header by name; None if all are."""
    kinds = model.Operation, model.StackField
    return next((place for place, operand in enumerate(operands) if isinstance(operand, kinds)), None)


def _names(scope: Scope, operand: model.Operand) -> tuple[ir.Expr | None, list[model.Named]]:
    """Return the headers or unions that an operand may mean, and the index that chooses one; None: there is one."""
    match operand:
        case model.Operation("dereference_union_stack", model.Named(_, stack), right) if not isinstance(right, int):
            unions = scope.symbols.union_stack(stack)
            return index_of(scope, right), [model.Named("header_union", name) for name in unions]
    index, headers = members(scope, operand)
    return index, [model.Named("header", scope.symbols.headers[header].name) for header in headers]

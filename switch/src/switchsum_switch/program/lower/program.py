"""The whole program: parser, checksum verification, ingress, egress, checksum update, deparser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .. import ir, model
from ..graph import GraphBuilder
from ..ir import Op, Relation
from ..model import refusal
from ..v1model import DROP_PORT, PASSES
from .actions import lower_primitive
from .calculations import hash_of
from .controls import ControlLowering
from .endless import bound_loops
from .expressions import Scope, resize, truth
from .parser import ParserLowering
from .symbols import Symbols

MAX_BLOCKS: Final = 8192
"""Most blocks of one graph.  LLVM takes some seconds for this many, and more than twice as long for twice as many."""


def lower(program: model.Bmv2Program, drop_port: int = DROP_PORT, queues: int = 1, passes: int = PASSES) -> ir.Program:
    """Return the IR of a program; raises ProgramError if it uses a feature that is not supported."""
    symbols = Symbols(program, drop_port)
    controls = ControlLowering(symbols, program.actions)
    parsing = ParserLowering(symbols, program.parser, controls.tables)
    parser = parsing.lower()
    ingress = controls.lower(program.ingress, tuple(program.learn_lists.values()))
    egress = controls.lower(program.egress, restores=True)
    for name, graph in (("parser", parser), ("ingress", ingress), ("egress", egress)):
        if len(graph) > MAX_BLOCKS:
            what = f"{len(graph)} states, cases, branches and actions in the {name}"
            raise refusal(f"{what} are not supported, but {MAX_BLOCKS}", None)
    made = ir.Program(
        headers=tuple(symbols.headers),
        fields=tuple(symbols.fields),
        tables=tuple(controls.tables),
        fixed_tables=tuple(controls.fixed_tables),
        registers=symbols.registers,
        counters=symbols.counters,
        meters=symbols.meters,
        profiles=controls.profiles,
        digests=tuple(controls.digests),
        value_sets=tuple((name, tuple(tables)) for name, tables in parsing.value_sets.items()),
        intrinsics=symbols.intrinsics,
        parser=parser,
        verify=_checksums(symbols, [checksum for checksum in program.checksums if checksum.verify], True),
        ingress=ingress,
        egress=egress,
        update=_checksums(
            symbols, [checksum for checksum in program.checksums if checksum.update], False, program.deparsing
        ),
        field_lists=symbols.field_lists,
        stack_counts=symbols.stack_counts,
        deparser=tuple(symbols.header(name) for name in program.deparser),
        too_short=program.errors["PacketTooShort"],
        drop_port=drop_port,
        passes=passes,
        queues=queues,
    )
    return bound_loops(made, symbols.error("ParserTimeout"))


def _checksums(
    symbols: Symbols, checksums: Sequence[model.Checksum], verify: bool, further: Sequence[model.Primitive] = ()
) -> ir.Graph:
    """Verify or update checksums one after the other, each only if its header is valid and its condition holds.

    Then the `further` steps follow.
    """
    builder = GraphBuilder()
    block = builder.new("checksums")
    for checksum in checksums:
        scope = Scope(symbols, (), checksum.source)
        target = symbols.field(symbols.slot(checksum.target.header, checksum.target.field))
        if not symbols.has_bits(target.slot):
            raise scope.refuse(f"a checksum in {checksum.target.header}.{checksum.target.field}, which has no bits,")
        header = symbols.fields[target.slot].header
        condition: ir.Expr = truth(scope, checksum.condition) if checksum.condition else ir.Const(1, 1)
        if not symbols.headers[header].metadata:
            condition = ir.Binary(1, Op.AND, condition, ir.Valid(header))
        before, value = hash_of(scope, checksum.calculation)
        if verify:
            # One wrong checksum is enough: the error bit stays set.
            error = symbols.field(symbols.intrinsics.checksum_error)
            width = max(value.width, target.width)
            wrong = ir.Compare(Relation.NE, resize(value, width), resize(target, width))
            step = ir.Assign(error.slot, ir.Binary(error.width, Op.OR, error, resize(wrong, error.width)))
        else:
            step = ir.Assign(target.slot, resize(value, target.width))
        after = builder.new("checksums")
        applied = builder.add(checksum.calculation, [*before, step], ir.Jump(after))
        builder.fill(block, [], ir.Branch(condition, applied, after))
        block = after
    scopes = ((Scope(symbols, (), step.source), step) for step in further)
    builder.fill(block, [made for scope, step in scopes for made in lower_primitive(scope, step)], ir.End())
    return builder.finish()

"""What a program says about packets is for traces, which the interpreter makes: native code has nothing of it."""

from __future__ import annotations

from dataclasses import replace

from .. import ir
from .rewrite import map_graphs


def leave_out_remarks(program: ir.Program) -> ir.Program:
    """Return a program without the statements that only traces show."""

    def block(old: ir.Block) -> ir.Block:
        kept = tuple(one for one in old.statements if not isinstance(one, ir.Say | ir.Claim))
        return old if len(kept) == len(old.statements) else replace(old, statements=kept)

    return map_graphs(program, lambda graph: tuple(map(block, graph)))

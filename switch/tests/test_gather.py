"""Tests of chunk after chunk become one test; what a program does stays (test_codegen_program runs the whole of it)."""

from __future__ import annotations

from collections import Counter

from switchsum.p4src import load
from switchsum_switch.program import ir
from switchsum_switch.program.lower import lower
from switchsum_switch.program.passes import gather_tests
from switchsum_switch.program.passes.rewrite import rebuild_statement
from switchsum_switch.program.reader import read_program
from switchsum_switch.program.v1model import DROP_PORT
from switchsum_switch.program.verify import verify
from switchsum_switch.state.state import WIDE_BITS


def wide_tests(program: ir.Program) -> Counter[str]:
    """Return how many wide values are compared, by block."""
    found: Counter[str] = Counter()
    for block in program.ingress:

        def look(value: ir.Expr, name: str = block.name) -> ir.Expr:
            if isinstance(value, ir.Compare) and value.left.width >= WIDE_BITS:
                found[name] += 1
            return value

        for statement in block.statements:
            rebuild_statement(statement, look)
    return found


def test_the_overflows_of_all_chunks_are_tested_once() -> None:
    program = lower(read_program(load(256).device_config), DROP_PORT, 1)
    before, after = wide_tests(program), wide_tests(verify(gather_tests(program)))
    assert list(before.values()) == [4]
    assert list(after.values()) == [1]
    assert before.keys() == after.keys()

"""No primitive, parser operation or operator ignores an operand: with another one it becomes other statements."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from switchsum_switch.program import ir, model
from switchsum_switch.program.lower.actions import PRIMITIVES, lower_primitive
from switchsum_switch.program.lower.expressions import Scope, low_bits, truth
from switchsum_switch.program.lower.parser import OPERATIONS, ParserLowering
from switchsum_switch.program.lower.symbols import Symbols

IGNORED: Final = {("generate_digest", 0)}
"""Operands that BMv2 ignores, too: the receiver of a digest."""


def _fields(*fields: tuple[str, int], variable: bool = False) -> tuple[model.FieldType, ...]:
    made = [model.FieldType(name=name, width=width) for name, width in fields]
    return (*made, model.FieldType(name="v", width=64, variable=True)) if variable else tuple(made)


HEADER = model.HeaderType(name="h_t", fields=_fields(("x", 8), ("y", 8), ("z", 16)))
VARIABLE = model.HeaderType(name="v_t", fields=_fields(("x", 8), variable=True))
STANDARD = model.HeaderType(
    name="standard_metadata_t",
    fields=_fields(("ingress_port", 9), ("egress_spec", 9), ("mcast_grp", 16), ("x", 8), ("y", 8)),
)
NAMES = ("a", "b", "s[0]", "s[1]", "t[0]", "t[1]", "u.p", "u.q", "w.p", "w.q", "k[0].p", "k[1].p", "l[0].p", "l[1].p")


def _array(name: str, width: int = 0, unit: str = "") -> model.Array:
    return model.Array(name=name, size=4, width=width, direct=False, source=None, unit=unit)


def _nothing(name: str) -> model.Control:
    return model.Control(name=name, start=None, tables=(), conditionals=(), profiles=())


def _calculation(name: str, *inputs: model.Operand) -> model.Calculation:
    return model.Calculation(name=name, algorithm="crc16", inputs=inputs, source=None)


PROGRAM: Final = model.Bmv2Program(
    name="operands",
    headers=(
        *(model.HeaderInstance(name=name, type=HEADER, metadata=False) for name in NAMES),
        *(model.HeaderInstance(name=name, type=VARIABLE, metadata=False) for name in ("v", "v2")),
        *(model.HeaderInstance(name=name, type=STANDARD, metadata=True) for name in ("standard_metadata", "copy")),
    ),
    stacks=tuple(model.HeaderStack(name=name, members=(f"{name}[0]", f"{name}[1]")) for name in "st"),
    unions=(
        *(model.HeaderUnion(name=name, members=(f"{name}.p", f"{name}.q"), parts=("p", "q")) for name in "uw"),
        *(
            model.HeaderUnion(name=f"{name}[{place}]", members=(f"{name}[{place}].p",), parts=("p",))
            for name in "kl"
            for place in (0, 1)
        ),
    ),
    union_stacks=tuple(model.HeaderStack(name=name, members=(f"{name}[0]", f"{name}[1]")) for name in "kl"),
    field_lists={1: (model.FieldName("standard_metadata", "x"),), 2: (model.FieldName("standard_metadata", "y"),)},
    learn_lists={
        number: model.LearnList(name=f"d{number}", elements=(model.FieldName("a", "x"),), source=None)
        for number in (1, 2)
    },
    errors={"NoError": 0, "PacketTooShort": 1, "StackOutOfBounds": 2, "HeaderTooShort": 3, "ParserInvalidArgument": 4},
    parser=model.Parser(start=None, states=()),
    value_sets={},
    deparser=(),
    deparsing=(),
    registers=tuple(_array(name, 8) for name in ("r", "r2")),
    counters=tuple(_array(name) for name in ("c", "c2")),
    meters=tuple(_array(name, unit="bytes") for name in ("m", "m2")),
    calculations=(_calculation("f", model.FieldName("a", "x")), _calculation("g", model.FieldName("a", "y"))),
    checksums=(),
    actions=(),
    ingress=_nothing("ingress"),
    egress=_nothing("egress"),
    externs=(),
    aliases={},
)

X, Y, Z = (model.FieldName("a", name) for name in "xyz")
OTHER = model.FieldName("b", "x")
ONE, TWO = model.Number(1), model.Number(2)


def named(kind: str, *names: str) -> tuple[model.Named, ...]:
    return tuple(model.Named(kind, name) for name in names)


HEADERS, METADATA = named("header", "a", "b", "s[0]"), named("header", "standard_metadata", "copy")
VALUES = (X, Y, ONE)
Choices = tuple[tuple[Any, ...], ...]
COMPUTED: Choices = ((X, OTHER), VALUES, VALUES)

OPERANDS: Final[dict[str, Choices]] = {
    **dict.fromkeys(("assign", "set", "modify_field"), ((X, OTHER), VALUES)),
    "assign_VL": tuple((model.FieldName("v", "v"), model.FieldName("v2", "v")) for _ in range(2)),
    **dict.fromkeys(("add_to_field", "subtract_from_field"), ((X, OTHER), VALUES)),
    **dict.fromkeys(("add", "subtract", "bit_xor", "bit_or", "bit_and", "shift_left", "shift_right"), COMPUTED),
    **dict.fromkeys(("assign_header", "copy_header"), (HEADERS, HEADERS)),
    "assign_union": (named("header_union", "u", "w"),) * 2,
    "assign_header_stack": (named("header_stack", "s", "t"),) * 2,
    "assign_union_stack": (named("header_union_stack", "k", "l"),) * 2,
    **dict.fromkeys(("add_header", "remove_header"), (HEADERS,)),
    **dict.fromkeys(("push", "pop"), (named("header_stack", "s", "t"), (ONE, TWO))),
    "register_read": ((X, OTHER), named("register_array", "r", "r2"), VALUES),
    "register_write": (named("register_array", "r", "r2"), VALUES, VALUES),
    "count": (named("counter_array", "c", "c2"), VALUES),
    "execute_meter": (named("meter_array", "m", "m2"), VALUES, (X, OTHER)),
    "modify_field_rng_uniform": ((X, OTHER), VALUES, VALUES),
    "modify_field_with_hash_based_offset": ((X, OTHER), VALUES, named("calculation", "f", "g"), VALUES),
    **dict.fromkeys(("clone_ingress_pkt_to_egress", "clone_egress_pkt_to_egress"), (VALUES, (ONE, TWO))),
    **dict.fromkeys(("resubmit", "recirculate"), ((ONE, TWO),)),
    "mark_to_drop": (METADATA,),
    "drop": (),
    "truncate": (VALUES,),
    "generate_digest": ((ONE, TWO), (ONE, TWO)),
    "log_msg": (named("string", "one {}", "two {}"), (model.Vector((X,)), model.Vector((Y,)))),
    **dict.fromkeys(("assert", "assume"), ((X, Y),)),
    "no_op": (),
}
"""For each primitive and each of its operands, some that may stand there; the first ones make a whole."""

PARSING: Final[dict[str, Choices]] = {
    "extract": (HEADERS,),
    "extract_VL": (named("header", "v", "v2"), (X, Y)),
    "set": ((X, OTHER), (*VALUES, model.Peek(0, 8), model.Peek(8, 8))),
    "advance": ((model.Number(8), model.Number(16), X),),
    "verify": ((model.Operation("d2b", None, X), model.Operation("d2b", None, Y)), (ONE, TWO)),
}
TRUTHS = tuple(model.Operation("==", X, one) for one in (Y, OTHER))
OPERATORS: Final[dict[str, Choices]] = {
    **dict.fromkeys(("+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>"), (VALUES, VALUES)),
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), (VALUES, VALUES)),
    **dict.fromkeys(("and", "or", "==b", "!=b"), (TRUTHS, TRUTHS)),
    **dict.fromkeys(("==h", "!=h"), (HEADERS, HEADERS)),
    **dict.fromkeys(("==u", "!=u"), (named("header_union", "u", "w"),) * 2),
    **dict.fromkeys(("not", "b2d"), ((None,), TRUTHS)),
    **dict.fromkeys(("~", "d2b"), ((None,), (X, Y))),
    "valid": ((None,), HEADERS),
    "valid_union": ((None,), named("header_union", "u", "w")),
    **dict.fromkeys(("last_stack_index", "size_stack"), ((None,), named("header_stack", "s", "t"))),
    **dict.fromkeys(("two_comp_mod", "sat_cast", "usat_cast"), (VALUES, (model.Number(3), model.Number(4)))),
    "access_field": (HEADERS, (0, 1)),
    "?": ((Y, OTHER), VALUES, TRUTHS),
}


def others(choices: Choices) -> list[tuple[int, tuple[Any, ...]]]:
    """Return operands that differ from the first ones in one place, and the place."""
    first = tuple(some[0] for some in choices)
    return [
        (place, (*first[:place], other, *first[place + 1 :]))
        for place, some in enumerate(choices)
        for other in some[1:]
    ]


def scope() -> Scope:
    return Scope(Symbols(PROGRAM, 511), (), None)


def lowered(operation: str, operands: tuple[Any, ...]) -> list[ir.Statement]:
    return lower_primitive(scope(), model.Primitive(operation=operation, operands=operands, source=None))


def parsed(operation: str, operands: tuple[Any, ...]) -> ir.Graph:
    steps = (model.Primitive(operation=operation, operands=operands, source=None),)
    state = model.ParserState(name="start", operations=steps, key=(), transitions=(), source=None)
    parser = model.Parser(start="start", states=(state,))
    program = replace(PROGRAM, parser=parser)
    return ParserLowering(Symbols(program, 511), parser, []).lower()


def expression(operator: str, operands: tuple[Any, ...]) -> ir.Expr:
    made = model.Operation(operator, *operands)
    is_truth = operator in ("not", "and", "or", "==b", "!=b", "valid", "valid_union", "d2b") or operator[-1] in "hu"
    return (truth if is_truth else lambda scope, operand: low_bits(scope, operand, 16))(scope(), made)


def test_each_primitive_and_parser_operation_has_a_case() -> None:
    assert OPERANDS.keys() == PRIMITIVES.keys()
    assert PARSING.keys() == OPERATIONS


@pytest.mark.parametrize("operation", OPERANDS)
def test_a_primitive_reads_each_operand(operation: str) -> None:
    first = lowered(operation, tuple(some[0] for some in OPERANDS[operation]))
    assert operation == "no_op" or first
    for place, operands in others(OPERANDS[operation]):
        same = lowered(operation, operands) == first
        assert same == ((operation, place) in IGNORED), (place, operands)


@pytest.mark.parametrize("operation", PARSING)
def test_a_parser_operation_reads_each_operand(operation: str) -> None:
    first = parsed(operation, tuple(some[0] for some in PARSING[operation]))
    for place, operands in others(PARSING[operation]):
        assert parsed(operation, operands) != first, (place, operands)


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_operator_reads_each_operand(operator: str) -> None:
    first = expression(operator, tuple(some[0] for some in OPERATORS[operator]))
    for place, operands in others(OPERATORS[operator]):
        assert expression(operator, operands) != first, (place, operands)

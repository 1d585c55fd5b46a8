"""What is no BMv2 program, or needs what this switch lacks, is refused at load with its name and its P4 line."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest

from switchsum_protocol.errors import SwitchsumError
from switchsum_switch.codegen import engine as native_engine
from switchsum_switch.codegen import machine
from switchsum_switch.errors import ProgramError
from switchsum_switch.execution import pipeline
from switchsum_switch.execution.pipeline import EngineName, Pipeline
from switchsum_switch.program import ir, model
from switchsum_switch.program.lower.program import MAX_BLOCKS
from switchsum_switch.state import tables

from .conftest import PROGRAMS

Document = dict[str, Any]
HUGE = "0x" + "f" * 100_000
_CLASSES = [name for module in (model, ir, tables) for name, found in vars(module).items() if isinstance(found, type)]
OBJECTS = re.compile(rf"\b(?:{'|'.join(_CLASSES)})\(|<[\w.]+ object|'\w+':")
"""How Python shows objects, dicts and lists; a reader of a message should meet none."""


@pytest.fixture
def document() -> Document:
    made: Document = json.loads((PROGRAMS / "replication.json").read_text())
    return made


def refusal(document: Document) -> str:
    with pytest.raises(ProgramError) as caught:
        Pipeline.load(json.dumps(document))
    assert isinstance(caught.value, SwitchsumError)
    return str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "null", '"BMv2"', "{}", '{"__meta__": {}}', "\xff", '{"a": 1} x'])
def test_other_things_than_programs(text: str) -> None:
    with pytest.raises(ProgramError, match="not a BMv2 program"):
        Pipeline.load(text.encode("latin-1"))


def test_another_version(document: Document) -> None:
    document["__meta__"]["version"] = [3, 0]
    assert "version 3.0;" in refusal(document)


def test_every_missing_part_is_named(document: Document) -> None:
    for part in ("header_types", "headers", "parsers", "deparsers", "pipelines", "actions"):
        broken = copy.deepcopy(document)
        del broken[part]
        refusal(broken)
    document["pipelines"] = document["pipelines"][:1]
    assert "egress" in refusal(document)


def walk(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of everything in a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, item in items for found in [(*path, key), *walk(item, (*path, key))]]


@pytest.mark.parametrize("wrong", [None, 5, "text", [], {}, [{}], -1, 1 << 31, 1 << 47, "-0x5", HUGE])
def test_damage_anywhere_is_refused_or_harmless(document: Document, wrong: Any) -> None:
    """Whatever is replaced by whatever, nothing but ProgramError comes out."""
    for path in walk(document)[:: 7 if isinstance(wrong, str) else 11]:
        if "source_info" in path:
            continue
        broken = copy.deepcopy(document)
        where: Any = broken
        for key in path[:-1]:
            where = where[key]
        where[path[-1]] = wrong
        message = ""
        try:
            Pipeline.load(json.dumps(broken), engine="interpreter")
        except ProgramError as error:
            message = str(error)
        assert not OBJECTS.search(message), message


def first_primitive(document: Document) -> Document:
    made: Document = next(action["primitives"][0] for action in document["actions"] if action["primitives"])
    return made


@pytest.mark.parametrize(
    ("operation", "left", "right", "text"),
    [
        ("assign_header", "command", "labels[0]", "headers of different types"),
        ("assign_header_stack", "labels", "numbers", "labels and numbers are of different sizes"),
        ("==h", "command", "labels[0]", "headers of different types are compared"),
    ],
)
def test_headers_of_different_types(operation: str, left: str, right: str, text: str) -> None:
    document: Document = json.loads((PROGRAMS / "stacks.json").read_text())
    kind = "header_stack" if "stack" in operation else "header"
    both = [{"type": kind, "value": name} for name in (left, right)]
    if operation == "==h":
        conditional = document["pipelines"][0]["conditionals"][0]
        value = {"op": operation, "left": both[0], "right": both[1]}
        conditional["expression"] = {"type": "expression", "value": value}
    else:
        first_primitive(document).update(op=operation, parameters=both)
    assert text in refusal(document)


def test_an_unknown_primitive_is_named_with_its_line(document: Document) -> None:
    primitive = first_primitive(document)
    primitive["op"] = "teleport"
    info = primitive["source_info"]
    text = refusal(document)
    assert "primitive teleport is not supported" in text
    assert f"{info['filename']}:{info['line']}: {info['source_fragment']}" in text


def test_an_unknown_operator_is_named_with_its_line(document: Document) -> None:
    conditional = document["pipelines"][0]["conditionals"][0]
    conditional["expression"]["value"]["op"] = "<=>"
    assert " <=> " in refusal(document)
    assert f"{conditional['source_info']['filename']}:{conditional['source_info']['line']}" in refusal(document)


def test_unknown_names(document: Document) -> None:
    broken = copy.deepcopy(document)
    broken["pipelines"][0]["init_table"] = "nowhere"
    assert "nowhere" in refusal(broken)
    broken = copy.deepcopy(document)
    broken["pipelines"][0]["conditionals"][0]["true_next"] = "nowhere"
    assert "nowhere" in refusal(broken)
    broken = copy.deepcopy(document)
    broken["headers"][0]["header_type"] = "nothing_t"
    assert "nothing_t" in refusal(broken)
    broken = copy.deepcopy(document)
    broken["parsers"][0]["init_state"] = "nowhere"
    assert "nowhere" in refusal(broken)


def test_an_algorithm_that_bmv2_lacks_is_refused_by_name() -> None:
    """p4c hands `HashAlgorithm.random` on, at which BMv2 says "Unknown hash algorithm: random" and ends."""
    document = json.loads((PROGRAMS / "payload.json").read_text())
    document["calculations"][0]["algo"] = "random"
    assert "hash algorithm random is not supported" in refusal(document)


def test_unsupported_features_are_named(document: Document) -> None:
    cases: list[tuple[str, Any, str]] = [
        ("header_unions", [{"name": "either"}], "header_unions[0] has no headers"),
        ("extern_instances", [{"name": "magic"}], "extern objects are not supported (magic)"),
    ]
    for part, value, text in cases:
        assert text in refusal(document | {part: value})
    table = next(table for table in document["pipelines"][0]["tables"])
    for key, value, text in (("type", "strange", "strange"), ("direct_meters", "m", "direct meter")):
        broken = copy.deepcopy(document)
        named = next(found for found in broken["pipelines"][0]["tables"] if found["name"] == table["name"])
        named[key] = value
        assert text in refusal(broken)
        assert table["name"] in refusal(broken)
    broken = copy.deepcopy(document)
    broken["header_types"][-1]["fields"][0][1] = 2049
    assert "2049 bits" in refusal(broken)


def test_a_refused_program_leaves_nothing_behind(document: Document) -> None:
    good = json.dumps(document)
    pipeline = Pipeline.load(good, engine="interpreter")
    first_primitive(document)["op"] = "teleport"
    refusal(document)
    assert pipeline.process(0, bytes([0, 0])) == Pipeline.load(good, engine="interpreter").process(0, bytes([0, 0]))


def test_a_meter_says_what_it_measures(document: Document) -> None:
    document["meter_arrays"] = [{"name": "calc", "id": 0, "algo": "crc16", "size": 4}]  # what a fuzzer put there
    assert "meter calc does not say what it measures" in refusal(document)


def test_what_the_switch_writes_is_narrow_metadata(document: Document) -> None:
    standard = next(header for header in document["headers"] if header["name"] == "standard_metadata")
    of_type = next(one for one in document["header_types"] if one["name"] == standard["header_type"])
    del standard["metadata"]  # so did a fuzzer
    assert "standard_metadata.ingress_port, which must be metadata" in refusal(document)
    standard["metadata"] = True
    next(field for field in of_type["fields"] if field[0] == "egress_port")[1] = 128
    assert "standard_metadata.egress_port, which must be metadata of less than" in refusal(document)


def one_line(text: str) -> str:
    assert "\n" not in text
    assert len(text) < 300
    return text


VERY_MANY = MAX_BLOCKS + 1_000


@pytest.mark.parametrize("back", [False, True])
def test_a_parser_of_very_many_states(document: Document, back: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused before anything is compiled: a compiler's time grows with more than the number of states."""
    monkeypatch.setattr(machine, "compile_object", pytest.fail)
    parser = next(parser for parser in document["parsers"] if parser["name"] == "parser")
    [first] = parser["parse_states"]
    key = ["standard_metadata", "ingress_port"]
    states = []
    for number in range(VERY_MANY):
        following = [{"type": "default", "value": None, "mask": None, "next_state": f"s{number + 1}"}]
        case = {"type": "hexstr", "value": "0x01", "mask": None, "next_state": "s0" if back else None}
        states.append(
            first
            | {"name": f"s{number}", "transition_key": [{"type": "field", "value": key}]}
            | {"transitions": [case, *following]}
        )
    states[-1]["transitions"] = []
    parser |= {"parse_states": states, "init_state": "s0"}
    text = one_line(refusal(document))
    assert "in the parser" in text
    assert str(MAX_BLOCKS) in text


@pytest.mark.parametrize(
    ("operator", "amount", "text"),
    [
        (">>", "0x800000000000", ""),
        ("<<", "0x800000000000", ""),
        (">>", "-0x1", "a shift by a negative amount"),
        ("<<", "-0x1", "a shift by a negative amount"),
        (">>", HUGE, "is a number of 400000 bits"),
        ("+", HUGE, "is a number of 400000 bits"),
        ("two_comp_mod", "0x80000000", "a cast to 2147483648 bits"),
        ("usat_cast", "0x0", "a cast to 0 bits"),
    ],
)
@pytest.mark.parametrize("engine", ["interpreter", "native"])
def test_numbers_that_are_too_large(operator: str, amount: str, text: str, engine: EngineName) -> None:
    document: Document = json.loads((PROGRAMS / "arithmetic.json").read_text())
    primitives = [primitive for action in document["actions"] for primitive in action["primitives"]]
    right = next(p for p in primitives if p["op"] == "assign" and p["parameters"][0]["value"] == ["out_", "right"])
    operand = right["parameters"][1]["value"]["value"]["left"]["value"]
    assert operand["op"] == ">>"
    operand |= {"op": operator, "right": {"type": "hexstr", "value": amount}}
    if text:
        assert text in one_line(refusal(document))
    else:  # shifted out altogether
        [(_, frame)] = Pipeline.load(json.dumps(document), engine=engine).process(0, bytes([0xFF]) * 32)
        assert frame


def raise_memory_error(*_: object, **__: object) -> None:
    raise MemoryError


def test_arrays_larger_than_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    document: Document = json.loads((PROGRAMS / "stateful.json").read_text())
    with monkeypatch.context() as patched:
        patched.setattr(pipeline, "make_state", raise_memory_error)
        assert "larger than memory" in one_line(refusal(document))
    with monkeypatch.context() as patched:  # native code has rows of its own for each table
        patched.setattr(native_engine, "TableRows", raise_memory_error)
        assert "larger than memory" in one_line(refusal(json.loads((PROGRAMS / "matching.json").read_text())))
    document["register_arrays"][0] |= {"size": 1, "bitwidth": 2049}
    assert "2049 bits" in one_line(refusal(document))


def test_field_lists_and_calculations_of_nothing() -> None:
    document: Document = json.loads((PROGRAMS / "lives.json").read_text())
    document["field_lists"][0]["elements"][0]["value"] = ["nowhere", "x"]
    assert "it has no header nowhere" in refusal(document)
    document = json.loads((PROGRAMS / "checksums.json").read_text())
    document["calculations"][0]["input"].append({"type": "hexstr", "value": "0x1", "bitwidth": 0})
    assert "in calculation" in one_line(refusal(document))


def test_the_colour_of_a_direct_meter_is_narrow() -> None:
    document: Document = json.loads((PROGRAMS / "metering.json").read_text())
    meter = next(meter for meter in document["meter_arrays"] if meter["is_direct"])
    header, field = meter["result_target"]
    named = next(instance for instance in document["headers"] if instance["name"] == header)
    kind = next(kind for kind in document["header_types"] if kind["name"] == named["header_type"])
    next(item for item in kind["fields"] if item[0] == field)[1] = 128
    assert "a colour of 128 bits" in one_line(refusal(document))


def test_doubled_parts_are_refused(document: Document) -> None:
    """BMv2 refuses them, too; the second one would quietly stand for both."""
    stacks: Document = json.loads((PROGRAMS / "stacks.json").read_text())
    for made in (document, stacks):
        for part, value in made.items():
            if isinstance(value, list) and value and part not in ("enums", "program", "field_aliases"):
                assert "twice" in one_line(refusal({**made, part: [*value, *value]})), part
    aliases = document["field_aliases"]
    Pipeline.load(json.dumps({**document, "field_aliases": [*aliases, *aliases]}))  # for a parameter of that type
    other = [aliases[0][0], aliases[1][1]]
    assert "twice" in one_line(refusal({**document, "field_aliases": [*aliases, other]}))


@pytest.mark.parametrize("digits", ["0x1ffff", "0xf"])
def test_the_mask_of_a_case_is_as_wide_as_its_value(digits: str) -> None:
    document: Document = json.loads((PROGRAMS / "parsing.json").read_text())
    states = document["parsers"][0]["parse_states"]
    cases = [one for state in states for one in state["transitions"] if one["type"] == "hexstr"]
    case = next(one for one in cases if len(one["value"]) == 6)
    case["mask"] = digits
    assert "has a value of 2 bytes, and a mask of" in one_line(refusal(document))


def test_values_and_masks_of_other_widths_than_the_key() -> None:
    document: Document = json.loads((PROGRAMS / "keys.json").read_text())
    tables_of = [table for pipeline in document["pipelines"] for table in pipeline["tables"] if table["key"]]
    broken = copy.deepcopy(document)
    tables_of_broken = [table for pipeline in broken["pipelines"] for table in pipeline["tables"] if table["key"]]
    tables_of_broken[0]["key"][0]["mask"] = "0x" + "f" * 200
    assert "the mask of key" in one_line(refusal(broken))
    assert tables_of
    document = json.loads((PROGRAMS / "parsing.json").read_text())
    state = next(one for one in document["parsers"][0]["parse_states"] if one["transitions"][0]["type"] == "hexstr")
    state["transitions"][0].update(value="0x" + "1" * 100, mask=None)
    assert "a case of state" in one_line(refusal(document))

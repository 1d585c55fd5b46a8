"""What is no BMv2 program, or needs what this switch lacks, is refused at load with its name and its P4 line."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from switchsum.protocol.errors import SwitchsumError
from switchsum.switch.errors import ProgramError
from switchsum.switch.pipeline import Pipeline

from .conftest import PROGRAMS

Document = dict[str, Any]


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
    with pytest.raises(ProgramError, match="no BMv2 program"):
        Pipeline.load(text.encode("latin-1"))


def test_another_version(document: Document) -> None:
    document["__meta__"]["version"] = [3, 0]
    assert "version [3, 0]" in refusal(document)


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


@pytest.mark.parametrize("wrong", [None, 5, "text", [], {}, [{}], -1])
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
        try:
            Pipeline.load(json.dumps(broken), engine="interpreter")
        except ProgramError:
            pass


def first_primitive(document: Document) -> Document:
    made: Document = next(action["primitives"][0] for action in document["actions"] if action["primitives"])
    return made


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
    assert "'<=>'" in refusal(document)
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


def test_unsupported_features_are_named(document: Document) -> None:
    cases: list[tuple[str, Any, str]] = [
        ("header_unions", [{"name": "either"}], "header unions are not supported (either)"),
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

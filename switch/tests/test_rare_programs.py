"""Programs that few write and BMv2 loads: hashes by other names, field lists of headers, cells of another width."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from switchsum_switch import Group, ProfileMember, ProgramError, Switch
from switchsum_switch.execution.pipeline import EngineName, Pipeline
from switchsum_switch.program.hashes import HASHES, WIDTHS

from .conftest import PROGRAMS

Document = dict[str, Any]
LENGTHS = (0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 31, 32, 33, 39, 63, 64, 65, 100)


@pytest.fixture(params=["interpreter", "native"])
def load(request: pytest.FixtureRequest) -> Callable[[Document], Pipeline]:
    engine: EngineName = request.param
    return lambda document: Pipeline.load(json.dumps(document), engine=engine)


def document(name: str) -> Document:
    made: Document = json.loads((PROGRAMS / f"{name}.json").read_text())
    return made


def field(header: str, name: str) -> Document:
    return {"type": "field", "value": [header, name]}


def number(value: int) -> Document:
    return {"type": "hexstr", "value": hex(value)}


@pytest.mark.parametrize(
    ("algorithm", "text", "value"),
    [
        ("xxh64", b"", 0xEF46DB3751D8E999),  # the vectors of the xxHash specification's own tests, and of python-xxhash
        ("xxh64", b"a", 0xD24EC4F1A98C6E5B),
        ("xxh64", b"abc", 0x44BC2CF5AD770999),
        ("xxh64", b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
        ("crc8_custom", b"123456789", 0xF4),  # the catalogue's CRC-8/SMBUS
        ("crc64_custom", b"123456789", 0x46A5A9388A5BEFFE),  # and CRC-64/GO-ISO without its ones
        ("xor32", b"\1\2\3\4\5", 0x04020304),
        ("toeplitz", b"123456789", 0),
    ],
)
def test_known_values(algorithm: str, text: bytes, value: int) -> None:
    if algorithm == "crc64_custom":
        value = reflected_by_hand(text)
    assert HASHES[algorithm](text) == value


def reflected_by_hand(text: bytes) -> int:
    """CRC-64 by its definition, polynomial 0x1b, lowest bit first."""
    remainder = 0
    for byte in text:
        for position in range(8):
            top = (remainder >> 63) ^ (byte >> position & 1)
            remainder = (remainder << 1 & (1 << 64) - 1) ^ (0x1B if top else 0)
    return int(f"{remainder:064b}"[::-1], 2)


@pytest.mark.parametrize("algorithm", sorted(WIDTHS))
def test_a_hash_over_a_payload_of_any_length(load: Callable[[Document], Pipeline], algorithm: str) -> None:
    """As with `update_checksum_with_payload`: the bytes of the fields, and the payload behind them."""
    program = document("hashing")
    for calculation in program["calculations"]:
        calculation["algo"] = algorithm
        calculation["input"] = [field("in_", "a"), field("in_", "c"), {"type": "payload"}]
    hashed = next(
        one for one in program["actions"] if any(step["op"].endswith("_offset") for step in one["primitives"])
    )
    steps = [step for step in hashed["primitives"] if step["op"].endswith("_offset")]
    identity = next(step for step in steps if step["parameters"][0]["value"] == ["out_", "identity"])
    identity["parameters"][3] = number((1 << 64) - 1)
    pipeline, draw = load(program), random.Random(algorithm)
    for length in LENGTHS:
        frame = draw.randbytes(44) + draw.randbytes(length)
        [(_, sent)] = pipeline.process(0, frame)
        header = 44
        payload = frame[header:]
        a, c = frame[0:4], frame[8:9]
        expected = HASHES[algorithm](a + c + payload) % ((1 << 64) - 1)
        at = header + 2 + 4 + 2 + 2
        assert int.from_bytes(sent[at : at + 8], "big") == expected, length


def test_round_robin_counts_for_each_calculation(load: Callable[[Document], Pipeline]) -> None:
    program = document("hashing")
    for calculation in program["calculations"]:
        calculation["algo"] = "round_robin"
    pipeline = load(program)
    for turn in range(5):
        [(_, sent)] = pipeline.process(0, bytes(44))
        assert int.from_bytes(sent[44:46], "big") == turn
        assert int.from_bytes(sent[46:50], "big") == turn


@pytest.mark.parametrize("engine", ["interpreter", "native"])
def test_a_selector_takes_one_member_after_the_other(engine: EngineName) -> None:
    program = document("profiles")
    for pipeline in program["pipelines"]:
        for profile in pipeline["action_profiles"]:
            if "selector" in profile:
                profile["selector"]["algo"] = "round_robin"
    switch = Switch(json.dumps(program), engine=engine)
    spread, table = switch.profiles["spread"], switch.tables["spreading"]
    for one in (10, 20, 30):
        spread.add_member(one, "choose", which=one, port=one)
    spread.set_group(4, [10, 20, 30])
    table.insert({"h.flow.key": 100}, Group(4), priority=1)
    table.insert({"h.flow.key": 101}, ProfileMember(20), priority=1)

    def port(key: int) -> int:
        return switch.process(1, bytes([key, 0, 0, 0, 0]))[0][0]

    # Neither a miss nor a member counts.
    assert [port(key) for key in (100, 100, 101, 102, 100, 100)] == [10, 20, 20, 0, 30, 10]
    assert not [name for name in switch.registers if name.startswith("$")]


@pytest.mark.parametrize("width", [3, 8, 16, 20, 64, 88, 100, 136, 200])
def test_a_cell_of_another_width_than_the_field(load: Callable[[Document], Pipeline], width: int) -> None:
    program = document("stateful")
    for register in program["register_arrays"]:
        register["bitwidth"] = width
    pipeline, draw = load(program), random.Random(width)
    cells, tags, longs = (1 << width) - 1, (1 << 88) - 1, (1 << 136) - 1
    tag = long = seven = 0
    for _ in range(6):
        given = draw.getrandbits(7), draw.getrandbits(88), draw.getrandbits(136)
        bits = f"{given[0]:08b}{given[1]:088b}{0:016b}{given[2]:0136b}"
        frame = bytes(4) + int(bits, 2).to_bytes(31, "big") + bytes(12)
        seven = seven + given[0] & 127
        tag, long = tag + given[1] & tags, long + given[2] & longs
        [(_, sent)] = pipeline.process(0, frame)
        assert sent[4] == seven
        assert int.from_bytes(sent[5:16], "big") == tag
        assert int.from_bytes(sent[18:35], "big") == long
        # The cell gets the low bits of what is written, and the field those of the cell.
        seven, tag, long = seven & cells, tag & cells, long & cells


def test_the_validity_field_may_be_assigned_where_nobody_reads_it(load: Callable[[Document], Pipeline]) -> None:
    """BMv2 changes the field alone: the header is as valid as it was."""
    program = document("hashing")
    action = next(one for one in program["actions"] if any(step["op"] == "add_header" for step in one["primitives"]))
    before = load(program).process(0, bytes(44))
    step = {"op": "assign", "parameters": [field("out_", "$valid$"), number(0)]}
    action["primitives"].append(step)
    assert load(program).process(0, bytes(44)) == before
    action["primitives"].append({"op": "assign", "parameters": [field("out_", "tiny"), field("out_", "$valid$")]})
    with pytest.raises(ProgramError, match=r"assigning to out_.\$valid\$, which the program reads,"):
        load(program)


def test_a_clone_gets_the_fields_of_headers_that_its_list_has(load: Callable[[Document], Pipeline]) -> None:
    """A clone made in ingress is parsed anew; in BMv2 it then gets what the fields were when ingress ended."""
    program = document("lives")
    lists = {one["id"]: one for one in program["field_lists"]}
    lists[1]["elements"] += [number(7), field("command", "turns"), {**number(9), "bitwidth": 8}]
    pipeline, plain = load(program), load(document("lives"))
    for one in (pipeline, plain):
        one.clones.set(5, [(6, 0)])
    frame = bytes([1, 5, 0x12]) + b"rest"

    def turns(of: Pipeline) -> list[tuple[int, int]]:
        return sorted((port, sent[44 + 2]) for port, sent in of.process(3, frame))

    assert turns(plain) == [(1, 0xFF), (6, 0x12)]
    assert turns(pipeline) == [(1, 0xFF), (6, 0xFF)]
    assert turns(pipeline) == [(1, 0xFF), (6, 0xFF)]
    # Without a clone, and with a list that has none of them, all is as it was.
    for operation in (0, 2, 4, 5, 6, 7):
        for one in (pipeline, plain):
            one.multicast.set(1, [(2, 0)])
        given = bytes([operation, 5, 3]) + b"rest"
        assert pipeline.process(3, given) == plain.process(3, given), operation


@pytest.mark.parametrize("name", ["$valid$", "nothing"])
def test_what_a_field_list_cannot_have(name: str) -> None:
    program = document("lives")
    program["field_lists"][0]["elements"].append(field("command", name))
    with pytest.raises(ProgramError, match=r"command\."):
        Pipeline.load(json.dumps(program))

"""The table of the frame: the header's codec, the program's own widths and numbers, and what is made from the table."""

from __future__ import annotations

import json
import re
import runpy
import struct
from enum import IntEnum
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchsum import p4src
from switchsum_protocol import frame
from switchsum_protocol.frame import (
    AT,
    FIELDS,
    FRAME_BYTES,
    HEADER_BYTES,
    LANE_BUILDS,
    Flag,
    Header,
    Kind,
    LaneFormat,
    Operator,
    Reason,
    padding_bytes,
)
from switchsum_switch.wires.headers import HEAD_BYTES, LOWER_BYTES

ROOT = Path(__file__).parents[2]
HEADERS = st.builds(Header, **{name: st.integers(0, (1 << field.wire.bits) - 1) for name, field in FIELDS.items()})


@given(HEADERS)
def test_a_header_survives_packing(header: Header) -> None:
    data = header.pack()
    assert len(data) == HEADER_BYTES
    assert Header.unpack(data) == header
    assert Header.unpack(data + b"trailing") == header


@pytest.mark.parametrize("length", range(HEADER_BYTES))
def test_a_cut_header_is_none(length: int) -> None:
    assert Header.unpack(Header(kind=Kind.HELLO).pack()[:length]) is None


def test_the_layout_is_the_documented_one() -> None:
    header = Header(
        kind=2, version=1, operator=3, format=4, flags=5, reason=6, exponent=7, next_exponent=8, job=0x0102,
        epoch=0x0304, rank=0x0506, tree=0x0708, slot=0x1112_1314, number=0x2122_2324, block=0x3132_3334,
        next_block=0x4142_4344, digest=0x5152_5354, bitmap=0x6162_6364, cookie=0x7172_7374_7576_7778,
    )  # fmt: skip
    assert header.pack().hex() == (
        "010203040506070801020304050607081112131421222324313233344142434451525354616263647172737475767778"
    )
    assert FIELDS["number"].offset == 20
    assert AT.number == LOWER_BYTES + 20


def test_a_field_that_is_too_large_does_not_wrap() -> None:
    with pytest.raises(struct.error):
        Header(kind=Kind.HELLO, rank=1 << 16).pack()


def test_no_byte_of_the_header_is_without_a_field() -> None:
    rows = list(FIELDS.values())
    assert rows[0].offset == 0
    assert all(after.offset == before.offset + before.size for before, after in pairwise(rows))
    assert rows[-1].offset + rows[-1].size == HEADER_BYTES == 48


def test_defaults_and_names_are_those_of_the_header() -> None:
    assert {name for name, field in FIELDS.items() if field.default is None} == {"kind"}
    header = Header(kind=Kind.HELLO)
    assert {name: getattr(header, name) for name in FIELDS if name != "kind"} == {
        name: field.default for name, field in FIELDS.items() if name != "kind"
    }
    named = {name: field.values for name, field in FIELDS.items() if field.values is not None}
    assert named == {"kind": Kind, "operator": Operator, "format": LaneFormat, "flags": Flag, "reason": Reason}


def test_the_format_has_the_name_that_is_written_down() -> None:
    # Workers and controllers of one wire version refuse each other when this differs: a review sees it in wire.json.
    written = json.loads((ROOT / "docs" / "wire.json").read_text())
    assert (written["wire_version"], written["wire_digest"]) == (frame.WIRE_VERSION, frame.WIRE_DIGEST)


@pytest.mark.parametrize(
    ("lanes", "growth", "padding"), [(128, 512, 0), (256, 512, 512), (2048, 512, 7680), (2048, None, 0), (256, 1024, 0)]
)
def test_padding_makes_up_for_limited_growth(lanes: int, growth: int | None, padding: int) -> None:
    assert padding_bytes(lanes, growth) == padding


@pytest.mark.parametrize(
    "name", ["p4src/wire.p4", "src/switchsum/packets/switchsum.lua", "docs/wire.md", "docs/wire.json"]
)
def test_what_is_made_from_the_table_is_current(name: str) -> None:
    made = runpy.run_path(str(ROOT / "tools" / "frame_tables.py"))["render"]()
    assert made[ROOT / name] == (ROOT / name).read_text(), "python tools/frame_tables.py"


def test_the_page_names_every_kind_flag_and_reason() -> None:
    page = (ROOT / "docs" / "wire.md").read_text()
    for member in (*Kind, *Flag, *Reason):
        assert re.search(rf"\| (?:.*, )?{int(member)} {str(member.name).lower()}\b", page), member


# What is made for the P4 program says the same.

SOURCE = "\n".join(path.read_text() for path in sorted(p4src.SOURCES.glob("*.p4")))
ENUMS = {
    name: {member: int(value) for member, value in re.findall(r"^ +(\w+) = (\d+)", body, re.MULTILINE)}
    for name, body in re.findall(r"\benum bit<8> (\w+)_t \{(.*?)\}", SOURCE, re.DOTALL)
}
CONSTANTS = {name: int(value, 0) for name, value in re.findall(r"\bconst \S+ (\w+) = (0x[0-9a-fA-F]+|[0-9]+);", SOURCE)}


@pytest.mark.parametrize(
    ("name", "members"), [("kind", Kind), ("operator", Operator), ("format", LaneFormat), ("reason", Reason)]
)
def test_the_program_numbers_things_alike(name: str, members: type[IntEnum]) -> None:
    nothing = {"NONE": 0} if name == "reason" else {}
    assert ENUMS[name] == nothing | {member.name: member.value for member in members}
    before_a_gap = next(number for number in members if number + 1 not in list(members))
    assert CONSTANTS.get(f"{name.upper()}_LAST", before_a_gap) == before_a_gap


def test_the_program_has_the_same_constants() -> None:
    flags = {name.removeprefix("FLAG_"): value for name, value in CONSTANTS.items() if name.startswith("FLAG_")}
    assert flags == {flag.name: flag.value for flag in Flag}
    assert CONSTANTS["WIRE_VERSION"] == frame.WIRE_VERSION
    assert CONSTANTS["AGGREGATION_PORT"] == frame.AGGREGATION_PORT
    assert CONSTANTS["AGGREGATION_BYTES"] == frame.HEADER_BYTES
    assert CONSTANTS["NO_BLOCK"] == frame.NO_BLOCK
    assert CONSTANTS["REASONS"] == frame.REASONS > max(Reason)


@pytest.mark.parametrize("lanes", LANE_BUILDS)
def test_the_compiled_program_has_the_same_header(lanes: int) -> None:
    program = json.loads((p4src.COMPILED / f"switchsum_{lanes}.json").read_text())
    [header] = [kind for kind in program["header_types"] if kind["name"] == "aggregation_t"]
    assert [(name, bits) for name, bits, _ in header["fields"]] == [
        (name, field.wire.bits) for name, field in FIELDS.items()
    ]


def test_every_field_of_a_hello_means_something_in_one() -> None:
    written = {
        "kind",
        "flags",
        "job",
        "epoch",
        "rank",
        "tree",
        "number",
        "digest",
    }  # what host/switchsum_host/api/join.py gives
    assert all(Kind.HELLO in FIELDS[name].wire.kinds for name in written)


def test_lanes_begin_where_rows_of_memory_say() -> None:
    # The switch's distribution knows nothing of the aggregation header, and lays its rows out by this length.
    assert HEAD_BYTES == FRAME_BYTES

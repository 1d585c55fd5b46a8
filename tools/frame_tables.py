"""Write what follows from the table of the frame: P4's header and numbers, Wireshark's tables, docs/wire.{json,md}.

Run as `python tools/frame_tables.py`; tests compare what it makes with what is committed.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
import textwrap
from enum import IntEnum, IntFlag
from pathlib import Path

from switchsum_lab.conform.document import document
from switchsum_protocol import frame
from switchsum_protocol.frame import (
    FIELDS,
    LANE_WIDTHS,
    WIDENED_FORMATS,
    Flag,
    HeaderField,
    Kind,
    LaneFormat,
    Operator,
    Reason,
)

ROOT = Path(__file__).parent.parent
DISSECTOR = ROOT / "src" / "switchsum" / "packets" / "switchsum.lua"
PAGE = ROOT / "docs" / "wire.md"
PROGRAM = ROOT / "p4src" / "wire.p4"
FOR_PROGRAMS = ROOT / "docs" / "wire.json"
LUA_MARKS = (
    "-- Generated from protocol/switchsum_protocol/frame.py by tools/frame_tables.py\n",
    "-- End of what is generated\n",
)
PAGE_MARKS = (
    "<!-- Generated from protocol/switchsum_protocol/frame.py by tools/frame_tables.py -->\n",
    "<!-- End of what is generated -->\n",
)
LUA_NAMES: dict[type[IntEnum], str] = {Kind: "KINDS", Operator: "OPERATORS", LaneFormat: "FORMATS", Reason: "REASONS"}
"""What the dissector calls the numbers of each enumeration."""
P4_TYPES: dict[type[IntEnum] | type[IntFlag], str] = {
    Kind: "kind_t",
    Operator: "operator_t",
    LaneFormat: "format_t",
    Flag: "flags_t",
    Reason: "reason_t",
}
P4_HEAD = """\
// SPDX-License-Identifier: Apache-2.0
//
// The aggregation header and its numbers. tools/frame_tables.py makes this file from switchsum_protocol/frame.py, and
// docs/fields.md says how to add a field.

#ifndef WIRE_P4
#define WIRE_P4
"""
P4_WIDTH = 120
UNUSED = '@noWarn("unused")'
ROW_BYTES = 4
CELL_WIDTH = 2 + max(len(field.name) for field in FIELDS.values() if field.size == 1)
"""Of one byte in the drawing, without its border: names of one-byte fields have room."""
MOST_LISTED = 6
"""An enumeration of so many numbers is listed in its field's row of the table."""


def comments(members: type[IntEnum] | type[IntFlag]) -> dict[str, str]:
    """Return the first line of what an enumeration's source says below each member."""
    [body] = ast.parse(textwrap.dedent(inspect.getsource(members))).body
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for before, after in zip(body.body, body.body[1:], strict=False):
        match before, after:
            case ast.Assign(targets=[ast.Name(name)]), ast.Expr(ast.Constant(str(text))):
                found[name] = text.splitlines()[0].rstrip(".")
    return found


def p4_comment(members: type[IntEnum] | type[IntFlag]) -> str:
    """Return the first line of what an enumeration's source says above its members."""
    return f"// {str(members.__doc__).splitlines()[0]}"


def p4_rows(members: type[IntEnum] | type[IntFlag], rows: dict[str, str]) -> list[str]:
    """Return lines of P4 by the member that each is for, with its comment where there is room."""
    notes, width = {"NONE": "nothing yet, or nothing worth counting"} | comments(members), max(map(len, rows.values()))
    lines = []
    for name, row in rows.items():
        noted = f"{row:<{width}}    // {notes.get(name)}"
        lines.append(noted if name in notes and len(noted) <= P4_WIDTH else row)
    return lines


def p4_enumeration(members: type[IntEnum], bits: int, **more: int) -> list[str]:
    """Return an enumeration's numbers, and `more`, and the last of those without a gap."""
    name = P4_TYPES[members]
    last = next(int(member) for member in members if int(member) + 1 not in list(members))
    numbers = more | {str(member.name): int(member) for member in members}
    end = next(reversed(numbers))
    rows = {one: f"    {one} = {number}{',' * (one != end)}" for one, number in numbers.items()}
    constant = f"{UNUSED} const bit<{bits}> {name.removesuffix('_t').upper()}_LAST = {last};"
    gap = "    // without gaps" if last != max(members) else ""
    return ["", p4_comment(members), f"enum bit<{bits}> {name} {{", *p4_rows(members, rows), "}", constant + gap]


def p4_formats() -> list[str]:
    """Return what the program asks about a lane format, as macros: P4 has no tables of constants."""
    asked: dict[str, list[LaneFormat]] = {"WIRE_IS_FORMAT": list(LaneFormat)}
    asked |= {f"WIRE_HAS_LANES_OF_{bits}": [one for one in LaneFormat if one.bits == bits] for bits in LANE_WIDTHS}
    asked["WIRE_IS_WIDENED"] = list(WIDENED_FORMATS)
    for bits in sorted({one.value_bits for one in WIDENED_FORMATS}, reverse=True):
        asked[f"WIRE_HAS_HALVES_OF_{bits}"] = [one for one in WIDENED_FORMATS if one.value_bits == bits]
    rows = [
        "",
        "// Whether there is such a lane format, how wide lanes are, and halves of them where one may send these.",
    ]
    for macro, formats in asked.items():
        conditions = [f"(format) == format_t.{one.name}" for one in formats]
        text = f"#define {macro}(format) ("
        for number, condition in enumerate(conditions):
            piece = condition if number == 0 else f" || {condition}"
            if len(text.rpartition("\n")[2]) + len(piece) > P4_WIDTH - 4:
                text, piece = f"{text} \\\n        ", piece.strip()
            text += piece
        rows.append(f"{text})")
    return rows


def p4_header() -> str:
    """Return the P4 program's header and numbers."""
    bits = {field.values: field.wire.bits for field in FIELDS.values() if field.values is not None}
    lines = [
        "",
        f"const bit<{FIELDS['version'].wire.bits}> WIRE_VERSION = {frame.WIRE_VERSION};",
        f"const bit<16> AGGREGATION_PORT = {frame.AGGREGATION_PORT};",
        f"const bit<16> AGGREGATION_BYTES = {frame.HEADER_BYTES};",
        "",
        "// Next block of a sender that has nothing more to send.",
        f"const bit<{FIELDS['next_block'].wire.bits}> NO_BLOCK = 0x{frame.NO_BLOCK:X};",
        *p4_enumeration(Kind, bits[Kind]),
        *p4_enumeration(Operator, bits[Operator]),
        *p4_enumeration(LaneFormat, bits[LaneFormat]),
        "",
        p4_comment(Flag),
        f"typedef bit<{bits[Flag]}> flags_t;",
        *p4_rows(Flag, {str(flag.name): f"{UNUSED} const flags_t FLAG_{flag.name} = {int(flag)};" for flag in Flag}),
        *p4_enumeration(Reason, bits[Reason], NONE=0),
        f"const bit<32> REASONS = {frame.REASONS};",
        *p4_formats(),
        "",
        "// docs/wire.md says what each field means.",
        "header aggregation_t {",
        *(
            f"    {P4_TYPES[field.values] if field.values else f'bit<{field.wire.bits}>'} {field.name};"
            for field in FIELDS.values()
        ),
        "}",
        "",
        "#endif",
    ]
    return P4_HEAD + "".join(f"{line}\n" for line in lines)


def lua_names(members: type[IntEnum], **more: int) -> list[str]:
    """Return a Lua table from an enumeration's numbers, and `more`, to names."""
    numbers = more | {member.name.lower(): int(member) for member in members}
    rows = [f'  [{number}] = "{name}",' for name, number in numbers.items()]
    return [f"local {LUA_NAMES[members]} = {{", *rows, "}"]


def lua_lengths(table: str, values: list[int]) -> str:
    """Return a Lua table that is true at some numbers."""
    return f"local {table} = {{ {', '.join(f'[{value}] = true' for value in sorted(values) if value)} }}"


def lua_field(field: HeaderField) -> str:
    """Return the Lua row of a field."""
    row = [f'"{field.name}", {field.offset}, {field.size}']
    if field.values in LUA_NAMES:
        row.append(f"names = {LUA_NAMES[field.values]}")
    if field.wire.is_hexadecimal:
        row.append("hexadecimal = true")
    if field.wire.none is not None:
        row.append(f"none = {field.wire.none}")
    return f"  {{ {', '.join(row)} }},"


def lua_tables() -> str:
    """Return the dissector's tables."""
    builds = frame.LANE_BUILDS
    lines = [
        f"local WIRE_VERSION, AGGREGATION_PORT = {frame.WIRE_VERSION}, {frame.AGGREGATION_PORT}",
        f"local HEADER_BYTES, NO_BLOCK = {frame.HEADER_BYTES}, {frame.NO_BLOCK}",
        *lua_names(Kind),
        *lua_names(Operator),
        *lua_names(LaneFormat),
        "local LANES = { -- by format: bits of a lane, and of what a contribution may have for one",
        *(f"  [{int(one)}] = {{ bits = {one.bits}, value_bits = {one.value_bits} }}," for one in LaneFormat),
        "}",
        *lua_names(Reason, none=0),
        "local FLAGS = { -- value, name",
        *(f'  {{ {int(flag)}, "{str(flag.name).lower()}" }},' for flag in Flag),
        "}",
        "local HEADER = { -- name, offset, bytes",
        *map(lua_field, FIELDS.values()),
        "}",
        lua_lengths("PAYLOADS", [frame.payload_bytes(lanes) for lanes in builds]),
        lua_lengths("NARROWS", [frame.narrow_bytes(lanes) for lanes in builds]),
        lua_lengths("PADDINGS", [frame.padding_bytes(lanes, frame.PADDING_LESS_BYTES) for lanes in builds]),
    ]
    return "".join(f"{line}\n" for line in lines)


def drawing() -> list[str]:
    """Return the header as a drawing, four bytes a row, with the offset of each row."""
    border = "    " + ("+" + "-" * CELL_WIDTH) * ROW_BYTES + "+"
    lines, at = [border], 0
    row = ""
    for field in FIELDS.values():
        width = min(field.size, ROW_BYTES)
        row += f"| {field.name:<{width * (CELL_WIDTH + 1) - 2}}"
        for _ in range(field.size // width):
            if (at + width) % ROW_BYTES == 0:
                lines += [f"{at + width - ROW_BYTES:>3} {row}|", border]
                row = "|" + " " * (ROW_BYTES * (CELL_WIDTH + 1) - 1)
            at += width
        row = "" if at % ROW_BYTES == 0 else row
    return lines


def kinds_of(field: HeaderField) -> str:
    """Return in which kinds of frame a field means something."""
    kinds = field.wire.kinds
    if kinds == frozenset(Kind):
        return "all"
    absent = [kind.name.lower() for kind in Kind if kind not in kinds]
    if len(absent) <= 2:
        return f"all but {', '.join(absent)}"
    return ", ".join(kind.name.lower() for kind in Kind if kind in kinds)


def page_row(field: HeaderField) -> str:
    """Return a field's row of the table in docs/wire.md."""
    meaning = field.wire.meaning
    if field.values is not None and len(field.values) <= MOST_LISTED:
        meaning += ": " + ", ".join(f"{int(member)} {str(member.name).lower()}" for member in field.values)
    if field.wire.none is not None:
        meaning += f"; {field.wire.none:#010X}: none".replace("0X", "0x")
    unit = field.wire.unit or ("bits" if field.values is Flag else "")
    return f"| {field.offset} | {field.name} | {field.size} | {meaning} | {unit} | {kinds_of(field)} |"


def page_tables() -> str:
    """Return the drawing and the table of docs/wire.md."""
    lines = [
        "",
        "```",
        *drawing(),
        "```",
        "",
        "| offset | field | bytes | meaning | unit | means something in |",
        "|---|---|---|---|---|---|",
        *map(page_row, FIELDS.values()),
        "",
    ]
    return "".join(f"{line}\n" for line in lines)


def between(text: str, marks: tuple[str, str], new: str) -> str:
    """Return a text with what stands between two marks replaced; both must be there."""
    begin, end = marks
    before, _, rest = text.partition(begin)
    _, mark, after = rest.partition(end)
    assert mark, f"no {begin!r} with {end!r} after it"
    return before + begin + new + end + after


def render() -> dict[Path, str]:
    """Return the files that are made, with tables of today."""
    return {
        PROGRAM: p4_header(),
        DISSECTOR: between(DISSECTOR.read_text(), LUA_MARKS, lua_tables()),
        PAGE: between(PAGE.read_text(), PAGE_MARKS, page_tables()),
        FOR_PROGRAMS: json.dumps(document(), indent=1) + "\n",
    }


if __name__ == "__main__":
    before = json.loads(FOR_PROGRAMS.read_text())["wire_digest"] if FOR_PROGRAMS.exists() else frame.WIRE_DIGEST
    for path, text in render().items():
        path.write_text(text)
    if before != frame.WIRE_DIGEST:
        sys.stdout.write(
            f"the wire format is another one: {frame.WIRE_DIGEST}, it was {before}. "
            "If older hosts or switches would misread it, WIRE_VERSION must grow. "
            "A new number of an operator or a lane format does not make it grow: older switches refuse it.\n"
        )

"""Write what follows from the table of the frame: Wireshark's tables, docs/wire.json, and the tables of docs/wire.md.

Run as `python tools/frame_tables.py`; tests compare what it makes with what is committed.
"""

from __future__ import annotations

import json
from enum import IntEnum
from pathlib import Path

from switchsum_lab.conform.document import document
from switchsum_protocol import frame
from switchsum_protocol.frame import FIELDS, Flag, HeaderField, Kind, LaneFormat, Operator, Reason

ROOT = Path(__file__).parent.parent
DISSECTOR = ROOT / "src" / "switchsum" / "packets" / "switchsum.lua"
PAGE = ROOT / "docs" / "wire.md"
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
ROW_BYTES = 4
CELL_WIDTH = 2 + max(len(field.name) for field in FIELDS.values() if field.size == 1)
"""Of one byte in the drawing, without its border: names of one-byte fields have room."""
MOST_LISTED = 6
"""An enumeration of so many numbers is listed in its field's row of the table."""


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
        DISSECTOR: between(DISSECTOR.read_text(), LUA_MARKS, lua_tables()),
        PAGE: between(PAGE.read_text(), PAGE_MARKS, page_tables()),
        FOR_PROGRAMS: json.dumps(document(), indent=1) + "\n",
    }


if __name__ == "__main__":
    for path, text in render().items():
        path.write_text(text)

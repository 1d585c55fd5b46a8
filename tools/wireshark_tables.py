"""Write the wire format's names and numbers into Wireshark's dissector.

Run as `python tools/wireshark_tables.py`; a test compares what it makes with what is committed.
"""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path

from switchsum.protocol import wire
from switchsum.protocol.wire import FIELD_BYTES, FIELD_OFFSET, Flag, Kind, LaneFormat, Operator, Reason

DISSECTOR = Path(__file__).parent.parent / "wireshark" / "switchsum.lua"
BEGIN = "-- Generated from protocol/wire.py by tools/wireshark_tables.py\n"
END = "-- End of what is generated\n"


def names(table: str, members: type[IntEnum], **more: int) -> list[str]:
    """Return a Lua table from an enumeration's numbers, and `more`, to names."""
    numbers = more | {member.name.lower(): int(member) for member in members}
    rows = [f'  [{number}] = "{name}",' for name, number in numbers.items()]
    return [f"local {table} = {{", *rows, "}"]


def lengths(table: str, values: list[int]) -> str:
    """Return a Lua table that is true at some numbers."""
    return f"local {table} = {{ {', '.join(f'[{value}] = true' for value in sorted(values) if value)} }}"


def tables() -> str:
    """Return what is generated."""
    builds = wire.LANE_BUILDS
    lines = [
        f"local WIRE_VERSION, AGGREGATION_PORT = {wire.WIRE_VERSION}, {wire.AGGREGATION_PORT}",
        f"local NO_BLOCK = {wire.NO_BLOCK}",
        "local HEADER = { -- name, offset, bytes",
        *(f'  {{ "{name}", {FIELD_OFFSET[name]}, {size} }},' for name, size in FIELD_BYTES.items()),
        "}",
        *names("KINDS", Kind),
        *names("OPERATORS", Operator),
        *names("FORMATS", LaneFormat),
        "local FLAGS = { -- value, name",
        *(f'  {{ {int(flag)}, "{str(flag.name).lower()}" }},' for flag in Flag),
        "}",
        *names("REASONS", Reason, none=0),
        lengths("PAYLOADS", [wire.payload_bytes(lanes) for lanes in builds]),
        lengths("PADDINGS", [wire.padding_bytes(lanes, wire.PADDING_LESS_BYTES) for lanes in builds]),
    ]
    return "".join(f"{line}\n" for line in lines)


def render(text: str) -> str:
    """Return the dissector with tables of today."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + tables() + END + after


if __name__ == "__main__":
    DISSECTOR.write_text(render(DISSECTOR.read_text()))

"""The wire format and its rules for programs: docs/wire.json, which tools/frame_tables.py writes."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Any, Final

from switchsum_protocol import frame
from switchsum_protocol.frame import FIELDS, Flag, Header, HeaderField, Kind, LaneFormat, Operator, Reason, selection
from switchsum_protocol.slot_rules import SWITCH_ADDRESS, ReferenceSwitch
from switchsum_protocol.wire import build_frame
from switchsum_switch.wires import headers
from switchsum_switch.wires.headers import Address

from .facts import Facts, MemberFacts
from .rules import RULES

LANES: Final = 128
"""Lanes in golden frames: those of the smallest build."""
FACTS: Final = Facts(
    lanes=LANES,
    switch=SWITCH_ADDRESS,
    job=7,
    epoch=3,
    first_slot=16,
    slot_count=8,
    fresh=True,
    members=tuple(
        MemberFacts(
            cookie=0x5EC7_E7C0_0C1E_0000 + rank,
            address=Address(mac=0x02_00_00_00_01_00 + rank, ip=0x0A_00_00_0A + rank, port=40_000 + rank),
        )
        for rank in range(2)
    ),
)
"""The job of golden frames."""
_MOST: Final = 0x7FFF_FFFF
_GOLDEN: Final[tuple[tuple[str, int, int | None, dict[str, int]], ...]] = (
    ("row 4", 0, 5, {"number": 0, "next_block": 9, "next_exponent": 130}),
    ("row 10", 0, 5, {"number": 0, "next_block": 9, "next_exponent": 130, "flags": Flag.PAYLOAD | Flag.REPEAT}),
    ("row 7", 1, None, {"number": 0, "next_block": 9, "next_exponent": 131}),
    ("row 11", 1, None, {"number": 0, "flags": Flag.REPEAT}),
    ("row 4", 0, _MOST, {"number": 1}),
    ("row 8", 1, 1, {"number": 1}),
    ("row 5", 0, -3, {"number": 2}),
    ("row 9", 1, 4, {"number": 2, "digest": 0x0BAD}),
    ("row 3", 0, 5, {"number": 0}),
    ("row 5", 0, 1, {"number": 3, "flags": Flag.PAYLOAD | Flag.SELECT, "bitmap": selection(1, 2, but=False)}),
    ("select", 1, 2, {"number": 3, "flags": Flag.PAYLOAD | Flag.SELECT, "bitmap": selection(1, 2, but=False)}),
    ("cookie", 0, 1, {"number": 4, "cookie": 1}),
    ("not_admitted", 0, 1, {"number": 4, "epoch": 4}),
    ("slot", 0, 1, {"number": 4, "slot": 24}),
    ("operator", 0, 1, {"number": 4, "operator": max(Operator) + 1}),
    ("version", 0, 1, {"number": 4, "version": 3}),
)
"""Rule, rank, the number in all lanes or None, and header fields."""


def document() -> dict[str, Any]:
    """Return the document."""
    return {
        "wire_version": frame.WIRE_VERSION,
        "wire_digest": frame.WIRE_DIGEST,
        "byte_order": "network",
        "udp_port": frame.AGGREGATION_PORT,
        "header_bytes": frame.HEADER_BYTES,
        "lower_bytes": headers.LOWER_BYTES,
        "lanes": {"builds": list(frame.LANE_BUILDS), "bytes": frame.LANE_BYTES},
        "padding": {"frame_grows_by": frame.PADDING_LESS_BYTES},
        "most_members": frame.MAX_WORKERS,
        "no_block": frame.NO_BLOCK,
        "fields": [_field(field) for field in FIELDS.values()],
        "kinds": _numbers(Kind),
        "operators": {
            one.name.lower(): {"number": int(one), "skips_zeros": one.skips_zeros, "numpy": one.function}
            for one in Operator
        },
        "formats": {
            one.name.lower(): {"number": int(one), "bits": one.bits, "value_bits": one.value_bits} for one in LaneFormat
        },
        "flags": _numbers(Flag),
        "reasons": _numbers(Reason),
        "rules": RULES,
        "golden": {"facts": facts_as_json(FACTS), "exchanges": list(golden())},
    }


def facts_as_json(facts: Facts) -> dict[str, Any]:
    """Return facts as a file of facts has them."""
    members = [{"cookie": f"{one.cookie:#x}", **_place(one.address)} for one in facts.members]
    given = {name: getattr(facts, name) for name in ("lanes", "growth_bytes", "job", "epoch", "tree", "first_slot")}
    more = {name: getattr(facts, name) for name in ("slot_count", "first_number", "fresh")}
    return {"wire_version": frame.WIRE_VERSION, **given, **more, "switch": _place(facts.switch), "members": members}


def golden() -> list[dict[str, Any]]:
    """Return frames to a fresh switch one after another, and what leaves it, from the rules in plain Python."""
    switch = ReferenceSwitch(lanes_per_frame=LANES, address=FACTS.switch)
    for member in FACTS.members:
        switch.admit(FACTS.admission(member))
    made = []
    for rule, rank, value, fields in _GOLDEN:
        sent = _contribution(rank, value, fields)
        answers = [{"rank": port - 1, "frame": answer.hex()} for port, answer in switch.process(rank + 1, sent)]
        made.append({"rule": rule, "rank": rank, "frame": sent.hex(), "answers": answers})
    return made


def _contribution(rank: int, value: int | None, fields: dict[str, int]) -> bytes:
    values: dict[str, int] = {
        "kind": Kind.CONTRIBUTION,
        "flags": 0 if value is None else Flag.PAYLOAD,
        "job": FACTS.job,
        "epoch": FACTS.epoch,
        "rank": rank,
        "cookie": FACTS.members[rank].cookie,
        "slot": FACTS.first_slot,
        "digest": 0x0C0F_0CE5,
    }
    payload = b"" if value is None else value.to_bytes(frame.LANE_BYTES, signed=True) * LANES
    return build_frame(FACTS.members[rank].address, FACTS.switch, Header(**(values | fields)), payload)


def _place(address: Address) -> dict[str, Any]:
    text, _, mac = str(address).partition(" ")
    ip, _, port = text.partition(":")
    return {"ip": ip, "mac": mac.strip("()"), "port": int(port)}


def _numbers(members: type[IntEnum] | type[IntFlag]) -> dict[str, int]:
    return {str(member.name).lower(): int(member) for member in members}


def _field(field: HeaderField) -> dict[str, Any]:
    wire = field.wire
    row: dict[str, Any] = {"name": field.name, "offset": field.offset, "bytes": field.size, "meaning": wire.meaning}
    row["kinds"] = [kind.name.lower() for kind in Kind if kind in wire.kinds]
    row |= {"unit": wire.unit} if wire.unit else {}
    return row | ({"none": wire.none} if wire.none is not None else {})

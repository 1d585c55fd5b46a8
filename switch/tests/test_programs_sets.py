"""Parser value sets: what the control plane puts in them decides what the parser takes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from switchsum_switch import Switch
from switchsum_switch.errors import BadEntry, EntryExists, EntryMissing, TableFull
from switchsum_switch.execution.pipeline import Pipeline
from switchsum_switch.messages.matches import Ternary
from switchsum_switch.messages.p4runtime import Code, P4RuntimeError, parse_p4info, v1

from . import p4runtime_rig
from .conftest import PROGRAMS, Load
from .p4runtime_rig import Client, Rig, update

NOTHING, TAG, PAIR, BOTH = 1, 2, 3, 4
rig = pytest.fixture(p4runtime_rig.rig)


def taken(pipeline: Pipeline, kind: int, version: int = 0, rest: bytes = bytes(8)) -> int:
    """Return what the parser took, as the program tells by the port."""
    frame = kind.to_bytes(2, "big") + version.to_bytes(2, "big") + rest
    [(port, out)] = pipeline.process(9, frame)
    assert out == frame
    return port


def exactly(value: int) -> tuple[Ternary, ...]:
    return (Ternary(value, 0xFFFF),)


def test_an_empty_set_has_nothing(load: Load) -> None:
    pipeline = load("sets")
    assert [taken(pipeline, kind) for kind in (0, 1, 7)] == [NOTHING, PAIR, NOTHING]


def test_members_come_and_go(load: Load) -> None:
    pipeline = load("sets")
    tagged = pipeline.value_sets["SwitchParser.tagged"]
    tagged.set([exactly(7), exactly(0x1234), exactly(1)])
    assert [taken(pipeline, kind) for kind in (7, 8, 0x1234)] == [TAG, NOTHING, TAG]
    assert taken(pipeline, 1) == PAIR  # the case before the set comes first
    tagged.set([exactly(8)])
    assert [taken(pipeline, kind) for kind in (7, 8)] == [NOTHING, TAG]
    assert tagged.members == (exactly(8),)


def test_members_are_written_as_in_p4() -> None:
    switch = Switch.from_file(PROGRAMS / "sets.json", PROGRAMS / "sets.p4info.txtpb", engine="interpreter")
    tagged, paired = switch.value_sets["tagged"], switch.value_sets["paired"]
    tagged.add(7)
    tagged.add("0x1200 &&& 0xff00")
    tagged.add("20..21")
    assert [taken(switch.pipeline, kind) for kind in (7, 8, 0x1234, 19, 20, 21, 22)] == [
        *(TAG, NOTHING, TAG, NOTHING, TAG, TAG, NOTHING),
    ]
    assert tagged.members == ["7", "0x1200 &&& 0xff00", "20..21"]
    assert repr(tagged) == "<value set SwitchParser.tagged: 7; 0x1200 &&& 0xff00; 20..21>"
    tagged.remove("20..21")
    assert (len(tagged), taken(switch.pipeline, 20)) == (2, NOTHING)
    tagged.clear()
    assert taken(switch.pipeline, 7) == NOTHING
    paired.add(4, "0x100 &&& 0xf00")
    assert paired.members == ["4, 0x100 &&& 0xf00"]
    with pytest.raises(BadEntry, match="has 2 fields, and 1 values are given"):
        paired.add(4)
    with pytest.raises(EntryExists, match="has the member 4, "):
        paired.add(4, (0x100, 0xF00))
    with pytest.raises(EntryMissing, match="no member 5"):
        tagged.remove(5)


def test_one_set_serves_several_states(load: Load) -> None:
    pipeline = load("sets")
    pipeline.value_sets["SwitchParser.tagged"].set([exactly(7), exactly(0x0900)])
    assert taken(pipeline, 7, rest=b"\x00\x09\x00\x00\x00") == BOTH
    assert taken(pipeline, 7, rest=b"\x00\x09\x01\x00\x00") == TAG


def test_several_fields_and_masks(load: Load) -> None:
    pipeline = load("sets")
    pipeline.value_sets["SwitchParser.paired"].set([(Ternary(4, 0xF), Ternary(0x100, 0xF00))])
    assert [taken(pipeline, 9, version) for version in (0x4100, 0x41FF, 0x4200, 0x5100)] == [
        PAIR,
        PAIR,
        NOTHING,
        NOTHING,
    ]


def test_what_does_not_fit_changes_nothing(load: Load) -> None:
    tagged = load("sets").value_sets["SwitchParser.tagged"]
    tagged.set([exactly(7)])
    with pytest.raises(TableFull):
        tagged.set([exactly(number) for number in range(4)])
    with pytest.raises(BadEntry):
        tagged.set([exactly(2), exactly(2)])
    assert tagged.members == (exactly(7),)


def config(name: str = "sets.p4", without: str = "") -> Any:
    """Return the program's config; with another name it is another program.  `without`: a set that P4Info lacks."""
    p4info = parse_p4info((PROGRAMS / "sets.p4info.txtpb").read_text())
    for place in [place for place, one in enumerate(p4info.value_sets) if one.preamble.alias == without]:
        del p4info.value_sets[place]
    document = json.loads((PROGRAMS / "sets.json").read_bytes()) | {"program": name}
    return v1.ForwardingPipelineConfig(p4info=p4info, p4_device_config=json.dumps(document).encode())


@pytest.fixture
def client(rig: Rig) -> Client:
    made = rig.primary()
    made.set_config(config=config())
    return made


def pairs(*majors: int) -> Any:
    """Return the entry of the set `paired` with such members."""
    [paired] = [one for one in config().p4info.value_sets if one.preamble.alias == "paired"]
    entry = v1.ValueSetEntry(value_set_id=paired.preamble.id)
    for major in majors:
        member = entry.members.add()
        member.match.add(field_id=1).exact.value = bytes([major])
        ternary = member.match.add(field_id=2).ternary
        ternary.value, ternary.mask = b"\x01", b"\xff"
    return entry


def test_p4runtime_writes_and_reads_them(rig: Rig, client: Client) -> None:
    entry = pairs(4, 6)
    paired = entry.value_set_id
    client.modify(value_set_entry=entry)
    assert client.read_one(value_set_entry={"value_set_id": paired}) == entry
    assert [len(found.members) for found in client.read_all(value_set_entry={})] == [0, 2, 0]
    pipeline = rig.device.pipeline
    assert pipeline is not None
    assert [taken(pipeline, 9, version) for version in (0x4301, 0x6F01, 0x4302)] == [PAIR, PAIR, NOTHING]
    entry.members.add(match=entry.members[0].match)
    for kind, code in ((v1.Update.MODIFY, Code.RESOURCE_EXHAUSTED), (v1.Update.INSERT, Code.INVALID_ARGUMENT)):
        with pytest.raises(P4RuntimeError) as error:
            client.write(update(kind, value_set_entry=entry))
        assert error.value.failures[0].code is code
    with pytest.raises(P4RuntimeError):  # all or nothing: the set stays
        client.write(
            update(v1.Update.MODIFY, value_set_entry={"value_set_id": paired}),
            update(v1.Update.MODIFY, value_set_entry={"value_set_id": 5}),
            atomicity="ROLLBACK_ON_ERROR",
        )
    assert len(client.read_one(value_set_entry={"value_set_id": paired}).members) == 2


def test_members_match_by_prefixes_ranges_and_options(rig: Rig, client: Client) -> None:
    [placed] = [one for one in config().p4info.value_sets if one.preamble.alias == "placed"]
    entry = v1.ValueSetEntry(value_set_id=placed.preamble.id)
    for net, length, low, high, side in ((0xA0, 4, 5, 9, 2), (0xB4, 8, 0, 31, None), (0, 0, 63, 63, None)):
        member = entry.members.add()
        if length:
            lpm = member.match.add(field_id=1).lpm
            lpm.value, lpm.prefix_len = bytes([net]), length
        span = member.match.add(field_id=2).range
        span.low, span.high = bytes([low]), bytes([high])
        if side is not None:
            member.match.add(field_id=3).optional.value = bytes([side])
    client.modify(value_set_entry=entry)
    assert entry in client.read_all(value_set_entry={})
    pipeline = rig.device.pipeline
    assert pipeline is not None

    def is_member(net: int, port: int, side: int) -> bool:
        return taken(pipeline, net, port << 2 | side) == TAG

    assert [port for port in range(64) if is_member(0xA7, port, 2)] == [5, 6, 7, 8, 9, 63]
    assert [port for port in range(64) if is_member(0xA7, port, 3)] == [63]
    assert [port for port in range(64) if is_member(0xB4, port, 1)] == [*range(32), 63]
    assert [port for port in range(64) if is_member(0xB5, port, 1)] == [63]
    entry.members[0].match[1].range.low = b"\x01"  # ten blocks in place of five
    entry.members[1].match[1].range.low = b"\x01"
    with pytest.raises(P4RuntimeError) as error:
        client.modify(value_set_entry=entry)
    assert error.value.failures[0].code is Code.RESOURCE_EXHAUSTED
    assert is_member(0xB4, 0, 0)


def test_reconcile_keeps_members_and_does_not_miss_an_empty_set(rig: Rig, client: Client) -> None:
    client.modify(value_set_entry=pairs(4, 6))
    before = rig.device.pipeline
    client.set_config("RECONCILE_AND_COMMIT", config=config("other.p4", without="tagged"))
    pipeline = rig.device.pipeline
    assert pipeline is not None
    assert pipeline is not before
    assert [one for one in client.read_all(value_set_entry={}) if one.members] == [pairs(4, 6)]
    assert [taken(pipeline, 9, version) for version in (0x4301, 0x6F01, 0x4302)] == [PAIR, PAIR, NOTHING]


def test_reconcile_is_refused_where_members_have_no_place(rig: Rig, client: Client) -> None:
    client.modify(value_set_entry=pairs(4))
    before, lacks = rig.device.pipeline, config("other.p4", without="paired")
    with pytest.raises(P4RuntimeError, match="no place for a value_set_entry") as error:
        client.set_config("RECONCILE_AND_COMMIT", config=lacks)
    assert error.value.code is Code.INVALID_ARGUMENT
    assert rig.device.pipeline is before
    assert pairs(4) in client.read_all(value_set_entry={})
    client.modify(value_set_entry=pairs())
    client.set_config("RECONCILE_AND_COMMIT", config=lacks)
    assert len(client.read_all(value_set_entry={})) == 2

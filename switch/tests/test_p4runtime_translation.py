"""Types that P4Info has in another form: wider numbers, strings, enums with a width."""

from __future__ import annotations

from typing import Any

import pytest

from switchsum_switch import ProgramError, Switch
from switchsum_switch.messages.p4runtime import Code, config, parse_p4info, v1
from switchsum_switch.p4runtime.entities import Entities
from switchsum_switch.p4runtime.forms import Forms
from switchsum_switch.p4runtime.packet_io import ControllerHeader
from switchsum_switch.p4runtime.refusal import Refused

from .conftest import PROGRAMS

PROGRAM, P4INFO = PROGRAMS / "translated.json", PROGRAMS / "translated.p4info.txtpb"


class Controller:
    """Writes entries whose keys and parameters are given as the bytes of messages."""

    def __init__(self) -> None:
        self.switch = Switch.from_file(PROGRAM, P4INFO, engine="interpreter")
        info = parse_p4info(P4INFO.read_text())
        self.entities = Entities(v1.ForwardingPipelineConfig(p4info=info), self.switch.pipeline.state)
        self.ids = {one.preamble.alias: one.preamble.id for kind in (info.tables, info.actions) for one in kind}

    def entry(self, table: str, action: str, value: bytes, priority: int = 1, **fields: Any) -> Any:
        made = v1.TableEntry(table_id=self.ids[table], priority=priority)
        for number, (kind, match) in enumerate(fields.items(), start=1):
            made.match.append(v1.FieldMatch(field_id=number, **{kind: match}))
        made.action.action.action_id = self.ids[action]
        made.action.action.params.add(param_id=1, value=value)
        return made

    def insert(self, entry: Any) -> Code:
        update = v1.Update(type=v1.Update.INSERT, entity=v1.Entity(table_entry=entry))
        return self.entities.write([update], v1.WriteRequest.CONTINUE_ON_ERROR)[0].code

    def read(self) -> list[Any]:
        return [entity.table_entry for entity in self.entities.read(v1.Entity(table_entry={}))]

    def group_entry(self, group: bytes, port: bytes, out: bytes) -> Any:
        return self.entry("groups", "forward", out, exact={"value": group}, optional={"value": port})

    def kind_entry(self, key: int, group: bytes) -> Any:
        return self.entry("kinds", "group", group, exact={"value": bytes([key])})


def test_strings_and_wide_numbers_go_to_the_program_and_back() -> None:
    client = Controller()
    entries = [
        client.kind_entry(1, b"uplinks"),
        client.kind_entry(2, b"7"),
        client.group_entry(b"uplinks", b"\3", b"\x01\x01"),
        client.group_entry(b"7", b"\3", b"\5"),
    ]
    assert [client.insert(entry) for entry in entries] == [Code.OK] * 4
    assert client.read() == entries

    def sent(key: int) -> tuple[int, int]:
        [(port, frame)] = client.switch.process(3, bytes([key, 0x10, 0, 0]))
        return port, int.from_bytes(frame[2:4], "big")

    assert sent(1) == (0x101, 1023)  # the highest number stands for the first string
    assert sent(2) == (5, 7)  # a string of digits for its number


def test_metadata_of_packets_has_the_width_of_the_program_on_the_wire() -> None:
    client = Controller()
    schema = client.entities.schema
    assert client.insert(client.kind_entry(1, b"uplinks")) is Code.OK  # the number 1023 from now on
    [(port, frame)] = client.switch.process(300, bytes([255, 0x10, 0, 0]))
    assert (port, len(frame)) == (510, 2 + 4)
    found = schema.packet_in.packet_in(frame)
    assert [(one.metadata_id, one.value) for one in found.metadata] == [(1, b"\x01\x2c"), (2, b"\0")]
    message = v1.PacketOut(payload=bytes([9, 0x10, 0, 0]))
    for number, value in ((1, b"\0\0\x01\x2d"), (2, b"uplinks")):  # a port of 32 bits in P4Info
        message.metadata.add(metadata_id=number, value=value)
    out = schema.packet_out.packet_out(message)
    assert len(out) == 3 + 4
    assert client.switch.process(510, out) == [(301, bytes([9, 0x10, 0x03, 0xFF]))]
    message.metadata[0].value = b"\2\0"  # 512 is no bit<9>
    with pytest.raises(Refused, match="no place"):
        schema.packet_out.packet_out(message)


def header(fields: dict[str, int]) -> Any:
    """Return a P4Info with a packet_in header of such fields."""
    made = config.P4Info()
    metadata = made.controller_packet_metadata.add()
    metadata.preamble.name = "packet_in"
    for number, (name, bits) in enumerate(fields.items(), start=1):
        metadata.metadata.add(id=number, name=name, bitwidth=bits)
    return made


@pytest.mark.parametrize("program", [[], [{"port": 9, "is_clone": 1, "_padding_0": 6}], [{"port": 9}, {"a": 1}]])
def test_a_header_that_does_not_fill_its_last_byte_is_filled_up(program: list[dict[str, int]]) -> None:
    """As in PI: the specification's own example has 10 bits."""
    p4info = header({"port": 9, "is_clone": 1})
    made = ControllerHeader.named(p4info, "packet_in", Forms(p4info.type_info), program)
    found = made.packet_in(bytes([0b1000_0001, 0b1100_0000]) + b"payload")
    assert [one.value for one in found.metadata] == [b"\x01\x03", b"\1"]
    assert found.payload == b"payload"
    assert made.packet_in(b"\0") is None
    message = v1.PacketOut(payload=b"payload", metadata=found.metadata)
    assert made.packet_out(message) == bytes([0b1000_0001, 0b1100_0000]) + b"payload"


def test_a_header_with_other_widths_than_the_programs_is_refused() -> None:
    p4info = header({"port": 9, "is_clone": 1})
    with pytest.raises(Refused, match="other fields than any header of the program"):
        ControllerHeader.named(p4info, "packet_in", Forms(p4info.type_info), [{"port": 16, "is_clone": 8}])
    p4info = header({"port": 0})
    with pytest.raises(Refused, match="other fields"):
        ControllerHeader.named(p4info, "packet_in", Forms(p4info.type_info), [])


def test_what_has_no_place_in_the_program_is_out_of_range() -> None:
    client = Controller()
    assert client.insert(client.group_entry(b"a", b"\2\0", b"\1")) is Code.OUT_OF_RANGE  # 512 is no bit<9>
    assert client.insert(client.group_entry(b"a", b"\1", b"\xff\xff\xff\xff")) is Code.OUT_OF_RANGE
    assert client.insert(client.group_entry(b"a", b"\1", b"\1\0\0\0\0")) is Code.OUT_OF_RANGE  # 33 bits
    assert client.insert(client.group_entry(b"1024", b"\1", b"\1")) is Code.OUT_OF_RANGE
    assert client.insert(client.group_entry(b"", b"\1", b"\1")) is Code.INVALID_ARGUMENT
    assert client.insert(client.group_entry(b"\xff", b"\1", b"\1")) is Code.INVALID_ARGUMENT


def test_a_number_stands_for_one_string() -> None:
    client = Controller()
    assert client.insert(client.kind_entry(1, b"first")) is Code.OK
    assert client.insert(client.kind_entry(2, b"1023")) is Code.INVALID_ARGUMENT
    assert client.insert(client.kind_entry(3, b"first")) is Code.OK
    assert client.insert(client.kind_entry(4, b"second")) is Code.OK
    assert [entry.action.action.params[0].value for entry in client.read()] == [b"first", b"first", b"second"]


def test_prefixes_of_translated_types_are_refused() -> None:
    document = P4INFO.read_text().replace("match_type: OPTIONAL", "match_type: LPM")
    with pytest.raises(ProgramError, match=r"m\.port of table SwitchIngress\.groups"):
        Switch(PROGRAM.read_text(), document, engine="interpreter")


def test_a_width_that_nothing_translates_is_refused() -> None:
    document = P4INFO.read_text().replace("sdn_bitwidth: 32", "sdn_bitwidth: 0").replace("bitwidth: 8", "bitwidth: 9")
    with pytest.raises(ProgramError, match="exact of 9 bits in P4Info, exact of 8 bits in the program"):
        Switch(PROGRAM.read_text(), document, engine="interpreter")

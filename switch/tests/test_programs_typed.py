"""Registers of types with names, and a key of the type error, by P4Runtime."""

from __future__ import annotations

from typing import Any

import pytest

from switchsum_switch import ProgramError, Switch
from switchsum_switch.messages.p4runtime import Code, parse_p4info, v1
from switchsum_switch.p4runtime.entities import Entities

from .conftest import PROGRAMS

PROGRAM, P4INFO = PROGRAMS / "typed.json", PROGRAMS / "typed.p4info.txtpb"


class Controller:
    """Reads and writes the program's entities."""

    def __init__(self) -> None:
        self.switch = Switch.from_file(PROGRAM, P4INFO, engine="interpreter")
        info = parse_p4info(P4INFO.read_text())
        self.entities = Entities(v1.ForwardingPipelineConfig(p4info=info), self.switch.pipeline.state)
        named = (info.tables, info.actions, info.registers)
        self.ids = {one.preamble.alias: one.preamble.id for kind in named for one in kind}

    def write(self, kind: str, **entity: Any) -> Code:
        update = v1.Update(type=v1.Update.Type.Value(kind), entity=v1.Entity(**entity))
        return self.entities.write([update], v1.WriteRequest.CONTINUE_ON_ERROR)[0].code

    def cell(self, register: str, **data: Any) -> Any:
        return v1.RegisterEntry(register_id=self.ids[register], index={"index": 2}, data=data)

    def read(self, register: str) -> Any:
        [entity] = self.entities.read(v1.Entity(register_entry=self.cell(register)))
        return entity.register_entry


@pytest.mark.parametrize(
    ("register", "written", "other", "wrong", "code"),
    [
        ("kinds", {"enum_value": b"\2"}, {"enum_value": b"\1"}, {"enum_value": b"\x10"}, Code.OUT_OF_RANGE),
        ("kinds", {"enum_value": b"\2"}, {"enum_value": b"\0"}, {"bitstring": b"\1"}, Code.INVALID_ARGUMENT),
        ("colours", {"enum": "GREEN"}, {"enum": "RED"}, {"enum": "BLUE"}, Code.INVALID_ARGUMENT),
        (
            "labels",
            {"bitstring": b"\x4d"},
            {"bitstring": b"\x0f\xff\xff"},
            {"bitstring": b"\x10\0\0"},
            Code.OUT_OF_RANGE,
        ),
        ("ports", {"bitstring": b"\1\x2c"}, {"bitstring": b"\1\xff"}, {"bitstring": b"\2\0"}, Code.OUT_OF_RANGE),
    ],
)
def test_cells_have_the_values_of_their_type(register: str, written: Any, other: Any, wrong: Any, code: Code) -> None:
    client = Controller()
    client.switch.process(0, b"\2\0")
    assert client.read(register) == client.cell(register, **written)
    assert client.write("MODIFY", register_entry=client.cell(register, **other)) is Code.OK
    assert client.read(register) == client.cell(register, **other)
    assert client.write("MODIFY", register_entry=client.cell(register, **wrong)) is code
    assert client.read(register) == client.cell(register, **other)


def test_an_entry_matches_an_error_by_its_number() -> None:
    client = Controller()
    entry = v1.TableEntry(table_id=client.ids["errors"])
    entry.match.add(field_id=1).exact.value = b"\1"  # PacketTooShort, the second of P4Info's errors
    entry.action.action.action_id = client.ids["forward"]
    entry.action.action.params.add(param_id=1, value=b"\7")
    assert client.write("INSERT", table_entry=entry) is Code.OK
    assert [read.table_entry for read in client.entities.read(v1.Entity(table_entry={}))] == [entry]
    assert [client.switch.process(0, frame)[0][0] for frame in (b"\0\0", b"\0")] == [1, 7]


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("underlying_type {\n        bitwidth: 4", "underlying_type {\n        bitwidth: 5", "5 bits in P4Info, 4 in"),
        ('enum {\n      name: "colour_t"', 'enum {\n      name: "color_t"', "a type that is not supported"),
    ],
)
def test_types_that_contradict_the_program_are_refused(tmp_path: Any, old: str, new: str, text: str) -> None:
    source = P4INFO.read_text()
    assert old in source
    path = tmp_path / "wrong.p4info.txtpb"
    path.write_text(source.replace(old, new))
    with pytest.raises(ProgramError, match=text):
        Switch.from_file(PROGRAM, path, engine="interpreter")

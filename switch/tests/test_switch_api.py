"""`Switch`, as the writer of a P4 program uses it in a test of his own."""

from __future__ import annotations

import ipaddress
import json
import shutil
import stat
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from switchsum_switch import BadEntry, EntryExists, EntryMissing, ProgramError, ReadOnly, ShownEntry, Switch
from switchsum_switch.execution.pipeline import EngineName
from switchsum_switch.messages.matches import Exact, Lpm, Match, MatchKind, Range, Ternary
from switchsum_switch.names.named_tables import params_of
from switchsum_switch.names.values import match_of, match_text, number_of, text_of
from switchsum_switch.state.tables import ActionSpec, KeySpec, ParamSpec

from .conftest import PROGRAMS

FORWARDER = Path(__file__).parents[2] / "exercises" / "switchsum_exercises" / "forwarder"
FRAME = bytes.fromhex("1122334455660000000000010800") + b"payload"
STATION = "hdr.ethernet.destination"


def files(name: str, folder: Path = PROGRAMS) -> tuple[Path, Path]:
    return folder / f"{name}.json", folder / f"{name}.p4info.txtpb"


@pytest.fixture(params=["interpreter", "native"])
def engine(request: pytest.FixtureRequest) -> EngineName:
    made: EngineName = request.param
    return made


@pytest.fixture
def switch(engine: EngineName) -> Switch:
    return Switch.from_file(*files("solution", FORWARDER), engine=engine)


@pytest.mark.parametrize("mac", ["11:22:33:44:55:66", "11-22-33-44-55-66", 0x112233445566, FRAME[:6], "0x112233445566"])
def test_an_entry_by_names_forwards(switch: Switch, mac: Any) -> None:
    switch.tables["stations"].insert({STATION: mac}, "forward", port=np.uint16(3))
    assert switch.process(1, FRAME) == [(3, FRAME)]
    assert switch.process(1, np.frombuffer(FRAME, np.uint8)) == [(3, FRAME)]
    assert switch.process(np.int64(1), bytearray(FRAME)) == [(3, FRAME)]


def test_a_scapy_packet_is_a_frame_and_its_fields_are_values(switch: Switch) -> None:
    from scapy.layers.l2 import Ether

    packet = Ether(dst="11:22:33:44:55:66", src="00:00:00:00:00:01", type=0x0800) / b"payload"
    switch.tables["stations"].insert({STATION: packet.dst}, "forward", port=3)
    assert switch.process(1, packet) == [(3, FRAME)]


def test_entries_are_read_back_changed_and_removed(switch: Switch) -> None:
    table = switch.tables["SwitchIngress.stations"]
    table.insert({STATION: 7}, "forward", port=3)
    assert table.entries() == [
        ShownEntry(match={STATION: "00:00:00:00:00:07"}, priority=0, action="SwitchIngress.forward", params={"port": 3})
    ]
    assert str(table.entries()[0]) == f"{STATION}=00:00:00:00:00:07 -> SwitchIngress.forward(port=3)"
    table.modify(table.entries()[0].match, "flood", group=1)
    assert [entry.action for entry in table] == ["SwitchIngress.flood"]
    with pytest.raises(EntryExists, match=f"already has the entry {STATION}=00:00:00:00:00:07"):
        table.insert({STATION: 7}, "drop")
    table.delete({STATION: 7})
    with pytest.raises(EntryMissing):
        table.delete({STATION: 7})
    table.insert({STATION: 8}, "drop")
    table.clear()
    assert len(table) == 0


def test_parameters_may_be_a_dict(switch: Switch) -> None:
    table = switch.tables["stations"]
    table.insert({STATION: 7}, "forward", {"port": 3})
    table.modify({STATION: 7}, "forward", {"port": 4})
    assert table.entries()[0].params == {"port": 4}
    table.set_default("forward", {"port": 5})
    assert table.default.params == {"port": 5}
    spec = ActionSpec(name="queue", params=(ParamSpec(name="priority", width=3),))
    assert params_of(spec, {"priority": 5}) == (5,)
    with pytest.raises(BadEntry, match=r"lacks priority.*give the parameters as a dict"):
        params_of(spec, {})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"engine": "fast"}, "there are native and interpreter"),
        ({"drop_port": 512}, "drop_port is 0 to 511, not 512"),
        ({"priority_queues": 0}, "priority_queues is 1 to"),
        ({"max_passes": 0}, "max_passes is 1 to"),
    ],
)
def test_options_that_cannot_be_are_named(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Switch.from_file(files("solution", FORWARDER)[0], **options)


def test_a_source_is_no_program() -> None:
    with pytest.raises(ProgramError, match=r"Switch\.from_p4 compiles it"):
        Switch.from_file(FORWARDER / "solution.p4")


@pytest.mark.parametrize(
    ("number", "width", "name", "shown"),
    [
        (7, 48, "h.eth.dst", "00:00:00:00:00:07"),
        (2_500_000, 48, "standard_metadata.ingress_global_timestamp", "2500000"),
        (0x0A000001, 32, "hdr.ip.src", "10.0.0.1"),
        (0x0A000001, 32, "hdr.ip.srcAddr", "10.0.0.1"),
        (0x0A000001, 32, "hdr.tcp.seq", "0x0a000001"),
        (2048, 16, "h.eth.type", "2048"),
    ],
)
def test_numbers_are_shown_as_their_names_say(number: int, width: int, name: str, shown: str) -> None:
    assert text_of(number, width, name) == shown


def test_groups_and_sessions_take_ports(switch: Switch) -> None:
    switch.multicast.set(1, [2, (3, 7)])
    switch.clones.set(5, [4])
    assert repr(switch.multicast) == "<multicast groups: 1 to port 2 instance 0, port 3 instance 7>"
    assert repr(switch.clones) == "<clone sessions: 5 to port 4 instance 0>"


def test_the_default_action(switch: Switch) -> None:
    table = switch.tables["stations"]
    table.set_default("forward", port=5)
    assert switch.process(1, FRAME) == [(5, FRAME)]
    assert table.default.params == {"port": 5}


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        (lambda switch: switch.tables["station"], KeyError, "there are: SwitchIngress.stations"),
        (lambda switch: switch.registers["x"], KeyError, "there is no register"),
        (lambda switch: insert(switch, {"destination": 7}), KeyError, None),
        (lambda switch: insert(switch, {"dst": 7}), KeyError, STATION),
        (lambda switch: insert(switch, {}), BadEntry, f"the exact key {STATION} has no value"),
        (lambda switch: insert(switch, {STATION: 7}, "send"), KeyError, "SwitchIngress.forward, "),
        (lambda switch: insert(switch, {STATION: 7}, port=512), ValueError, r"does not fit bit<9> \(0 to 511\)"),
        (lambda switch: insert(switch, {STATION: 7}, port=-1), ValueError, "does not fit"),
        (lambda switch: insert(switch, {STATION: 7}, out=1), KeyError, "there are: port"),
        (lambda switch: switch.tables["stations"].insert({STATION: 7}, "forward"), BadEntry, "lacks port"),
        (lambda switch: insert(switch, {STATION: 1 << 48}), ValueError, r"does not fit bit<48>"),
        (lambda switch: insert(switch, {STATION: "10.0.0.1"}), ValueError, "no number or MAC address of 48 bits"),
        (lambda switch: insert(switch, {STATION: 1.5}), TypeError, "no number, address or bytes"),
        (lambda switch: insert(switch, {STATION: 7}, priority=1), BadEntry, "its entries have no priority"),
        (lambda switch: insert(switch, {STATION: 7}, priority=1.5), TypeError, "a priority is a whole number, not 1.5"),
        (lambda switch: switch.process(600, FRAME), ValueError, "ports are numbered from 0 to 511"),
        (lambda switch: switch.process(-1, FRAME), ValueError, "no port -1"),
        (lambda switch: switch.process("1", FRAME), TypeError, "a port is a number"),
        (lambda switch: switch.process(True, FRAME), TypeError, "a port is a number"),
        (lambda switch: switch.process(1, 20), TypeError, "not int"),
        (lambda switch: switch.process(1, "frame"), TypeError, "not str"),
        (lambda switch: switch.process(1, np.zeros(20)), TypeError, "not of float64"),
        (lambda switch: switch.multicast.set(1, [(600, 0)]), ValueError, "port 600"),
        (lambda switch: switch.multicast.set(1, 5), TypeError, "a list of ports or of pairs"),
        (lambda switch: switch.multicast.set(1, [2, 2]), ValueError, "port 2, instance 0 is named twice"),
        (lambda switch: switch.clones.set(-1, [(1, 0)]), ValueError, "clone session -1"),
        (lambda switch: switch.clones.set(1 << 15, [(1, 0)]), ValueError, "not between 0 and 32767"),
        (lambda switch: switch.tables["stations"].insert(7, "drop"), TypeError, "a dict of values by key, not 7"),
        (lambda switch: switch.tables["stations"].insert({STATION: 7}, "forward", 3), TypeError, "port=3"),
        (lambda switch: switch.tables["stations"].delete({STATION: 7}), EntryMissing, f"{STATION}=00:00:00:00:00:07"),
    ],
)
def test_mistakes_say_what_there_is(wrong: Any, error: type[Exception], text: str | None) -> None:
    switch = Switch.from_file(*files("solution", FORWARDER), engine="interpreter")
    if text is None:  # the end of a key's name is enough
        wrong(switch)
        return
    with pytest.raises(error, match=text):
        wrong(switch)
    assert len(switch.tables["stations"]) == 0


def insert(switch: Switch, match: dict[str, Any], action: str = "forward", **params: Any) -> None:
    params = params or {"port": 1}
    if params == {"priority": 1}:
        params["port"] = 1
    switch.tables["stations"].insert(match, action, **params)


KEYS = {kind: KeySpec(name="key", width=32, kind=kind) for kind in MatchKind}


@pytest.mark.parametrize(
    ("kind", "value", "match", "shown"),
    [
        (MatchKind.EXACT, "10.0.0.1", Exact(0x0A000001), "0x0a000001"),
        (MatchKind.EXACT, ipaddress.ip_address("10.0.0.1"), Exact(0x0A000001), "0x0a000001"),
        (MatchKind.LPM, "10.1.0.0/8", Lpm(0x0A000000, 8), "10.0.0.0/8"),
        (MatchKind.LPM, ("10.0.0.0", 8), Lpm(0x0A000000, 8), "10.0.0.0/8"),
        (MatchKind.LPM, ipaddress.ip_network("10.0.0.0/8"), Lpm(0x0A000000, 8), "10.0.0.0/8"),
        (MatchKind.LPM, "10.0.0.1", Lpm(0x0A000001, 32), "10.0.0.1/32"),
        (MatchKind.LPM, None, Lpm(0, 0), "0.0.0.0/0"),
        (MatchKind.TERNARY, "0x08 &&& 0x0f", Ternary(8, 15), "0x8 &&& 0xf"),
        (MatchKind.TERNARY, (0xFF, 0x0F), Ternary(15, 15), "0xf &&& 0xf"),
        (MatchKind.TERNARY, 5, Ternary(5, 0xFFFFFFFF), "0x00000005"),
        (MatchKind.TERNARY, None, Ternary(0, 0), "*"),
        (MatchKind.RANGE, "10..20", Range(10, 20), "0x0000000a..0x00000014"),
        (MatchKind.RANGE, (10, 20), Range(10, 20), "0x0000000a..0x00000014"),
        (MatchKind.RANGE, 7, Range(7, 7), "0x00000007..0x00000007"),
    ],
)
def test_forms_of_matches(kind: MatchKind, value: Any, match: Match, shown: str) -> None:
    made = match_of(value, KEYS[kind], "key")
    assert made == match
    assert match_text(made, KEYS[kind]) == shown
    if shown != "*":  # what is shown is a form that is taken
        assert match_of(shown, KEYS[kind], "key") == match


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (MatchKind.LPM, "10.0.0.0/33", "longer than the 32 bits"),
        (MatchKind.LPM, "ten/8", "'ten' is no number"),
        (MatchKind.RANGE, (20, 10), "is empty"),
        (MatchKind.TERNARY, (1 << 32, 1), "does not fit"),
        (MatchKind.EXACT, None, "None is no number"),
    ],
)
def test_matches_that_cannot_be(kind: MatchKind, value: Any, text: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"key: .*{text}"):
        match_of(value, KEYS[kind], "key")


def test_numbers_of_all_kinds() -> None:
    assert number_of("2001:db8::1", 128, "x") == int(ipaddress.ip_address("2001:db8::1"))
    assert number_of(-1, 8, "x", signed=True) == 0xFF
    with pytest.raises(ValueError, match="is an address of 32 bits, not 128"):
        number_of(ipaddress.ip_address("10.0.0.1"), 128, "x")
    with pytest.raises(ValueError, match=r"int<8> \(-128 to 127\)"):
        number_of(128, 8, "x", signed=True)


def test_a_cell_has_a_number() -> None:
    switch = Switch.from_file(*files("stateful"), engine="interpreter")
    for array in (switch.registers["sevens"], switch.counters["events"]):
        for wrong in ("a", 1.5):
            with pytest.raises(TypeError, match="has a number"):
                array[wrong]  # type: ignore[index]
    with pytest.raises(ValueError, match=r"does not fit bit<136>$"):
        switch.registers["longs"][0] = 1 << 136


def test_registers_are_arrays(engine: EngineName) -> None:
    switch = Switch.from_file(*files("stateful"), engine=engine)
    sevens, numbers, tags = (switch.registers[name] for name in ("sevens", "numbers", "tags"))
    sevens[2] = 5
    sevens[3:5] = [6, 7]
    assert sevens[:].tolist() == [0, 0, 5, 6, 7, 0, 0, 0]
    assert sevens[:].dtype == np.uint64
    np.testing.assert_array_equal(sevens, [0, 0, 5, 6, 7, 0, 0, 0])
    sevens[:] = 0
    assert not np.asarray(sevens).any()
    numbers[-1] = -3  # of int<16>
    assert numbers[7] == -3
    assert numbers[:].dtype == np.int64
    tags[0] = 1 << 80  # of bit<88>
    assert tags[:].tolist()[0] == 1 << 80
    with pytest.raises(IndexError, match="8 cells, 0 to 7, none of index 8"):
        sevens[8]
    with pytest.raises(ValueError, match="does not fit bit<7>"):
        sevens[0] = 128
    with pytest.raises(ValueError, match="2 values for 8 cells"):
        sevens[:] = [1, 2]
    assert "sevens of 8 bit<7>: [0, 0, 0, 0" in repr(sevens)


def test_counters_are_arrays(engine: EngineName) -> None:
    switch = Switch.from_file(*files("stateful"), engine=engine)
    switch.process(1, bytes(64))
    events = switch.counters["events"]
    assert events.packets.tolist() == [2, 0, 0, 0]  # the program counts twice
    assert events.bytes.tolist() == [128, 0, 0, 0]
    assert events[0] == (2, 128)
    with pytest.raises(IndexError, match=r"counter SwitchIngress\.events has 4 cells"):
        events[4]
    events.clear()
    assert not events.packets.any()


def test_a_snapshot_brings_everything_back(engine: EngineName) -> None:
    switch = Switch.from_file(*files("solution", FORWARDER), engine=engine)
    table = switch.tables["stations"]
    for number in range(4):
        table.insert({STATION: number}, "forward", port=number)
    table.delete({STATION: 1})
    switch.multicast.set(1, [(7, 0), (8, 0)])
    kept, entries = switch.snapshot(), table.entries()
    table.clear()
    table.insert({STATION: 9}, "flood", group=1)
    switch.multicast.delete(1)
    switch.clones.set(3, [(1, 1)])
    switch.restore(kept)
    assert table.entries() == entries
    assert switch.process(1, bytes(5) + b"\2" + bytes(8)) == [(2, bytes(5) + b"\2" + bytes(8))]
    assert list(switch.multicast.groups()) == [1]
    assert not switch.clones.sessions()
    table.insert({STATION: 1}, "forward", port=1)  # the row that was free is free again
    assert switch.process(2, bytes(5) + b"\1" + bytes(8)) == [(1, bytes(5) + b"\1" + bytes(8))]
    with pytest.raises(ValueError, match="another program"):
        Switch.from_file(PROGRAMS / "stateful.json", engine="interpreter").restore(kept)


def test_a_snapshot_keeps_the_order_of_entries_and_their_counts(engine: EngineName) -> None:
    switch = Switch.from_file(*files("matching"), engine=engine)
    specs = {name: table.table.spec for name, table in switch.tables.items()}
    names = [name for name, spec in specs.items() if spec.prioritised and not spec.const_entries]
    for name in names:
        table = switch.tables[name]
        exact = {key: 0 for key, kind in table.keys.items() if kind.startswith("exact")}
        action, params = next(iter(table.actions.items()))
        table.insert(exact, action, priority=1, **dict.fromkeys(params, 0))
    kept = switch.snapshot()
    before = {name: table.entries() for name, table in switch.tables.items() if len(table)}
    switch.process(1, bytes(64))
    switch.restore(kept)
    assert {name: table.entries() for name, table in switch.tables.items() if len(table)} == before
    assert names


def test_a_trace_tells_all_and_changes_nothing(engine: EngineName) -> None:
    switch = Switch.from_file(*files("stateful"), engine=engine)
    before = switch.snapshot()
    trace = switch.trace(1, bytes(64))
    assert [step.detail["header"] for step in trace.find("extract")] == ["request"]
    assert trace.find("state")[0].text == "state start"
    assert trace.find("register")
    assert trace.find("send")[0].detail["frame"]
    assert json.loads(json.dumps(trace.as_json()))["steps"]
    [read] = [step for step in trace.find("register") if step.text.startswith("read SwitchIngress.sevens")]
    [write] = [step for step in trace.find("register") if step.text.startswith("write SwitchIngress.sevens")]
    assert write.detail["index"] == read.detail["index"]
    assert write.text == f"write SwitchIngress.sevens[{read.detail['index']}] = {write.detail['value']:#x} (was 0x0)"
    for array, kept in zip(switch.snapshot().arrays, before.arrays, strict=True):
        np.testing.assert_array_equal(array, kept)
    assert switch.process(1, bytes(64))[0][1].hex() == trace.find("send")[0].detail["frame"]


def test_copies_stand_side_by_side_in_a_trace() -> None:
    switch = Switch.from_file(*files("solution", FORWARDER), traced=True)
    switch.tables["stations"].insert({STATION: "11:22:33:44:55:66"}, "flood", group=1)
    switch.multicast.set(1, [(2, 5), (3, 6)])
    assert switch.process(1, FRAME) == [(2, FRAME), (3, FRAME)]
    [copies] = switch.traces[-1].find("copy")
    assert [step.detail["port"] for step in copies.steps if step.kind == "egress"] == [2, 3]
    [lookup] = switch.traces[-1].find("lookup")
    assert lookup.detail["hit"]
    assert lookup.detail["params"] == [1]


def test_only_the_tables_of_the_p4info_are_shown() -> None:
    program, p4info = files("solution", FORWARDER)
    assert list(Switch.from_file(program, p4info, engine="interpreter").tables) == ["SwitchIngress.stations"]
    with pytest.raises(ProgramError, match="P4Info"):
        Switch.from_file(program, files("stateful")[1], engine="interpreter")


def test_what_p4info_forbids_is_refused() -> None:
    document = files("solution", FORWARDER)[1].read_text()
    assert "action_refs" in document
    scoped = document.replace("  action_refs {\n", "  action_refs {\n    scope: DEFAULT_ONLY\n", 1)
    switch = Switch(files("solution", FORWARDER)[0].read_text(), scoped, engine="interpreter")
    first = next(iter(switch.tables["stations"].actions.items()))
    params = dict.fromkeys(first[1], 1)
    with pytest.raises(BadEntry, match="may not be an entry's action"):
        switch.tables["stations"].insert({STATION: 1}, first[0], **params)
    switch.tables["stations"].set_default(first[0], **params)


def test_const_tables_stay() -> None:
    document = json.loads(files("solution", FORWARDER)[0].read_text())
    table = next(one for one in document["pipelines"][0]["tables"] if one["name"] == "SwitchIngress.stations")
    table["entries"] = []
    switch = Switch(json.dumps(document), engine="interpreter")
    with pytest.raises(ReadOnly):
        switch.tables["stations"].insert({STATION: 1}, "drop")


def test_a_program_is_compiled_by_the_p4c_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "own.p4"
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProgramError, match=r"neither p4c-bm2-ss nor p4c is on PATH; https://github\.com/p4lang/p4c"):
        Switch.from_p4(source)
    program, p4info = files("solution", FORWARDER)
    compiler = tmp_path / "p4c-bm2-ss"
    compiler.write_text(
        f"#!{sys.executable}\nimport shutil, sys\n"
        "options = sys.argv[1:]\n"
        "if '-DWRONG' in options: sys.exit('own.p4(3): [--Werror=type-error] error')\n"
        f"shutil.copy({str(program)!r}, options[options.index('-o') + 1])\n"
        f"shutil.copy({str(p4info)!r}, options[options.index('--p4runtime-files') + 1])\n"
    )
    compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(ProgramError, match="there is no file"):
        Switch.from_p4(source)
    source.touch()
    assert "SwitchIngress.stations" in Switch.from_p4(source, engine="interpreter").tables
    with pytest.raises(ProgramError, match="type-error"):
        Switch.from_p4(source, compiler_options=("-DWRONG",))


@pytest.mark.skipif(shutil.which("p4c-bm2-ss") is None, reason="p4c-bm2-ss is not on PATH")
def test_real_p4c_compiles_a_program(tmp_path: Path) -> None:
    source = tmp_path / "own.p4"
    source.write_bytes((FORWARDER / "solution.p4").read_bytes())
    switch = Switch.from_p4(source)
    switch.tables["stations"].insert({STATION: 1}, "forward", port=3)
    frame = bytes(5) + b"\1" + bytes(8)
    assert switch.process(1, frame) == [(3, frame)]
    source.write_text(source.read_text().replace("transition accept", "transition nowhere"))
    with pytest.raises(ProgramError, match="nowhere"):
        Switch.from_p4(source)


def test_a_notebook_shows_tables_and_arrays(switch: Switch) -> None:
    switch.tables["stations"].insert({STATION: 7}, "forward", port=3)
    shown = switch._repr_html_()
    assert "1 entries" in shown
    assert "00:00:00:00:00:07 -&gt; SwitchIngress.forward(port=3)" in shown
    assert "<pre>" in switch.trace(1, FRAME)._repr_html_()

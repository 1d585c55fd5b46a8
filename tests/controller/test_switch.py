from __future__ import annotations

import queue
import random
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from switchsum_controller.jobs.slots import Cell, SlotRange
from switchsum_controller.switches import switch_session as module
from switchsum_controller.switches.client import DEFAULT_ELECTION_ID, MAX_ELECTION_ID, P4RuntimeClient, Pipeline
from switchsum_controller.switches.connection import SwitchConnection
from switchsum_controller.switches.schema import Schema, encode_group
from switchsum_controller.switches.switch_session import BMV2_LIMITS, Limits, Session
from switchsum_controller.tables.entries import Change, Entry, Group, Replica, SwitchState, Write, diff
from switchsum_controller.tables.names import ADMISSION, FLOOD_GROUP, FORWARDING, IDENTITY, RESULT_ADDRESS, STATIONS
from switchsum_controller.trees.branch import Branch, BranchMember
from switchsum_protocol.errors import SwitchLost
from switchsum_protocol.frame import Header, Kind, Reason
from switchsum_protocol.wire import Packet, build_frame
from switchsum_switch.messages.p4runtime import Code, P4RuntimeError, parse_p4info, v1
from switchsum_switch.wires.headers import Address

from .rig import LANES, LONG_S, SWITCH, AnySwitch, Bmv2Switch, eventually, program

pytestmark = pytest.mark.timeout(120)

IDENTIFIED = Entry(
    table=IDENTITY,
    action="SwitchIngress.identify",
    params={"mac": SWITCH.mac, "ip": SWITCH.ip, "port": SWITCH.port, "growth_bytes": 512},
    metadata=b"who",
    is_default=True,
)
FLOODED = Group(group=FLOOD_GROUP, replicas=frozenset({Replica(port=1, instance=0), Replica(port=2, instance=0)}))
BROADCAST = Entry(
    table=STATIONS,
    match={"mac": 0xFFFF_FFFF_FFFF},
    action=f"{FORWARDING}.flood",
    params={"group": FLOOD_GROUP},
)
RECORD = Entry(table=RESULT_ADDRESS, match={"job": 1, "rank": 0xFFFF}, action="SwitchEgress.drop", metadata=b'{"a":1}')
STATE = SwitchState.of([IDENTIFIED, FLOODED, BROADCAST, RECORD])
FRAME = b"\xff" * 6 + bytes.fromhex("020000000009") + b"\x12\x34" + bytes(60)


def connect(switch: AnySwitch, lanes: int = LANES, **arguments: Any) -> tuple[Session, bool]:
    connected = Session(program(lanes), switch.address, **arguments)
    return connected, connected.connect()


def load_by_hand(switch: AnySwitch) -> P4RuntimeClient:
    """Load the program as somebody does who knows nothing of the controller."""
    client = P4RuntimeClient(switch.address, election_id=DEFAULT_ELECTION_ID)
    client.connect()
    build = program()
    client.set_pipeline(Pipeline(p4info=parse_p4info(build.p4info), device_config=build.device_config, cookie=1))
    return client


def test_a_program_is_loaded_once(switch: AnySwitch) -> None:
    first, was_loaded = connect(switch)
    assert was_loaded
    first.write(diff(first.read_state(), STATE, ADMISSION))
    first.close()
    second, was_loaded = connect(switch)
    assert not was_loaded
    assert second.read_state() == STATE
    second.close()


def test_a_switch_that_drops_metadata_is_refused_with_the_reason(
    switch: AnySwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = P4RuntimeClient.read

    def without_metadata(client: P4RuntimeClient, entities: Any) -> Any:
        found = list(read(client, entities))
        for entity in [one for one in found if one.HasField("table_entry")]:
            entity.table_entry.ClearField("metadata")
        return found

    connection = SwitchConnection(switch.address, lambda: Session(program(), switch.address))
    session, _ = connection.open()
    connection.attach(session)
    connection.write_difference(STATE)
    assert connection.is_settled  # a switch that keeps it
    connection.close()
    monkeypatch.setattr(P4RuntimeClient, "read", without_metadata)
    session, _ = connection.open()
    connection.attach(session)
    with pytest.raises(SwitchLost, match="does not keep the metadata of table entries"):
        connection.write_difference(STATE)
    assert not connection.is_up
    assert "in which the controller keeps its jobs" in connection.refusal


def test_another_program_takes_the_place_of_the_first_and_leaves_nothing_of_it(switch: AnySwitch) -> None:
    first, _ = connect(switch)
    first.write(diff(first.read_state(), STATE, ADMISSION))
    first.close()
    second, was_loaded = connect(switch, lanes=256)
    assert was_loaded
    left = second.read_state()
    assert left.groups == {}
    assert [entry.table for entry in left.entries.values()] == [IDENTITY]
    second.close()


def test_another_build_over_which_a_job_runs_keeps_its_place(switch: AnySwitch) -> None:
    first, _ = connect(switch)
    place = BranchMember(rank=0, bit=0, address=replace(SWITCH, ip=SWITCH.ip + 1), port=1, cookie=5)
    slots = SlotRange(first=0, count=4)
    branch = Branch(job=1, tree=0, epoch=1, slots=slots, group=7, places=(place,))
    running = SwitchState.of([*STATE.entries.values(), *STATE.groups.values(), *branch.items()])
    first.write(diff(first.read_state(), running, ADMISSION))
    first.close()
    with pytest.raises(P4RuntimeError, match=r"and a job with 1 entries of members: .* its version") as caught:
        connect(switch, lanes=256)
    both = [f"{program(lanes).cookie:016x}" for lanes in (LANES, 256)]
    assert "another build of this program ({}, where this controller has {})".format(*both) in str(caught.value)
    again, was_loaded = connect(switch)
    assert not was_loaded
    assert again.read_state() == running
    again.write(diff(running, STATE, ADMISSION))
    again.close()
    assert connect(switch, lanes=256)[1]


def test_a_program_of_others_keeps_its_place_while_it_has_entries(switch: AnySwitch) -> None:
    folder = Path(str(files("switchsum_exercises") / "forwarder"))
    p4info = parse_p4info((folder / "solution.p4info.txtpb").read_text())
    config = (folder / "solution.json").read_bytes()
    entry = Entry(
        table="SwitchIngress.stations",
        match={"hdr.ethernet.destination": 9},
        action="SwitchIngress.forward",
        params={"port": 1},
    )
    update = v1.Update(type="INSERT", entity=v1.Entity(table_entry=Schema(p4info).encode_entry(entry)))
    other = P4RuntimeClient(switch.address)
    other.connect()
    other.set_pipeline(Pipeline(p4info=p4info, device_config=config, cookie=1))
    other.write([update])
    other.close()
    with pytest.raises(P4RuntimeError, match="another program, with 1 entries of another controller"):
        connect(switch)
    other = P4RuntimeClient(switch.address)
    other.connect()
    found = other.get_pipeline()
    assert found is not None
    assert found.device_config == config
    other.write([v1.Update(type="DELETE", entity=update.entity)])
    other.close()
    _, was_loaded = connect(switch)
    assert was_loaded


def test_what_is_written_is_what_is_read(switch: AnySwitch) -> None:
    connected, _ = connect(switch)
    other = SwitchState.of(
        [
            IDENTIFIED,
            Group(group=FLOOD_GROUP, replicas=frozenset({Replica(port=3, instance=5), Replica(port=3, instance=6)})),
            Group(group=7, replicas=frozenset({Replica(port=4, instance=31)})),
            Entry(
                table=STATIONS,
                match={"mac": 0},
                action=f"{FORWARDING}.forward",
                params={"port": 511},
            ),
            Entry(table=RESULT_ADDRESS, match={"job": 1, "rank": 0xFFFF}, action="SwitchEgress.drop", metadata=b"2"),
        ]
    )
    for desired in (STATE, other, STATE):
        connected.write(diff(connected.read_state(), desired, ADMISSION))
        assert connected.read_state() == desired
    connected.close()


def copies_of_a_broadcast(switch: AnySwitch) -> int:
    """Flood a frame to ports 1 and 2; return how often it comes out of port 1."""
    switch.send(3, FRAME)
    return [port for port, frame in switch.collect(at_least=2) if frame == FRAME].count(1)


def test_replicas_of_before_a_reload_do_not_come_back(switch: AnySwitch) -> None:
    first, _ = connect(switch)
    first.write(diff(first.read_state(), STATE, ADMISSION))
    assert copies_of_a_broadcast(switch) == 1
    first.close()
    client = load_by_hand(switch)  # deletes no groups
    schema = Schema(parse_p4info(program().p4info))
    client.write(
        [
            v1.Update(type="INSERT", entity=encode_group(FLOODED)),
            v1.Update(type="INSERT", entity=v1.Entity(table_entry=schema.encode_entry(BROADCAST))),
        ]
    )
    ghosts = isinstance(switch, Bmv2Switch)
    assert copies_of_a_broadcast(switch) == 1 + ghosts
    client.set_pipeline(
        Pipeline(p4info=parse_p4info(program().p4info), device_config=program().device_config, cookie=1)
    )
    client.close()
    second, was_loaded = connect(switch)
    assert was_loaded
    second.write(diff(second.read_state(), STATE, ADMISSION))
    assert copies_of_a_broadcast(switch) == 1
    second.close()


def test_limits_are_found_out(switch: AnySwitch) -> None:
    connected, _ = connect(switch)
    assert connected.find_limits() == (BMV2_LIMITS if isinstance(switch, Bmv2Switch) else Limits())
    connected.close()


def test_cells_are_read_cleared_and_asked_for_again_when_frames_are_lost(
    switch: AnySwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "QUERY_TIMEOUT_S", 0.05)
    connected, _ = connect(switch)
    connected.write(diff(connected.read_state(), STATE, ADMISSION))
    send, count = connected._client.send_packets, 0

    def send_every_second(packets: list[Any]) -> None:
        nonlocal count
        for packet in packets:
            count += 1
            if count % 2:
                send([packet])

    monkeypatch.setattr(connected._client, "send_packets", send_every_second)
    cells = [(slot, version) for slot in (0, 5, 1023) for version in (0, 1)]
    unused = [Cell(slot=slot, version=version, number=0, seen=0) for slot, version in cells]
    assert connected.query(cells) == unused
    set_number(connected, slot=5, number=0xFFFF_FFFF, seen=3)
    found = connected.query(cells)
    assert found[3] == Cell(slot=5, version=1, number=0xFFFF_FFFF, seen=3)
    connected.clear([found[3]])
    assert connected.query(cells)[3].seen == 0
    assert connected.query([]) == []
    connected.close()


def test_a_new_group_costs_bmv2_alone_two_further_writes(switch: AnySwitch, monkeypatch: pytest.MonkeyPatch) -> None:
    connected, _ = connect(switch)
    before, is_bmv2 = connected.read_state(), connected.find_limits() == BMV2_LIMITS
    write, written = connected._client.write, []

    def note(updates: list[Any], *more: Any) -> None:
        written.append(len(updates))
        write(updates, *more)

    monkeypatch.setattr(connected._client, "write", note)
    steps = diff(before, STATE, ADMISSION)
    connected.write(steps)
    groups = sum(any(isinstance(one.item, Group) for one in step) for step in steps)
    assert groups
    assert len(written) == len(steps) + 2 * groups * is_bmv2
    connected.write(diff(STATE, before, ADMISSION))
    connected.close()


def test_numbers_are_what_queries_tell_of_cells(switch: AnySwitch, monkeypatch: pytest.MonkeyPatch) -> None:
    connected, _ = connect(switch)
    connected.write(diff(connected.read_state(), STATE, ADMISSION))
    is_bmv2 = connected.find_limits() == BMV2_LIMITS
    draw = random.Random(61)
    slots = draw.sample(range(1024), 12)
    for slot in slots[::2]:
        set_number(connected, slot=slot, number=draw.randrange(1 << 32), seen=draw.randrange(1 << 32))
    cells = [(slot, version) for slot in slots for version in (0, 1)]
    states = [(cell.slot, cell.version, cell.number if cell.seen else 0, cell.seen) for cell in connected.query(cells)]
    assert sum(seen > 0 for *_, seen in states) == len(slots[::2])
    if not is_bmv2:  # which has nothing but queries
        monkeypatch.setattr(connected, "query", lambda cells: pytest.fail(f"{len(cells)} queries"))
    found = connected.read_numbers(cells)
    assert [(cell.slot, cell.version, cell.number if cell.seen else 0, cell.seen) for cell in found] == states
    connected.close()


def set_number(connected: Session, *, slot: int, number: int, seen: int) -> None:
    """Write a cell as rounds would leave it."""
    header = Header(kind=Kind.SET, slot=slot, number=number, bitmap=seen)
    frame = build_frame(module.CPU_SOURCE, SWITCH, header)
    for _ in range(2):  # every second one is lost
        packet = connected._schema.encode_packet_out(frame, {"egress_port": 0, "unused": 0})
        connected._client.send_packets([packet])
    connected.query([(slot, number & 1)])  # packet-outs are taken in order: its answer comes when the cell is written


def test_only_what_frames_may_have_changed_is_asked_for(switch: AnySwitch, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[set[int]] = []
    read, clear = Session.read_numbers, Session.clear_reasons

    def noted(session: Session, cells: Any) -> list[Cell]:
        asked.append({slot for slot, _ in cells})
        return read(session, cells)

    def cleared(session: Session, group: int, ranks: int) -> None:
        asked.append({-group})
        clear(session, group, ranks)

    monkeypatch.setattr(Session, "read_numbers", noted)
    monkeypatch.setattr(Session, "clear_reasons", cleared)
    connection = SwitchConnection(switch.address, lambda: Session(program(), switch.address))
    session, was_loaded = connection.open()
    assert was_loaded
    connection.attach(session, was_loaded=was_loaded)
    assert [cell.seen for cell in connection.read_numbers(range(6))] == [0] * 12
    connection.clear_counts(7, 1)
    assert asked == []
    place = BranchMember(rank=0, bit=0, address=replace(SWITCH, ip=SWITCH.ip + 1), port=1, cookie=5)
    slots = SlotRange(first=2, count=3)
    branch = Branch(job=1, tree=0, epoch=1, slots=slots, group=7, places=(place,))
    connection.write_difference(SwitchState.of([*STATE.entries.values(), *STATE.groups.values(), *branch.items()]))
    set_number(session, slot=4, number=1234, seen=1)
    connection.write_difference(STATE)  # what has been used stays so when its entries are gone
    found = {(cell.slot, cell.version): cell.number for cell in connection.read_numbers(range(6)) if cell.seen}
    assert found == {(4, 1234 % 2): 1234}
    connection.clear_counts(7, 1)
    assert asked == [{2, 3, 4}, {-7}]
    connection.close()
    session, was_loaded = connection.open()  # of a controller that was started anew: it knows nothing of before
    assert not was_loaded
    connection.attach(session, was_loaded=was_loaded)
    connection.read_numbers(range(6))
    connection.clear_counts(8, 1)
    assert asked[2:] == [{*range(6)}, {-8}]
    connection.close()


def test_a_switch_that_does_not_answer_queries_is_no_good(switch: AnySwitch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUERY_TIMEOUT_S", 0.01)
    monkeypatch.setenv("SWITCHSUM_START_TIMEOUT", "0.3")
    connected, _ = connect(switch)
    monkeypatch.setattr(connected._client, "send_packets", lambda packets: None)
    with pytest.raises(SwitchLost, match=r"not answered QUERY frames.* for 0.3 s: .*SWITCHSUM_START_TIMEOUT"):
        connected.query([(0, 0)])
    monkeypatch.delenv("SWITCHSUM_START_TIMEOUT")
    monkeypatch.setattr(type(connected._client), "is_connected", False)
    with pytest.raises(SwitchLost, match="no longer answers"):
        connected.query([(0, 0)])
    monkeypatch.undo()
    connected.close()


def test_a_write_that_fails_names_its_update_and_makes_the_others(switch: AnySwitch) -> None:
    connected, _ = connect(switch)
    connected.write([[Write(change=Change.INSERT, item=RECORD)]])
    with pytest.raises(P4RuntimeError) as caught:
        connected.write([[Write(change=Change.INSERT, item=item) for item in (RECORD, BROADCAST)]])
    [failure] = caught.value.failures
    assert (failure.index, failure.code) == (0, Code.ALREADY_EXISTS)
    assert "rank" not in str(failure.code)
    assert failure.update.entity.table_entry.metadata == RECORD.metadata
    assert connected.read_state().has(BROADCAST)
    connected.close()


def test_events_are_counted(switch: AnySwitch) -> None:
    connected, _ = connect(switch)
    connected.write(diff(connected.read_state(), STATE, ADMISSION))
    unknown = b"\x02" * 6 + FRAME[6:]
    for _ in range(3):
        switch.send(1, unknown)
    eventually(lambda: connected.count_events()[Reason.UNKNOWN_DESTINATION] == (3, 3 * len(unknown)))
    assert connected.count_events()[Reason.TRUNCATED] == (0, 0)
    connected.close()


@pytest.mark.parametrize("election_id", [1, 1 << 16, 1 << 100])
def test_only_one_controller_is_primary(switch: AnySwitch, election_id: int) -> None:
    ends: queue.SimpleQueue[P4RuntimeError] = queue.SimpleQueue()
    first, _ = connect(switch, on_end=ends.put)
    second = Session(program(), switch.address, election_id=election_id)
    if election_id > 1 << 16:
        assert not second.connect()
        assert ends.get(timeout=LONG_S).code is Code.ALREADY_EXISTS
        with pytest.raises(P4RuntimeError) as caught:
            first.write([[Write(change=Change.INSERT, item=RECORD)]])
        assert caught.value.code is Code.PERMISSION_DENIED
        second.close()
    else:
        with pytest.raises(P4RuntimeError, match=r"end (it|that controller), .*--election-id"):
            second.connect()
        first.write([[Write(change=Change.INSERT, item=RECORD)]])
    first.close()
    assert ends.empty()


@pytest.mark.parametrize("election_id", [1 << 20, MAX_ELECTION_ID])
def test_who_came_and_went_with_a_high_election_id_locks_nobody_out(switch: AnySwitch, election_id: int) -> None:
    passer_by = P4RuntimeClient(switch.address, election_id=election_id)
    passer_by.connect()
    with pytest.raises(P4RuntimeError, match=f"controller {election_id} is primary.*--election-id"):
        connect(switch)
    passer_by.close()
    connected, _ = connect(switch)
    connected.write([[Write(change=Change.INSERT, item=RECORD)]])
    connected.close()


def test_a_given_election_id_is_kept_and_the_error_names_one_that_would_do(embedded: AnySwitch) -> None:
    passer_by = P4RuntimeClient(embedded.address, election_id=1 << 20)
    passer_by.connect()
    passer_by.close()
    with pytest.raises(P4RuntimeError, match=f"nobody is primary.*--election-id {1 << 20}") as caught:
        connect(embedded, election_id=7)
    assert caught.value.code is Code.NOT_FOUND
    connected, _ = connect(embedded, election_id=1 << 20)
    connected.close()


def test_the_end_of_the_switch_is_noticed(switch: AnySwitch) -> None:
    ends: queue.SimpleQueue[P4RuntimeError] = queue.SimpleQueue()
    connected, _ = connect(switch, on_end=ends.put)
    switch.restart()
    assert ends.get(timeout=LONG_S).code in (Code.UNAVAILABLE, Code.CANCELLED, Code.UNKNOWN)
    connected.close()
    again, was_loaded = connect(switch)
    assert was_loaded
    again.close()


def test_nobody_there_is_said_at_once() -> None:
    with pytest.raises(P4RuntimeError) as caught:
        Session(program(), "127.0.0.1:1").connect()
    assert caught.value.code is Code.UNAVAILABLE


def test_hellos_are_handed_on_with_their_port(switch: AnySwitch) -> None:
    hellos: queue.SimpleQueue[tuple[int, Packet]] = queue.SimpleQueue()
    connected, _ = connect(switch, on_hello=lambda port, packet: hellos.put((port, packet)))
    connected.write(diff(connected.read_state(), STATE, ADMISSION))
    source = Address(mac=0x02_00_00_00_00_03, ip=0x0A00_0003, port=1234)
    header = Header(kind=Kind.HELLO, rank=3, number=1, digest=2)
    switch.send(4, build_frame(source, SWITCH, header))
    port, packet = hellos.get(timeout=LONG_S)
    assert (port, packet.source, packet.header.rank) == (4, source, 3)
    connected.close()


@pytest.mark.parametrize(
    ("details", "words"),
    [
        (
            "Tls handshake failed (TSI_PROTOCOL_FAILURE): SSL_ERROR_SSL: error:1a000064:ECDSA routines:"
            "OPENSSL_internal:BAD_SIGNATURE: certificate signature failure: OK",
            "(certificate signature failure: one side does not believe the other's certificate; SWITCHSUM_TLS",
        ),
        ("Socket closed", "(Socket closed: one side may use TLS and the other not"),
    ],
)
def test_a_certificate_that_is_not_believed_is_named(
    caplog: pytest.LogCaptureFixture, details: str, words: str
) -> None:
    text = f"failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:9: {details}"
    SwitchConnection("127.0.0.1:9", lambda: pytest.fail("nobody is to connect")).note(
        P4RuntimeError("StreamChannel", Code.UNAVAILABLE, text)
    )
    assert words in caplog.text


def test_a_switch_that_is_not_there_is_named_once_and_in_plain_words(caplog: pytest.LogCaptureFixture) -> None:
    link = SwitchConnection("127.0.0.1:9", lambda: pytest.fail("nobody is to connect"))
    text = "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:9: Connection refused"
    for _ in range(2):
        link.note(P4RuntimeError("StreamChannel", Code.UNAVAILABLE, text))
    assert caplog.messages == [
        "switch 127.0.0.1:9 does not answer (Connection refused): the controller tries again until it does"
    ]

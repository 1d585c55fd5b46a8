"""Recordings of the embedded switch: replayed on both engines, explained packet by packet, and damaged."""

from __future__ import annotations

import errno
import random
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from support.timing import eventually
from switchsum import p4src
from switchsum.cli.app import application
from switchsum.packets import recording
from switchsum.packets.replay import replay
from switchsum.packets.watch import from_file, missing_end
from switchsum.testing.rig import SWITCH, Rig, worker
from switchsum_protocol.errors import LocalError
from switchsum_protocol.frame import Header, Kind
from switchsum_protocol.wire import build_frame
from switchsum_switch.daemon.daemon import Config, SwitchProcess
from switchsum_switch.messages.p4runtime import parse_p4info, v1
from switchsum_switch.ports.base import PortGroup, PortTable
from switchsum_switch.ports.capture import SETTINGS, Capture
from switchsum_switch.ports.memory import MemoryPorts
from switchsum_switch.ports.pcapng import INBOUND, PACKET, PcapngFile

LANES = 128
VALUES = np.arange(LANES, dtype=np.int32)
P4INFO = parse_p4info(p4src.load(LANES).p4info)


class MemorySwitch(SwitchProcess):
    """A switch whose ports 1 and 2 are in memory."""

    def open_groups(self, config: Config, table: PortTable) -> Iterator[PortGroup]:
        self.memory = MemoryPorts(table, [1, 2])
        yield self.memory


class ByRequests:
    """Sets the switch up as a controller does: what `Rig` wants of an engine, as requests of P4Runtime."""

    def __init__(self, switch: MemorySwitch) -> None:
        self._switch = switch
        self._switch.service._require_primary = lambda request: None  # type: ignore[method-assign]
        device_config = p4src.load(LANES).device_config
        config = v1.ForwardingPipelineConfig(p4info=P4INFO, p4_device_config=device_config)
        action = v1.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
        request = v1.SetForwardingPipelineConfigRequest(action=action, config=config)
        switch.service.set_config(request, None)  # type: ignore[arg-type]

    def insert(self, table: str, match: Any, action: str, params: Any) -> None:
        found = next(one for one in P4INFO.tables if one.preamble.name == table)
        keys = [
            v1.FieldMatch(field_id=field.id, exact=v1.FieldMatch.Exact(value=as_bytes(value)))
            for field, value in zip(found.match_fields, match, strict=True)
        ]
        entry = v1.TableEntry(table_id=found.preamble.id, match=keys, action=act(action, params))
        self._write(v1.Update.INSERT, v1.Entity(table_entry=entry))

    def set_default(self, table: str, action: str, params: Any) -> None:
        found = next(one for one in P4INFO.tables if one.preamble.name == table)
        entry = v1.TableEntry(table_id=found.preamble.id, is_default_action=True, action=act(action, params))
        self._write(v1.Update.MODIFY, v1.Entity(table_entry=entry))

    def set_group(self, group: int, replicas: Any) -> None:
        made = [v1.Replica(egress_port=port, instance=instance) for port, instance in replicas]
        entry = v1.MulticastGroupEntry(multicast_group_id=group, replicas=made)
        engine = v1.PacketReplicationEngineEntry(multicast_group_entry=entry)
        self._write(v1.Update.INSERT, v1.Entity(packet_replication_engine_entry=engine))

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        memory, before = self._switch.memory, self._switch.ports.statistics().get(port, {}).get("rx_frames", 0)
        memory.inject(port, frame)
        step(self._switch)
        assert self._switch.ports.statistics()[port]["rx_frames"] == before + 1
        taken = memory.sent[:]
        memory.sent.clear()
        return taken

    def events(self, counter: str, index: int) -> int:
        raise NotImplementedError

    def frames(self, table: str, match: Any) -> int:
        raise NotImplementedError

    def _write(self, kind: int, entity: Any) -> None:
        request = v1.WriteRequest(updates=[v1.Update(type=kind, entity=entity)])
        self._switch.service.write(request, None)  # type: ignore[arg-type]


def as_bytes(value: int) -> bytes:
    return value.to_bytes(max(1, -(-value.bit_length() // 8)), "big")


def act(name: str, params: Any) -> Any:
    action = next(one for one in P4INFO.actions if one.preamble.name == name)
    made = [
        v1.Action.Param(param_id=param.id, value=as_bytes(value))
        for param, value in zip(action.params, params, strict=True)
    ]
    return v1.TableAction(action=v1.Action(action_id=action.preamble.id, params=made))


def step(switch: SwitchProcess) -> None:
    """Let the switch take what waits."""
    thread = threading.Thread(target=switch.run)
    switch._stopping = False
    thread.start()
    memory = switch.memory  # type: ignore[attr-defined]
    assert eventually(memory.prepare_sleep)
    switch.stop()
    thread.join()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record a round of two members, a repeat, a stranger, and a frame that is none of ours."""
    folder = tmp_path_factory.mktemp("recorded")
    path = folder / "frames.pcapng"
    config = Config(listen=f"unix:{folder}/p4", engine="interpreter", pcap=path)
    switch = MemorySwitch(config)
    with switch:
        rig = Rig(ByRequests(switch), workers=2, lanes_per_frame=LANES)
        assert rig.contribute(0, 1, VALUES) == {}
        assert sorted(rig.contribute(1, 1, VALUES)) == [1, 2]
        assert sorted(rig.contribute(1, 1, VALUES)) == [2]
        rig.send(1, rig.contribution(0, 3, VALUES))
        rig.engine.process(1, bytes(60))
        rig.engine.process(1, build_frame(worker(0), SWITCH, Header(kind=Kind.HELLO)))
    return path


def comments(path: Path) -> list[str]:
    from scapy.utils import PcapNgReader

    with PcapNgReader(str(path)) as reader:
        return [(packet.comment or b"").decode() for packet in reader]


def test_a_replay_sends_what_the_recording_has(recorded: Path) -> None:
    outcome = replay(recorded)
    assert (outcome.different, outcome.differences) == (0, [])
    assert outcome.received == 6
    assert outcome.sent >= 4
    assert outcome.changes > 5


def test_each_packet_says_what_the_switch_did(recorded: Path, tmp_path: Path) -> None:
    explained = tmp_path / "explained.pcapng"
    assert replay(recorded, explained).different == 0
    reported = comments(explained)
    first, second, *answers = reported
    assert first.startswith("contribution, job ")
    assert "rank 0, slot 0, round 1" in first.replace(f"slot {slot_of(first)}", "slot 0")
    assert "admission hit admit" in first
    assert "counted: contributed" in first
    assert first.endswith("nothing leaves")
    assert "counted: " in second
    assert "completed" in second
    assert "leaves by port 1, 2" in second
    assert sum(one.startswith("result, ") and one.endswith("made of packet 2") for one in answers) == 2
    assert any("repeated" in one and "leaves by port 2" in one for one in answers)
    assert any("admission miss refuse" in one and "not_admitted" in one for one in answers)
    assert any("no frame of the service" in one for one in answers)


def slot_of(comment: str) -> str:
    return comment.partition("slot ")[2].partition(",")[0]


def test_other_readers_skip_what_the_controller_did(recorded: Path) -> None:
    assert len(comments(recorded)) == sum(isinstance(one, recording.Frame) for one in recording.read(recorded))


def test_a_frame_that_is_missing_or_changed_is_a_difference(recorded: Path, tmp_path: Path) -> None:
    data = bytearray(recorded.read_bytes())
    places = [at for at, kind in blocks(data) if kind == 6]
    answer = next(at for at in places if is_outbound(data, at))
    data[answer + 28 + 100] ^= 1
    changed = tmp_path / "changed.pcapng"
    changed.write_bytes(data)
    outcome = replay(changed)
    assert outcome.different == 2
    assert "does not in the replay" in outcome.differences[0]
    assert "which the recording lacks" in outcome.differences[1]


def blocks(data: bytes | bytearray) -> Iterator[tuple[int, int]]:
    at = 0
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        yield at, kind
        at += length


def is_outbound(data: bytes | bytearray, at: int) -> bool:
    """Read the direction, the last option of a packet."""
    (length,) = struct.unpack_from("<I", data, at + 4)
    return bool(struct.unpack_from("<I", data, at + length - 12)[0] == 2)


def test_a_file_that_was_cut_off_is_refused_wherever_that_was_and_replayed_on_demand(
    recorded: Path, tmp_path: Path
) -> None:
    whole, cut = recorded.read_bytes(), tmp_path / "cut.pcapng"
    places = [at for at, _ in blocks(whole)]
    received = [is_outbound(whole, at) for at, kind in blocks(whole) if kind == PACKET].count(False)
    assert received == replay(recorded).received == 6
    for end in (len(whole) - 5, places[-1], places[-1] - 5, places[len(places) // 2], *random.sample(places[3:], 4)):
        cut.write_bytes(whole[:end])
        with pytest.raises(LocalError, match=r"the recording ends in the midst, after \d+ packets"):
            replay(cut)
        assert replay(cut, cut=True).received <= 6
        done = CliRunner().invoke(application(), ["replay", str(cut)])
        assert "as recorded" not in done.output
        assert done.exit_code == 1 or isinstance(done.exception, LocalError)
        with pytest.raises(LocalError, match="ends in the midst"):
            list(from_file(cut))
    cut.write_bytes(whole[: places[-1]])
    assert replay(cut, cut=True).received == 6
    list(from_file(recorded))


def test_a_disk_that_is_full_leaves_no_recording_that_passes(tmp_path: Path) -> None:
    path = tmp_path / "full.pcapng"
    settings = {"cpu_port": 510, "drop_port": 511, "priority_queues": 1, "max_passes": 8}
    capture = Capture(path, settings=settings)

    def is_full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    capture._file.frame = is_full  # type: ignore[method-assign, assignment]
    frame = np.zeros(60, np.uint8)
    capture.sent(np.array([1]), np.array([frame.ctypes.data]), np.array([60]))
    capture.close()
    with pytest.raises(LocalError, match="the recording ends in the midst, after 0 packets"):
        replay(path)


def test_a_libpcap_file_that_ends_in_a_packet_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "frames.pcap"
    for order in "<>":
        head = struct.pack(f"{order}IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
        packet = struct.pack(f"{order}IIII", 1, 0, 60, 60) + bytes(60)
        path.write_bytes(head + packet + packet)
        assert missing_end(path) == ""
        path.write_bytes(head + packet + packet[: random.randrange(1, len(packet))])
        assert "ends in the midst of a packet" in missing_end(path)


def test_damaged_files_are_refused_or_replayed_never_raise_otherwise(recorded: Path, tmp_path: Path) -> None:
    whole = recorded.read_bytes()
    path = tmp_path / "damaged.pcapng"
    places = [at for at, _ in blocks(whole)]
    for at in places[:: max(1, len(places) // 12)]:
        for offset in (0, 4, 8, 12, 20, 30):
            data = bytearray(whole)
            data[min(at + offset, len(data) - 1)] ^= 0xFF
            path.write_bytes(data)
            with suppress(LocalError):
                list(recording.read(path))


@pytest.mark.parametrize(
    "change",
    [
        {"max_passes": 0},
        {"max_passes": 1 << 40},
        {"priority_queues": 0},
        {"priority_queues": "1"},
        {"drop_port": 512},
        {"drop_port": None},
        {"cpu_port": -1},
    ],
)
def test_settings_that_no_switch_has_are_damage(change: dict[str, Any], tmp_path: Path) -> None:
    settings: dict[str, Any] = {"cpu_port": None, "drop_port": 511, "priority_queues": 1, "max_passes": 1}
    for said in (settings, settings | change):
        Capture(tmp_path / "recording.pcapng", settings=said).close()
        if said == settings:
            assert list(recording.read(tmp_path / "recording.pcapng")) == [recording.Settings(**settings)]
            continue
        with pytest.raises(LocalError, match="is damaged"):
            list(recording.read(tmp_path / "recording.pcapng"))


@pytest.mark.parametrize("port", [-1, 1 << 16, 1 << 70])
def test_a_port_that_no_switch_has_is_damage(port: int, tmp_path: Path) -> None:
    file = PcapngFile(tmp_path / "recording.pcapng")
    file.record(SETTINGS, b'{"cpu_port": 255, "drop_port": 511, "priority_queues": 1, "max_passes": 1}')
    file.frame(port, 0, bytes(60), INBOUND)
    file.close()
    with pytest.raises(LocalError, match="is damaged"):
        list(recording.read(tmp_path / "recording.pcapng"))


def test_settings_that_are_nested_without_end_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "deep.pcapng"
    file = PcapngFile(path)
    file.record(SETTINGS, b"[" * 100_000)
    file.close()
    with pytest.raises(LocalError, match="is damaged"):
        list(recording.read(path))


@pytest.mark.parametrize(("length", "is_cut"), [(0xFFFF, False), (0x1_0001, True), (500_000, True)])
def test_a_comment_that_is_too_long_for_the_format_loses_its_end(tmp_path: Path, length: int, is_cut: bool) -> None:
    path = tmp_path / "long.pcapng"
    file = PcapngFile(path)
    file.frame(1, 0, bytes(60), INBOUND, "a" + "\u00e9" * (length // 2))
    file.close()
    [comment] = comments(path)
    assert comment.startswith("a\u00e9")
    assert comment.endswith("\u00e9 ...") == is_cut
    assert len(comment.encode()) <= 0xFFFF


def test_the_command_says_what_came_out(recorded: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(application(), ["replay", str(recorded)])
    assert done.exit_code == 0
    assert "6 packets in" in done.stdout
    assert "as recorded" in done.stdout
    for arguments, text in (
        ([str(recorded), "--explained", str(recorded)], "overwrite"),
        (["/nonexistent"], "No such file"),
        ([__file__], "not a pcapng file"),
        ([str(recorded), "--explained", "/nonexistent/x"], "No such file"),
    ):
        assert text in str(CliRunner().invoke(application(), ["replay", *arguments]).exception)

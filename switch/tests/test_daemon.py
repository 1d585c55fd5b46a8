"""The switch as a whole: frames on its ports, clients at its P4Runtime server."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from support.timing import eventually
from switchsum_protocol.errors import SwitchsumError, TransportError
from switchsum_switch.daemon.cpu import MAX_WAITING, CpuPort
from switchsum_switch.daemon.daemon import Config, ProgramConfig, SwitchProcess
from switchsum_switch.execution.pipeline import Pipeline
from switchsum_switch.messages.p4runtime import Code, P4RuntimeError, v1
from switchsum_switch.messages.samples import METHOD, SERVICE
from switchsum_switch.ports.base import CPU_PORT, Batch, PortCounter, PortGroup, PortTable
from switchsum_switch.ports.memory import MemoryPorts
from switchsum_switch.ports.sampling import serve_samples

from .p4runtime_rig import DEVICE_ID, LONG_S, PROGRAM, Client, config, identifier

P4INFO_TEXT = PROGRAM.with_name("entities.p4info.txtpb").read_text()
PAYLOAD = bytes(6) + b"\x08\x00" + b"payload"


class MemorySwitch(SwitchProcess):
    """A switch whose ports 1 to 4 are in memory, running on a thread of its own."""

    def open_groups(self, config: Config, table: PortTable) -> Iterator[PortGroup]:
        self.memory = MemoryPorts(table, [1, 2, 3, 4])
        yield self.memory
        yield from super().open_groups(config, table)

    def __enter__(self) -> MemorySwitch:
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()
        self.thread.join(LONG_S)
        assert not self.thread.is_alive()
        self.close()

    def receive(self, port: int, frame: bytes) -> None:
        """Let a frame come in."""
        self.memory.inject(port, frame)
        self.ports.wake()

    def sent(self, count: int) -> list[tuple[int, bytes]]:
        """Wait for so many frames to go out and return them."""
        deadline = time.monotonic() + LONG_S
        while len(self.memory.sent) < count and time.monotonic() < deadline:
            time.sleep(0.001)
        return list(self.memory.sent)


def made_config(**fields: Any) -> Config:
    return Config(
        **{
            "services": (serve_samples,),
            "listen": "127.0.0.1:0",
            "device_id": DEVICE_ID,
            "engine": "interpreter",
            **fields,
        }
    )


@pytest.fixture(params=["interpreter", "native"])
def switch(request: pytest.FixtureRequest) -> Iterator[MemorySwitch]:
    with MemorySwitch(made_config(engine=request.param)) as made:
        yield made


@pytest.fixture
def client(switch: MemorySwitch) -> Iterator[Client]:
    made = Client(switch.address, election_id=1)
    assert made.arbitrate() == (1, Code.OK)
    yield made
    made.close()


def frame(station: int) -> bytes:
    return bytes(5) + bytes([station]) + PAYLOAD


def station(number: int, action: str, *params: bytes) -> Any:
    entry = v1.TableEntry(table_id=identifier("tables", "stations"))
    entry.match.add(field_id=1).exact.value = bytes([number])
    entry.action.action.action_id = identifier("actions", action)
    for index, value in enumerate(params):
        entry.action.action.params.add(param_id=index + 1, value=value)
    return entry


def test_an_expected_program_is_loaded_before_a_client_sets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[bytes] = []
    load = Pipeline.load

    def note(text: bytes, **options: Any) -> Pipeline:
        loaded.append(text)
        return load(text, **options)

    monkeypatch.setattr(Pipeline, "load", note)
    expected = PROGRAM.read_bytes()
    with MemorySwitch(made_config(expected=expected)) as switch:
        assert loaded == [expected]
        client = Client(switch.address, election_id=1)
        client.arbitrate()
        client.set_config(config=config())
        assert loaded == [expected]
        client.insert(table_entry=station(1, "forward", b"\x03"))
        switch.receive(1, frame(1))
        assert switch.sent(1) == [(3, frame(1))]
        client.set_config(config=config())  # anew, with empty tables
        assert loaded == [expected, expected]
        client.close()


def test_another_program_than_the_expected_one_is_loaded() -> None:
    other = (Path(__file__).parent / "programs" / "arithmetic.json").read_bytes()
    with MemorySwitch(made_config(expected=other)) as switch:
        client = Client(switch.address, election_id=1)
        client.arbitrate()
        client.set_config(config=config())
        client.insert(table_entry=station(1, "forward", b"\x03"))
        switch.receive(1, frame(1))
        assert switch.sent(1) == [(3, frame(1))]
        client.close()


def test_frames_meet_what_clients_write(switch: MemorySwitch, client: Client) -> None:
    switch.receive(1, frame(1))  # nothing runs yet: it is lost
    client.set_config(config=config())
    client.insert(table_entry=station(1, "forward", b"\x03"))
    client.insert(table_entry=station(2, "multicast", b"\x05"))
    replicas = [{"port": b"\x04", "instance": 1}, {"port": b"\x02", "instance": 2}]
    client.insert(
        packet_replication_engine_entry={"multicast_group_entry": {"multicast_group_id": 5, "replicas": replicas}}
    )
    for number in (1, 2, 3):
        switch.receive(1, frame(number))
    assert switch.sent(3) == [(3, frame(1)), (4, frame(2)), (2, frame(2))]
    (hit, _) = client.read_all(table_entry={"table_id": identifier("tables", "stations"), "counter_data": {}})
    assert hit.counter_data == v1.CounterData(packet_count=1, byte_count=len(frame(1)))
    client.delete(table_entry=station(1, "forward"))
    switch.receive(1, frame(1))
    switch.receive(1, frame(2))
    assert len(switch.sent(5)) == 5


def test_packets_go_in_and_out_through_the_cpu_port(switch: MemorySwitch, client: Client) -> None:
    client.set_config(config=config())
    client.insert(table_entry=station(1, "to_controller"))
    switch.receive(3, frame(1))
    packet = client.receive().packet
    assert packet.payload == frame(1)
    assert [(field.metadata_id, field.value) for field in packet.metadata] == [(1, b"\x03"), (2, b"\x05")]
    out = v1.PacketOut(payload=frame(9))
    out.metadata.add(metadata_id=1, value=b"\x02")
    client.send(packet=out)
    assert switch.sent(1) == [(2, frame(9))]


def test_switch_can_start_with_a_program() -> None:
    program = ProgramConfig(device_config=PROGRAM.read_bytes(), p4info=P4INFO_TEXT)
    with MemorySwitch(made_config(program=program)) as switch:
        client = Client(switch.address, election_id=1)
        client.arbitrate()
        client.insert(table_entry=station(1, "forward", b"\x03"))
        client.close()
        switch.receive(1, frame(1))
        assert switch.sent(1) == [(3, frame(1))]


@pytest.mark.parametrize(
    ("device_config", "p4info"), [(b"{}", ""), (PROGRAM.read_bytes(), "tables { preamble { id: 1 } }")]
)
def test_switch_does_not_start_with_a_bad_program(device_config: bytes, p4info: str) -> None:
    with pytest.raises(SwitchsumError):
        SwitchProcess(made_config(program=ProgramConfig(device_config=device_config, p4info=p4info)))


def test_group_larger_than_the_output_is_served(switch: MemorySwitch, client: Client) -> None:
    client.set_config(config=config())
    client.insert(table_entry=station(1, "multicast", b"\x05"))
    replicas = [{"port": b"\x02", "instance": instance} for instance in range(6000)]
    client.insert(
        packet_replication_engine_entry={"multicast_group_entry": {"multicast_group_id": 5, "replicas": replicas}}
    )
    switch.receive(1, frame(1))
    assert switch.sent(6000) == [(2, frame(1))] * 6000


def test_address_in_use_gives_everything_back(switch: MemorySwitch, tmp_path: Path) -> None:
    for _ in range(2):  # the second time, the name must be free again
        with pytest.raises(TransportError, match="cannot listen"):
            SwitchProcess(made_config(listen=switch.address, shm="test-daemon", pcap=tmp_path / "frames"))


def test_capture_has_every_frame(tmp_path: Path) -> None:
    from scapy.utils import rdpcap

    program = ProgramConfig(device_config=PROGRAM.read_bytes(), p4info=P4INFO_TEXT)
    with MemorySwitch(made_config(program=program, pcap=tmp_path / "frames")) as switch:
        client = Client(switch.address, election_id=1)
        client.arbitrate()
        client.insert(table_entry=station(1, "forward", b"\x03"))
        client.close()
        switch.receive(1, frame(1))
        switch.sent(1)
    assert [bytes(packet) for packet in rdpcap(str(tmp_path / "frames"))] == [frame(1)] * 2


@pytest.mark.parametrize(
    "request_",
    [
        b"{",
        b"{}",
        b'{"offset": 0, "pattern": "0g"}',
        b'{"offset": 0, "pattern": ""}',
        b'{"offset": -1, "pattern": "00"}',
        b'{"offset": 0, "pattern": "00", "frames": 65}',
        b'{"offset": 0, "pattern": "00", "seconds": 1e9}',
        b'{"offset": 0, "pattern": "00", "seconds": NaN}',
    ],
)
def test_a_sample_that_cannot_be_taken_is_refused(switch: MemorySwitch, client: Client, request_: bytes) -> None:
    with pytest.raises(grpc.RpcError) as error:
        client.channel.unary_unary(f"/{SERVICE}/{METHOD}", None, None)(request_, timeout=LONG_S)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_closed_switch_answers_nobody() -> None:
    with MemorySwitch(made_config()) as switch:
        client = Client(switch.address, election_id=1)
        client.arbitrate()
    client.receive()
    with pytest.raises(P4RuntimeError) as error:
        client.call("GetForwardingPipelineConfig")
    assert error.value.code is Code.UNAVAILABLE
    client.close()


def test_stop_before_run_is_not_forgotten() -> None:
    switch = MemorySwitch(made_config())
    switch.stop()
    switch.run()
    switch.close()


@contextmanager
def traffic(switch: MemorySwitch) -> Iterator[None]:
    """Keep frames coming in."""
    stop = threading.Event()

    def flood() -> None:
        while not stop.is_set():
            if len(switch.memory.sent) > 10_000:
                switch.memory.sent.clear()
            for _ in range(64):
                switch.receive(1, frame(1))
            time.sleep(0)

    flooding = threading.Thread(target=flood)
    flooding.start()
    try:
        yield
    finally:
        stop.set()
        flooding.join()


def test_writes_get_their_turn_under_traffic(switch: MemorySwitch, client: Client) -> None:
    client.set_config(config=config())
    client.insert(table_entry=station(1, "forward", b"\x03"))
    with traffic(switch):
        started = time.monotonic()
        for _ in range(20):
            client.modify(table_entry=station(1, "forward", b"\x02"))
            client.modify(table_entry=station(1, "forward", b"\x03"))
        assert time.monotonic() - started < LONG_S


def test_program_is_replaced_under_traffic(switch: MemorySwitch, client: Client) -> None:
    with traffic(switch):
        for port in (b"\x02", b"\x03", b"\x04"):
            client.set_config("VERIFY_AND_SAVE", config=config())
            client.insert(table_entry=station(1, "forward", port))
            client.set_config("COMMIT")
            expected = [(port[0], frame(1))]
            assert eventually(functools.partial(lambda expected: switch.memory.sent[-1:] == expected, expected))


def test_packet_outs_beyond_the_queue_are_counted() -> None:
    table = PortTable()
    cpu = CpuPort(table, lambda frame: None)
    for _ in range(MAX_WAITING + 3):
        cpu.packet_out(b"x")
    cpu.packet_out(b"")
    batch = Batch(MAX_WAITING + 10)
    cpu.collect(batch)
    assert (batch.count, set(batch.ports[: batch.count].tolist())) == (MAX_WAITING, {CPU_PORT})
    assert table.counters[CPU_PORT, PortCounter.RX_DROPS] == 4
    cpu.done()
    cpu.close()


def test_cpu_port_can_have_another_number() -> None:
    program = ProgramConfig(device_config=PROGRAM.read_bytes(), p4info=P4INFO_TEXT)
    with MemorySwitch(made_config(program=program, cpu_port=64)) as switch:
        client = Client(switch.address, election_id=1)
        client.arbitrate()
        client.insert(table_entry=station(1, "forward", b"\x40"))
        switch.receive(1, b"\x00" * 5 + b"\x01" + PAYLOAD)
        # The program's first two bytes are no controller header here, but they are taken for one all the same.
        assert client.receive().packet.payload == frame(1)[2:]
        client.close()
    with pytest.raises(TransportError, match="number 1 is the CPU port's"):
        MemorySwitch(made_config(cpu_port=1))

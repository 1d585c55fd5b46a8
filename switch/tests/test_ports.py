"""The port table, the port set and the capture file, over ports in memory."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.timing import patience
from switchsum_protocol.errors import TransportError
from switchsum_protocol.frame import Header, Kind
from switchsum_protocol.wire import build_frame
from switchsum_switch.ports.base import CPU_PORT, Batch, PortTable
from switchsum_switch.ports.capture import Capture
from switchsum_switch.ports.memory import MemoryPorts
from switchsum_switch.ports.port_set import PortSet
from switchsum_switch.program.v1model import DROP_PORT
from switchsum_switch.wires.headers import Address

ONE = Address(mac=0x02_00_00_00_00_01, ip=0x0A_00_00_01, port=21334)
TWO = Address(mac=0x02_00_00_00_00_02, ip=0x0A_00_00_02, port=21333)


def frame(number: int) -> bytes:
    return build_frame(ONE, TWO, Header(kind=Kind.CONTRIBUTION, slot=number), bytes(number))


def echo(ports: PortSet, batch: Batch, to: list[int]) -> None:
    count = batch.count
    ports.transmit(np.array(to, np.uint32), batch.addresses[:count], batch.lengths[:count])
    ports.done()


def test_numbers_are_given_once() -> None:
    table = PortTable()
    assert [table.take("shm", "a"), table.take("shm", "b")] == [1, 2]
    assert table.take("packet", "eth0", 0) == 0
    table.give_back(1)
    assert table.take("shm", "c") == 1
    assert [(port.number, port.kind, port.name) for port in table.ports()] == [
        (0, "packet", "eth0"),
        (1, "shm", "c"),
        (2, "shm", "b"),
    ]
    with pytest.raises(TransportError, match="port 2 is already b"):
        table.take("packet", "eth1", 2)
    for number in (-1, CPU_PORT, DROP_PORT, 512):
        with pytest.raises(TransportError, match=f"number {number}"):
            table.take("packet", "eth1", number)


def test_the_cpus_number_is_skipped_and_numbers_run_out() -> None:
    table = PortTable()
    numbers = [table.take("shm", str(i)) for i in range(509)]
    assert sorted({*numbers, CPU_PORT}) == list(range(1, DROP_PORT))
    with pytest.raises(TransportError):
        table.take("shm", "one too many")


def test_frames_of_all_groups_come_and_go() -> None:
    table = PortTable()
    left, right = MemoryPorts(table, [1, 2]), MemoryPorts(table, [3])
    ports = PortSet(table, [left, right])
    left.inject(2, frame(1))
    right.inject(3, frame(2))
    left.inject(1, frame(3))
    batch = ports.poll()
    assert batch.ports[: batch.count].tolist() == [2, 1, 3]
    echo(ports, batch, [3, 1, 1])
    assert left.sent == [(1, frame(3)), (1, frame(2))]
    assert right.sent == [(3, frame(1))]
    assert ports.poll().count == 0
    assert ports.statistics()[1] == {
        "rx_frames": 1,
        "rx_bytes": len(frame(3)),
        "rx_drops": 0,
        "tx_frames": 2,
        "tx_bytes": len(frame(3)) + len(frame(2)),
        "tx_drops": 0,
    }
    ports.close()
    assert table.ports() == []


def test_frames_to_no_port_are_counted() -> None:
    table = PortTable()
    group = MemoryPorts(table, [1])
    ports = PortSet(table, [group])
    for number in range(4):
        group.inject(1, frame(number))
    echo(ports, ports.poll(), [9, 1, 70_000, DROP_PORT])
    assert group.sent == [(1, frame(1))]
    assert ports.statistics()[DROP_PORT]["tx_drops"] == 3


def test_a_batch_holds_no_more_than_it_can() -> None:
    table = PortTable()
    groups = [MemoryPorts(table, [1]), MemoryPorts(table, [2])]
    ports = PortSet(table, groups, batch_frames=4)
    for number in range(3):
        for group in groups:
            group.inject(1 + groups.index(group), frame(number))
    seen = []
    while (batch := ports.poll()).count:
        seen.append(batch.ports[: batch.count].tolist())
        ports.done()
    assert seen == [[1, 1, 1, 2], [2, 2]]


def test_a_waiting_switch_is_woken() -> None:
    ports = PortSet(PortTable(), [])
    ports.wake()
    start = time.monotonic()
    ports.wait(patience(30))
    waker = threading.Timer(0.05, ports.wake)
    waker.start()
    ports.wait(patience(30))
    waker.join()
    assert time.monotonic() - start < patience(20)
    ports.wait(0.01)  # and no more than woken once
    ports.close()


def test_waiting_ends_at_once_when_frames_are_there() -> None:
    table = PortTable()
    group = MemoryPorts(table, [1])
    ports = PortSet(table, [group])
    group.inject(1, frame(0))
    start = time.monotonic()
    ports.wait(patience(30))
    assert time.monotonic() - start < patience(20)


def test_a_capture_shows_every_frame_with_its_port_and_direction(tmp_path: Path) -> None:
    from scapy.layers.l2 import Ether
    from scapy.utils import RawPcapNgReader

    table = PortTable()
    group = MemoryPorts(table, [4, 5])
    path = tmp_path / "frames.pcapng"
    ports = PortSet(table, [group], taps=[Capture(path)])
    before = time.time_ns()
    for number in range(5):  # lengths of all remainders by 4
        group.inject(4 + number % 2, frame(number))
    echo(ports, ports.poll(), [5] * 5)
    ports.close()
    after = time.time_ns()

    with RawPcapNgReader(str(path)) as reader:
        packets: list[tuple[bytes, Any]] = list(reader)
    expected = [(frame(n), f"port {4 + n % 2}", 1) for n in range(5)] + [(frame(n), "port 5", 2) for n in range(5)]
    assert [(data, meta.ifname.decode(), meta.direction) for data, meta in packets] == expected
    for data, meta in packets:
        assert meta.tsresol == 10**9
        assert before <= (meta.tshigh << 32) + meta.tslow <= after
        assert meta.wirelen == len(data)
        assert Ether(data).dst == "02:00:00:00:00:02"
        assert meta.linktype == 1


def test_a_capture_tells_packet_ins_from_frames(tmp_path: Path) -> None:
    from scapy.utils import RawPcapNgReader

    table = PortTable(reserved=())
    group = MemoryPorts(table, [CPU_PORT, 5])
    path = tmp_path / "frames.pcapng"
    ports = PortSet(table, [group], taps=[Capture(path, CPU_PORT)])
    group.inject(CPU_PORT, frame(0))
    group.inject(5, frame(1))
    echo(ports, ports.poll(), [5] * 2)
    ports.close()
    with RawPcapNgReader(str(path)) as reader:
        packets: list[tuple[bytes, Any]] = list(reader)
    assert {meta.ifname.decode(): meta.linktype for _, meta in packets} == {f"port {CPU_PORT}": 147, "port 5": 1}

"""Ports on interfaces take frames as long as the interface's MTU, and name longer ones by their length."""

from __future__ import annotations

import ctypes
import logging
import subprocess

import pytest

from support.timing import eventually
from switchsum_switch.ports.base import MAX_FRAME_BYTES, Batch, PortCounter, PortTable
from switchsum_switch.ports.packet import PacketPorts
from switchsum_switch.wires.packetsocket import open_packet_socket

MTUS = (1_500, 9_000, 9_500, MAX_FRAME_BYTES - 14)


def pair(mtu: int) -> None:
    for command in (
        "ip link add near type veth peer name far",
        "sysctl -qw net.ipv6.conf.near.disable_ipv6=1 net.ipv6.conf.far.disable_ipv6=1",
        f"ip link set near mtu {mtu} up",
        f"ip link set far mtu {mtu} up",
    ):
        subprocess.run(command.split(), check=True)


def frame_of(size: int) -> bytes:
    return (bytes(12) + b"\x88\xb5" + bytes(range(256)) * 45)[:size]


def collect(ports: PacketPorts, came: list[bytes]) -> int:
    """Take frames, append them, and return how many there are."""
    batch = Batch(64)
    ports.collect(batch)
    came += [
        ctypes.string_at(address, length)
        for address, length in zip(batch.addresses.tolist(), batch.lengths.tolist(), strict=True)
    ][: batch.count]
    return len(came)


def dropped(ports: PacketPorts, table: PortTable) -> int:
    ports.service()
    return int(table.counters[1, PortCounter.RX_DROPS])


@pytest.mark.root
@pytest.mark.usefixtures("network_namespace")
@pytest.mark.parametrize("mtu", MTUS)
def test_a_frame_as_long_as_the_mtu_arrives(mtu: int) -> None:
    pair(mtu)
    table = PortTable()
    ports = PacketPorts(table, {1: "near"})
    came: list[bytes] = []
    sizes = [60, 1514, 9014, 9216, 9217, 9218, 9230, 9514, mtu + 13, mtu + 14]
    sent = [frame_of(size) for size in sizes if size <= mtu + 14]
    with open_packet_socket("far") as far:
        for frame in sent:
            far.send(frame)
        assert eventually(lambda: collect(ports, came) >= len(sent), 10)
    assert came == sent
    assert table.counters[1, PortCounter.RX_DROPS] == 0
    ports.close()


@pytest.mark.root
@pytest.mark.usefixtures("network_namespace")
def test_a_longer_frame_is_named_by_its_length(caplog: pytest.LogCaptureFixture) -> None:
    pair(12_000)
    table = PortTable()
    ports = PacketPorts(table, {1: "near"})
    came: list[bytes] = []
    with caplog.at_level(logging.WARNING), open_packet_socket("far") as far:
        for size in (10_400, 11_000, 10_500, MAX_FRAME_BYTES):  # rows are some bytes longer than the longest frame
            far.send(frame_of(size))
        assert eventually(lambda: collect(ports, came) >= 1, 10)
        assert eventually(lambda: dropped(ports, table) == 3, 10)
    assert came == [frame_of(MAX_FRAME_BYTES)]
    [warning] = caplog.messages
    assert warning == "port 1, near, drops a frame of 11000 bytes: frames have 10240 bytes at most"
    ports.close()

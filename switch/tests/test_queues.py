"""Queues: what a program hears of them, which frames get into them, and how a port that backs up empties them."""

from __future__ import annotations

import ctypes
import itertools
import subprocess
import time

import numpy as np
import pytest

from support.timing import patience
from switchsum_switch.ports.backlog import Backlog
from switchsum_switch.ports.base import Batch, PortCounter, PortTable
from switchsum_switch.ports.packet import PacketPorts
from switchsum_switch.queues.queues import CAPACITY_FRAMES, Queues
from switchsum_switch.state.clock import Clock
from switchsum_switch.wires.packetsocket import open_packet_socket

QUEUES = 3
LONG_S = patience(20)
KEPT: list[object] = []
"""Memory of frames that tests know by address."""


def columns(frames: list[bytes], queues: list[int] | None = None) -> tuple[np.ndarray, ...]:
    """Return queues, addresses and lengths of frames."""
    memory = [ctypes.create_string_buffer(frame, len(frame)) for frame in frames]
    addresses = np.array([ctypes.addressof(buffer) for buffer in memory], np.uint64)
    KEPT.append(memory)
    return np.array(queues or [0] * len(frames), np.uint32), addresses, np.array([*map(len, frames)], np.uint32)


def test_the_last_queue_goes_first_and_each_in_order() -> None:
    queues = Queues(QUEUES)
    backlog = Backlog(7, queues, Clock())
    frames = [bytes([queue, number]) for number, queue in itertools.product(range(2), (1, 0, 2))]
    assert backlog.push(*columns(frames, [frame[0] for frame in frames])) == 0
    assert [queues.state(7, queue, 0)[0] for queue in range(QUEUES)] == [2, 2, 2]
    left = []
    while backlog.frames:
        left.append(backlog.first())
        backlog.pop()
    assert left == [b"\2\0", b"\2\1", b"\1\0", b"\1\1", b"\0\0", b"\0\1"]
    assert not queues.cells.any()


def test_each_queue_holds_so_many_frames() -> None:
    queues = Queues(2)
    backlog = Backlog(0, queues, Clock())
    assert backlog.push(*columns([b"x"] * (CAPACITY_FRAMES + 2), [1] * (CAPACITY_FRAMES + 2))) == 2
    assert backlog.push(*columns([b"y"], [0])) == 0
    assert backlog.frames == CAPACITY_FRAMES + 1


def test_how_long_the_first_frame_has_waited() -> None:
    queues = Queues()
    queues.cells[4, 0] = 3, 1000
    assert queues.state(4, 0, 1700) == (3, 700)
    assert queues.state(5, 0, 1700) == (0, 0)
    assert queues.state(9000, 0, 1700) == queues.state(0, 0, 1700)  # no such port


@pytest.mark.root
@pytest.mark.usefixtures("network_namespace")
def test_frames_wait_for_a_slow_link_and_arrive_in_order() -> None:
    """port 1 === 2 Mbit/s ==> peer: what the kernel does not take waits in the switch, and goes when there is room."""
    for command in (
        "ip link add slow type veth peer name peer",
        "sysctl -qw net.ipv6.conf.slow.disable_ipv6=1 net.ipv6.conf.peer.disable_ipv6=1",
        "ip link set slow up",
        "ip link set peer up",
        "tc qdisc add dev slow root tbf rate 2mbit burst 3000 limit 1000000",
    ):
        subprocess.run(command.split(), check=True)
    queues = Queues()
    table = PortTable(queues=queues)
    ports = PacketPorts(table, {1: "slow"}, deep=False)
    with open_packet_socket("peer") as peer:
        peer.settimeout(LONG_S)
        frames = [bytes(12) + b"\x88\xb5" + number.to_bytes(2, "big") + bytes(1200) for number in range(300)]
        _, addresses, lengths = columns(frames)
        accepted = 0
        while not queues.state(1, 0, 0)[0]:
            one = slice(accepted, accepted + 1)
            ports.transmit(np.ones(1, np.uint32), addresses[one], lengths[one])
            accepted += 1
        assert accepted < len(frames)
        deadline = time.monotonic() + LONG_S
        arrived: list[bytes] = []
        while len(arrived) < accepted and time.monotonic() < deadline:
            ports.collect(Batch(1))
            arrived.append(peer.recv(2000))
    assert arrived == frames[:accepted]
    assert not queues.cells.any()
    assert table.counters[1, PortCounter.TX_FRAMES] == accepted
    assert table.counters[1, PortCounter.TX_DROPS] == 0
    ports.close()

"""The loop over ports of several kinds: whose frames a batch has."""

from __future__ import annotations

import os
import socket
import threading

import numpy as np

from switchsum_host.links.shm import ShmTransport
from switchsum_switch.daemon.loop import Loop
from switchsum_switch.ports.base import Batch, PortTable
from switchsum_switch.ports.port_set import PortSet
from switchsum_switch.ports.shm import ShmPorts
from switchsum_switch.ports.udp import UdpPort
from switchsum_switch.wires.headers import LOWER_BYTES, Address

SWITCH = Address(mac=0x02_00_00_00_00_01, ip=0x0A_00_00_FE, port=21333)
FRAMES = 8
FRAME_BYTES = 128


def test_a_worker_in_memory_that_fills_every_batch_leaves_room_for_sockets() -> None:
    name, table, batch = f"test-loop-{os.getpid()}", PortTable(), Batch(FRAMES)
    udp = UdpPort(table, "127.0.0.1", 0, switch=SWITCH)
    shm = ShmPorts(name, table)
    ports = PortSet(table, [shm, udp])
    link: list[ShmTransport] = []
    opening = threading.Thread(target=lambda: link.append(ShmTransport(name, rows=2 * FRAMES, frame_bytes=FRAME_BYTES)))
    opening.start()
    while opening.is_alive():
        ports.wait(0.01)
    try:
        rows = np.arange(2 * FRAMES, dtype=np.int32)
        assert link[0].send(rows, np.full(2 * FRAMES, FRAME_BYTES, np.int32)) == 2 * FRAMES
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            peer.sendto(bytes(FRAME_BYTES - LOWER_BYTES), udp.address)
        for operations in Loop(ports).groups:
            operations.collect(batch)
        assert batch.count == FRAMES
        assert sorted(batch.ports.tolist()) == sorted([udp.number, *[shm_port(table)] * (FRAMES - 1)])
    finally:
        link[0].close()
        ports.close()


def shm_port(table: PortTable) -> int:
    return next(port.number for port in table.ports() if port.kind == "shm")

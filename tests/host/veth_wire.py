"""A switch's packet port at one end of a veth pair, and frames to send over it."""

from __future__ import annotations

import ctypes
import subprocess
import time
from pathlib import Path

import numpy as np

from support.timing import patience
from switchsum_host.links.base import Transport
from switchsum_host.links.names import open_transport
from switchsum_protocol.frame import AGGREGATION_PORT, FRAME_BYTES, Flag, Header, Kind
from switchsum_protocol.wire import build_frame
from switchsum_switch.ports.base import PortCounter, PortTable
from switchsum_switch.ports.packet import PacketPorts
from switchsum_switch.ports.port_set import PortSet
from switchsum_switch.wires.checksum import sum16
from switchsum_switch.wires.headers import Address

SWITCH = Address(mac=0x02_00_00_00_00_01, ip=0x0A_00_00_01, port=AGGREGATION_PORT)
STRANGER = Address(mac=0x02_00_00_00_00_09, ip=0x0A_00_00_09, port=AGGREGATION_PORT)
WORKER_IP = "10.0.0.2"
PAYLOAD = 8192
FRAME = FRAME_BYTES + PAYLOAD
PORT = 3


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


class Wire:
    """A switch whose port is one end of a veth pair; a worker may use the other, `sum0`."""

    def __init__(self) -> None:
        # Nothing but what the tests send travels here: no router solicitations.
        Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
        ip("link", "add", "port3", "mtu", "9000", "type", "veth", "peer", "name", "sum0", "mtu", "9000")
        ip("link", "set", "port3", "up")
        ip("link", "set", "sum0", "up")
        ip("address", "add", f"{WORKER_IP}/24", "dev", "sum0")
        self.await_up()
        self.table = PortTable()
        self.ports = PortSet(self.table, [PacketPorts(self.table, {PORT: "port3"})])
        self.links: list[Transport] = []

    def await_up(self) -> None:
        """Wait until both ends are in use; until then the kernel drops what is sent."""
        while ip("link", "show", "up").count("state UP") < 2:
            time.sleep(0.01)
        time.sleep(0.01)

    def worker(self, kind: str = "packet", frame_bytes: int = FRAME) -> Transport:
        link = open_transport(f"{kind}:sum0", rows=128, frame_bytes=frame_bytes, switch=SWITCH)
        self.links.append(link)
        return link

    def arrived(self, count: int) -> list[bytes]:
        """Return the next `count` frames that the switch sees; none: what comes within a moment."""
        frames: list[bytes] = []
        while len(frames) < count or not count:
            batch = self.ports.poll()
            if not batch.count:
                self.ports.wait(5 if count else 0.05)
                batch = self.ports.poll()
            for i in range(batch.count):
                assert batch.ports[i] == PORT
                frames.append(ctypes.string_at(int(batch.addresses[i]), int(batch.lengths[i])))
            self.ports.done()
            if not count:
                break
        return frames

    def transmit(self, *frames: bytes) -> None:
        memories = [np.frombuffer(frame, np.uint8) for frame in frames]
        addresses = np.array([memory.ctypes.data for memory in memories], np.uint64)
        lengths = np.array([len(frame) for frame in frames], np.uint32)
        self.ports.transmit(np.full(len(frames), PORT, np.uint32), addresses, lengths)

    def count(self, counter: PortCounter) -> int:
        return int(self.table.counters[PORT, counter])


def contribution(source: Address, slot: int, payload: bytes) -> bytes:
    header = Header(kind=Kind.CONTRIBUTION, slot=slot, flags=Flag.PAYLOAD if payload else Flag(0))
    return build_frame(source, SWITCH, header, payload)


def result(destination: Address, slot: int, payload: bytes = b"", source: Address = SWITCH) -> bytes:
    return build_frame(source, destination, Header(kind=Kind.RESULT, slot=slot), payload)


def put(link: Transport, frames: list[bytes]) -> tuple[np.ndarray[tuple[int], np.dtype[np.int32]], ...]:
    for row, frame in enumerate(frames):
        link.tx_frames[row, link.lead : link.lead + len(frame)] = np.frombuffer(frame, np.uint8)
    return np.arange(len(frames), dtype=np.int32), np.array([len(frame) for frame in frames], np.int32)


def received(link: Transport, count: int) -> list[bytes]:
    """Return the next `count` frames that the worker gets; none: what comes within a moment."""
    frames: list[bytes] = []
    while link.wait(patience(5) if len(frames) < count else 0.05):
        came = link.receive()
        for row, length in zip(came.rows.tolist(), came.lengths.tolist(), strict=True):
            frames.append(came.frames[row, link.lead : link.lead + length].tobytes())
        link.release()
    return frames


def offloads(state: str, *names: str) -> None:
    words = [word for name in names for word in (name, state)]
    for end in ("sum0", "port3"):
        subprocess.run(["ethtool", "-K", end, *words], check=True, capture_output=True)


def sum_of(frame: bytes) -> int:
    """Return the sum over a UDP datagram and what its checksum covers besides; 0xFFFF if that is right."""
    covered = np.frombuffer(frame[26:34] + b"\x00\x11" + frame[38:40] + frame[34:], np.uint8)
    return sum16(covered.ctypes.data, len(covered))


def exchange(wire: Wire, link: Transport, bodies: list[bytes]) -> None:
    """Send contributions and results with these payloads, all at once."""
    contributions = [contribution(link.address, slot, body) for slot, body in enumerate(bodies)]
    assert link.send(*put(link, contributions)) == len(bodies)
    assert wire.arrived(len(bodies)) == contributions
    results = [result(link.address, slot, body) for slot, body in enumerate(bodies)]
    wire.transmit(*results)
    assert received(link, len(bodies)) == results

"""A switch with one job on it, seen as frames in and frames out; the same tests and benchmarks drive every engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from switchsum_protocol import wire
from switchsum_protocol.frame import AGGREGATION_PORT, MAX_WORKERS, REASONS, Flag, Header, Kind, Reason, padding_bytes
from switchsum_switch.wires import headers
from switchsum_switch.wires.headers import ETHERNET_BYTES, IPV4_BYTES, Address

SWITCH = Address(mac=0x02_00_00_00_00_01, ip=headers.parse_ip("10.0.0.254"), port=AGGREGATION_PORT)
JOB, EPOCH, TREE, GROUP, FLOOD_GROUP = 7, 3, 0, 1, 2
FIRST_SLOT, SLOT_COUNT = 16, 8
LIMITED_GROWTH = 512
CPU_PORT = 255
FORWARDING = "SwitchIngress.dispatch.forwarding"
"""The control with the table of stations."""


def worker(rank: int) -> Address:
    """Return the address of a rank's worker, which is behind port `rank + 1`."""
    return Address(mac=0x02_00_00_00_01_00 + rank, ip=headers.parse_ip("10.0.0.1") + rank, port=21334)


def cookie(rank: int) -> int:
    """Return a rank's cookie."""
    return 0x5EC7_E7C0_0C1E_0000 + rank


class Engine(Protocol):
    """What the tests need of a switch."""

    def insert(self, table: str, match: Sequence[int], action: str, params: Sequence[int]) -> None:
        """Add an entry of exact matches."""

    def set_default(self, table: str, action: str, params: Sequence[int]) -> None:
        """Set a table's default action."""

    def set_group(self, group: int, replicas: Sequence[tuple[int, int]]) -> None:
        """Make a multicast group of (port, instance) pairs."""

    def events(self, counter: str, index: int) -> int:
        """Return how many packets a cell of a counter has counted."""

    def frames(self, table: str, match: Sequence[int]) -> int:
        """Return how many packets an entry of exact matches has counted."""

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Run one frame through the switch."""


class Rig:
    """A switch that is set up for one job of `workers` members."""

    def __init__(
        self, engine: Engine, *, workers: int, lanes_per_frame: int, growth_bytes: int = 65535, slots: int = SLOT_COUNT
    ) -> None:
        self.engine = engine
        self.workers = workers
        self.lanes_per_frame = lanes_per_frame
        self.padding = bytes(padding_bytes(lanes_per_frame, growth_bytes))
        everybody = (1 << workers) - 1
        identity = (SWITCH.mac, SWITCH.ip, SWITCH.port, growth_bytes)
        engine.set_default("SwitchIngress.identity", "SwitchIngress.identify", identity)
        engine.set_group(GROUP, [(rank + 1, rank) for rank in range(workers)])
        engine.set_group(FLOOD_GROUP, [(rank + 1, 0) for rank in range(workers)])
        for rank in range(workers):
            address = worker(rank)
            place = (address.mac, address.ip, address.port, cookie(rank))
            engine.insert("SwitchEgress.result_address", (JOB, rank), "SwitchEgress.address", place)
            engine.insert(
                "SwitchIngress.validate.admission.admission",
                (JOB, TREE, rank, EPOCH, address.ip, address.port, rank + 1),
                "SwitchIngress.validate.admission.admit",
                (1 << rank, everybody, FIRST_SLOT, slots, GROUP, cookie(rank)),
            )

    def contribution(
        self, rank: int, number: int, lanes: npt.NDArray[np.int32] | None = None, /, **fields: int
    ) -> bytes:
        """Build a contribution to the job's first slot; header fields may be overridden."""
        values = {"kind": Kind.CONTRIBUTION, "job": JOB, "epoch": EPOCH, "rank": rank}
        values |= {"slot": FIRST_SLOT, "number": number, "cookie": cookie(rank)}
        values["flags"] = Flag(0) if lanes is None else Flag.PAYLOAD
        payload = self.padding if lanes is None else lanes.astype(">i4").tobytes()
        return wire.build_frame(worker(rank), SWITCH, Header(**(values | fields)), payload)

    def send(self, rank: int, frame: bytes) -> dict[int, list[wire.Packet]]:
        """Send a frame from a rank's port; return the answers by port, all of them well-formed."""
        answers: dict[int, list[wire.Packet]] = {}
        for port, answer in self.engine.process(rank + 1, frame):
            packet = wire.parse_frame(answer)
            assert packet is not None, answer.hex()
            assert headers.internet_checksum(answer[ETHERNET_BYTES : ETHERNET_BYTES + IPV4_BYTES]) == 0
            answers.setdefault(port, []).append(packet)
        return answers

    def contribute(
        self, rank: int, number: int, lanes: npt.NDArray[np.int32] | None = None, /, **fields: int
    ) -> dict[int, list[wire.Packet]]:
        """Send a contribution; return the answers by port."""
        return self.send(rank, self.contribution(rank, number, lanes, **fields))

    def events(self, reason: Reason) -> int:
        """Return how often the switch has counted a reason."""
        counter = "SwitchEgress.events" if reason is Reason.LOST_EGRESS else "SwitchIngress.reply.events"
        return self.engine.events(counter, reason)

    def member_events(self, rank: int, reason: Reason) -> int:
        """Return how often the switch has counted a reason for a rank."""
        cell = (GROUP * MAX_WORKERS + rank) * REASONS + reason
        return self.engine.events("SwitchIngress.reply.member_events", cell)

    def query(self, slot: int, version: int, kind: Kind = Kind.QUERY, **fields: int) -> Header:
        """Ask for, or set, the state of a version of a slot, as the controller does."""
        header = Header(kind=kind, slot=slot, **({"number": version} | fields))
        frame = bytes(2) + wire.build_frame(SWITCH, SWITCH, header)
        [(port, answer)] = self.engine.process(CPU_PORT, frame)
        assert port == CPU_PORT
        packet = wire.parse_frame(answer[2:])
        assert packet is not None
        assert packet.header.kind == Kind.STATE
        return packet.header


def sums(packet: wire.Packet) -> npt.NDArray[np.int64]:
    """Return a result's lanes."""
    return np.frombuffer(packet.payload, dtype=">i4").astype(np.int64)

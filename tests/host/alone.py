"""A worker's engine by itself, whose frames are looked at one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from switchsum.testing.cluster import ClusterConfig
from switchsum.testing.engine import EngineByHand
from switchsum_host.engine.operation import Operation
from switchsum_host.engine.state import Count
from switchsum_protocol.frame import FRAME_BYTES, Flag, Kind, payload_bytes
from switchsum_protocol.slot_rules import SWITCH_ADDRESS, ReferenceSwitch
from switchsum_protocol.wire import Packet, build_frame, parse_frame
from switchsum_switch.wires.rows import LEAD_BYTES, allocate_rows

UNTOUCHED = 0xA5


class Alone:
    """A worker's engine, whose frames are looked at; where it is a job of its own, a switch answers them."""

    def __init__(self, config: ClusterConfig, rank: int = 0, *, trees: tuple[int, ...] = ()) -> None:
        self.config, self.rank = config, rank
        self.frame_bytes = FRAME_BYTES + payload_bytes(config.lanes_per_frame)
        self.store = allocate_rows(4 * config.window_slots, self.frame_bytes)
        self.store[:] = UNTOUCHED
        self.store[:, LEAD_BYTES : LEAD_BYTES + self.frame_bytes] = 0
        self.engine = EngineByHand(replace(config.engine(rank), trees=trees), self.store, LEAD_BYTES)
        self.switch = ReferenceSwitch(lanes_per_frame=config.lanes_per_frame, growth_bytes=config.growth_bytes)
        self.switch.admit(config.member(0))
        self.rows = allocate_rows(1, self.frame_bytes)

    def submit(self, values: npt.NDArray[Any], **facts: Any) -> None:
        self.engine.submit(Operation.of(values, **facts), values, 0.0)

    def frames(self, *, consumed: bool = True) -> list[bytes]:
        """Take what is queued, and say that nobody reads it any more, if that is wanted."""
        rows, lengths = (part.tolist() for part in self.engine.outgoing())
        frames = [
            self.store[row, LEAD_BYTES : LEAD_BYTES + length].tobytes()
            for row, length in zip(rows, lengths, strict=True)
        ]
        self.engine.sent(len(rows))
        if consumed:
            self.engine.consumed(int(self.engine.counts[Count.FRAMES_SENT]))
        return frames

    @property
    def core(self) -> Any:
        return np.asarray(self.engine.state.core)[0]

    @property
    def slot(self) -> Any:
        return np.asarray(self.engine.state.slots)[0]

    def result(self, frame: bytes, **fields: Any) -> bytes:
        """Return what a switch may answer to a contribution: its own lanes, but for these fields."""
        packet = read(frame)
        header = replace(packet.header, **{"kind": Kind.RESULT, "bitmap": 0, **fields})
        lanes = packet.payload or bytes(payload_bytes(self.config.lanes_per_frame))
        payload = lanes if header.flags & Flag.PAYLOAD and header.kind == Kind.RESULT else b""
        return build_frame(SWITCH_ADDRESS, self.config.address(self.rank), header, payload)

    def feed(self, frame: bytes, now: float = 0.0) -> Count:
        """Hand the engine a frame; return how it was counted."""
        before = self.engine.counts[: Count.FRAMES_RECEIVED].copy()
        self.rows[0, LEAD_BYTES : LEAD_BYTES + len(frame)] = np.frombuffer(frame, np.uint8)
        self.engine.receive(self.rows, np.zeros(1, np.int32), np.full(1, len(frame), np.int32), now)
        [changed] = np.flatnonzero(self.engine.counts[: Count.FRAMES_RECEIVED] != before).tolist()
        return Count(changed)

    def answers(self, frame: bytes) -> list[bytes]:
        return [answer for _, answer in self.switch.process(1, frame)]

    def add(self, values: npt.NDArray[Any], **facts: Any) -> list[Packet]:
        """Reduce an array, over this worker alone; return what it has contributed."""
        self.submit(values, **facts)
        contributed: list[Packet] = []
        while frames := self.frames():
            contributed += map(read, frames)
            for frame in frames:
                for answer in self.answers(frame):
                    self.feed(answer)
        self.engine.note(0.0)
        self.engine.events().popleft()  # it has ended
        return contributed


def read(frame: bytes) -> Packet:
    packet = parse_frame(frame)
    assert packet is not None
    assert (packet.header.kind, packet.header.reason) == (Kind.CONTRIBUTION, 0)
    return packet


def one_slot(lanes_per_frame: int = 8, growth_bytes: int | None = None) -> Alone:
    return Alone(ClusterConfig(workers=1, window_slots=1, lanes_per_frame=lanes_per_frame, growth_bytes=growth_bytes))

"""Frames into a worker: the codec in Python, and the engine, whose kernels read lanes and write the caller's array."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from checks.fuzz.choices import Choices, damage
from checks.fuzz.guard import Guarded
from switchsum.testing.cluster import ClusterConfig
from switchsum.testing.engine import EngineByHand
from switchsum_host.engine.operation import Operation
from switchsum_protocol.frame import FRAME_BYTES, HEADER_BYTES, NO_BLOCK, Flag, Kind, payload_bytes
from switchsum_protocol.slot_rules import SWITCH_ADDRESS, ReferenceSwitch
from switchsum_protocol.wire import Packet, build_frame, parse_frame
from switchsum_switch.wires.rows import LEAD_BYTES, allocate_rows

LANES: Final = 8
CALLS_INTEGERS_NOT_FINITE: Final = bytes.fromhex(
    "010102030405060708ffffffbfffffffffffffffffffffff00000004ffffffffffffffffffffffffffffffffff010000"
    "00ffffffffffffffbfffffffffffffffffffffffffffffffffee0105020304ff02060708090a0b0c15161718191a1b1c"
    "1d1e1f2021222324ffffffff25262728292ac92cffff"
)
"""The other member names a next block of integers with the exponent of floats that are not finite."""
VALUES: Final = 5 * LANES + 3
"""The last block is not full, so that a kernel which takes it for one writes beyond the array."""
FRAMES: Final = 24
SILENCE_S: Final = 0.1


class Target:
    """Two members of which one exists only as choices: each step its engine gets one frame more."""

    def __init__(self) -> None:
        self._config = ClusterConfig(workers=2, lanes_per_frame=LANES, window_slots=2, timeout_s=1e6)
        size = FRAME_BYTES + payload_bytes(LANES)
        self._store = allocate_rows(2 * self._config.window_slots, size)
        self._came = Guarded(LEAD_BYTES + 65536)
        self._array = Guarded(4 * VALUES)
        self._row = np.zeros(1, np.int32)

    def run(self, data: bytes) -> None:
        """Run an allreduce whose results are made up."""
        choices = Choices(data)
        dtype = choices.pick((np.float32, np.int32, np.float16))
        values = self._array.last(VALUES * np.dtype(dtype).itemsize).view(dtype)
        values[:] = np.arange(VALUES) % 7
        engine = EngineByHand(self._config.engine(0), self._store, LEAD_BYTES)
        engine.submit(Operation.of(values), values, 0.0)
        switch = ReferenceSwitch(lanes_per_frame=LANES)
        for rank in range(2):
            switch.admit(self._config.member(rank))
        now, sent = 0.0, 0
        for _ in range(FRAMES):
            rows, lengths = engine.outgoing()
            frames = [self._store[r, LEAD_BYTES : LEAD_BYTES + n].tobytes() for r, n in zip(rows, lengths, strict=True)]
            engine.sent(len(frames))
            sent += len(frames)
            engine.consumed(sent)
            if choices.is_over:
                break
            for answer in self._answers(switch, frames, choices):
                self._take(engine, answer, now)
            now += SILENCE_S
            engine.poll(now)
            engine.events().clear()

    def _answers(self, switch: ReferenceSwitch, frames: list[bytes], choices: Choices) -> Iterator[bytes]:
        """Yield what the switch says, truly or not."""
        for frame in frames:
            packet = parse_frame(frame)
            assert packet is not None, "an engine's own frame is not one"
            for port, answer in [*switch.process(1, frame), *switch.process(2, self._other(packet, choices))]:
                if port == 1:
                    yield damage(answer, choices) if choices.below(2) else answer
        if choices.below(8) == 0:
            yield choices.rest()

    def _other(self, packet: Packet, choices: Choices) -> bytes:
        """Return the other member's contribution to the same round."""
        header = replace(packet.header, rank=1, cookie=self._config.cookie(1))
        if choices.below(4) == 0:
            header = replace(header, next_block=choices.pick((0, 1, 2, 3, 5, 6, 1 << 31, NO_BLOCK)))
            header = replace(header, next_exponent=choices.number(1), flags=header.flags & Flag.PAYLOAD)
        return build_frame(self._config.address(1), SWITCH_ADDRESS, header, packet.payload)

    def _take(self, engine: EngineByHand, frame: bytes, now: float) -> None:
        packet = parse_frame(frame)
        if packet is not None and packet.header.kind in set(Kind):
            again = build_frame(packet.source, packet.destination, packet.header, packet.payload)
            copy = parse_frame(again)
            assert copy is not None
            assert (copy.header, copy.payload) == (packet.header, packet.payload)
        view = self._came.place(bytes(LEAD_BYTES) + frame)
        engine.receive(view.reshape(1, -1), self._row, np.array([len(frame)], np.int32), now)


def seeds() -> Iterator[bytes]:
    """Return inputs that get far."""
    for dtype in range(3):
        yield bytes([dtype]) + bytes(64)
        yield bytes([dtype]) + bytes(range(1, 200))
    yield b"\1" * HEADER_BYTES
    yield CALLS_INTEGERS_NOT_FINITE

"""Random frames for our own program, well-formed and broken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from switchsum.protocol import wire
from switchsum.protocol.frame import NO_BLOCK, WIDENED_FORMATS, Flag, Header, Kind, LaneFormat, Operator
from switchsum.testing.encapsulations import encapsulations
from switchsum.testing.rig import CPU_PORT, EPOCH, FIRST_SLOT, JOB, SWITCH, Rig, cookie, worker

T = TypeVar("T")

WORKERS = 3


class Traffic:
    """Random frames: rounds that get on, repeats, strangers, and damage of every kind."""

    def __init__(self, rig: Rig, seed: int) -> None:
        self._rig = rig
        self._rng = np.random.default_rng(seed)
        self._numbers = [0xFFFF_FFF0] * 4
        self._lanes = [self._rng.integers(-(2**31), 2**31, rig.lanes_per_frame).astype(np.int32) for _ in range(8)]

    def frame(self) -> tuple[int, bytes]:
        """Return a port and what comes in there."""
        rng = self._rng
        choice = rng.integers(20)
        if choice == 0:
            return int(rng.integers(0, 8)), self._other()
        if choice == 1:
            return CPU_PORT, self._from_controller()
        rank = int(rng.integers(WORKERS))
        frame = self._contribution(rank)
        if choice == 2:
            frame = self._damaged(frame)
        return (rank + 1 if rng.integers(40) else int(rng.integers(512))), frame

    def _contribution(self, rank: int) -> bytes:
        rng = self._rng
        slot = int(rng.integers(4))
        if not rng.integers(6):
            self._numbers[slot] = (self._numbers[slot] + 1) & 0xFFFF_FFFF
        with_payload, checksum = rng.integers(4), not rng.integers(5)
        fields: dict[str, Any] = {
            "kind": Kind.CONTRIBUTION,
            "job": JOB,
            "epoch": EPOCH,
            "rank": rank,
            "cookie": cookie(rank),
            "slot": FIRST_SLOT + slot,
            "number": (self._numbers[slot] - (not rng.integers(20))) & 0xFFFF_FFFF,
            "flags": Flag.PAYLOAD if with_payload else Flag(0),
            "format": self._pick([LaneFormat.INT32] * 12 + list(LaneFormat)),
            "operator": self._pick([Operator.SUM] * 11 + list(Operator)),
            "next_block": self._pick([NO_BLOCK, 3, 4]),
            "next_exponent": int(rng.integers(3)),
        }
        if not rng.integers(8):
            field = self._pick(
                [
                    "version",
                    "kind",
                    "job",
                    "epoch",
                    "rank",
                    "cookie",
                    "slot",
                    "flags",
                    "format",
                    "operator",
                    "block",
                    "digest",
                ]
            )
            fields[field] = int(rng.integers(16))
        payload = self._lanes[rng.integers(8)].astype(">i4").tobytes() if with_payload else self._rig.padding
        if with_payload and fields["format"] in WIDENED_FORMATS and rng.integers(4):
            payload = payload[: len(payload) // 2]
        return wire.build_frame(worker(rank), SWITCH, Header(**fields), payload, checksum=checksum)

    def _damaged(self, frame: bytes) -> bytes:
        rng = self._rng
        match rng.integers(5):
            case 0:
                return frame[: rng.integers(len(frame))]
            case 1:
                return frame + rng.bytes(int(rng.integers(1, 70)))
            case 2:
                return rng.bytes(int(rng.integers(0, 200)))
        changed = bytearray(frame)
        for _ in range(int(rng.integers(1, 4))):
            place = int(rng.integers(min(len(frame), 100)))
            changed[place] ^= 1 << int(rng.integers(8))
        return bytes(changed)

    def _from_controller(self) -> bytes:
        rng = self._rng
        header = Header(
            kind=self._pick([Kind.QUERY, Kind.SET, Kind.HELLO]),
            slot=FIRST_SLOT + int(rng.integers(5)),
            number=self._numbers[rng.integers(4)],
            bitmap=int(rng.integers(8)),
        )
        frame = wire.build_frame(SWITCH, SWITCH, header)
        front = (int(rng.integers(512)) << 7).to_bytes(2)
        return front + (frame if rng.integers(4) else self._damaged(frame))

    def _other(self) -> bytes:
        rng = self._rng
        source = worker(int(rng.integers(WORKERS))) if rng.integers(4) else SWITCH
        if rng.integers(2):
            ask = bytes.fromhex("0001080006040001") + source.mac.to_bytes(6) + source.ip.to_bytes(4) + bytes(6)
            return b"\xff" * 6 + source.mac.to_bytes(6) + b"\x08\x06" + ask + SWITCH.ip.to_bytes(4)
        target = worker(int(rng.integers(WORKERS)))
        if rng.integers(2):
            inner = wire.build_frame(source, target, Header(kind=Kind.RESULT))
            frame = self._pick([frame for _, frame, _ in encapsulations(inner, worker(0), target)])
            return frame if rng.integers(4) else self._damaged(frame)
        return target.mac.to_bytes(6) + source.mac.to_bytes(6) + rng.bytes(2 + int(rng.integers(1500)))

    def _pick(self, choices: Sequence[T]) -> T:
        return choices[int(self._rng.integers(len(choices)))]

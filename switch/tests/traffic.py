"""Random frames for our own program, well-formed and broken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from switchsum.testing.encapsulations import encapsulations
from switchsum.testing.rig import (
    CPU_PORT,
    EPOCH,
    FIRST_SLOT,
    GROUP,
    JOB,
    SLOT_COUNT,
    SWITCH,
    Engine,
    Rig,
    cookie,
    worker,
)
from switchsum_protocol import wire
from switchsum_protocol.frame import NO_BLOCK, WIDENED_FORMATS, Flag, Header, Kind, LaneFormat, Operator
from switchsum_protocol.shared_rules import AGE_US, ORPHAN_AGE
from switchsum_switch.wires import headers

T = TypeVar("T")

WORKERS = 3
SHARING_JOBS = (JOB + 1, JOB + 2)
"""Jobs of the same workers that share slots."""
FIRST_SHARED, SHARED = FIRST_SLOT + SLOT_COUNT, 2
FIRST_THERE = 40
"""The first slot of both jobs at their fallback."""
FALLBACK = headers.Address(mac=0x02_00_00_00_02_00, ip=headers.parse_ip("10.0.1.254"), port=21333)
FALLBACK_PORT = 5
RELAY = WORKERS
"""Rank of this switch as a member of the fallback."""


def share_slots(engine: Engine) -> None:
    """Admit two jobs that share slots, as a controller does."""
    admission, cells = "SwitchIngress.validate.admission", "SwitchIngress.dispatch.cells.fallback"
    relay = (RELAY, cookie(RELAY))
    for job in SHARING_JOBS:
        for rank in range(WORKERS):
            at = worker(rank)
            engine.insert(
                "SwitchEgress.result_address",
                (job, rank),
                "SwitchEgress.address",
                (at.mac, at.ip, at.port, cookie(rank)),
            )
            engine.insert(
                f"{admission}.admission",
                (job, 0, rank, EPOCH, at.ip, at.port, rank + 1),
                f"{admission}.admit_shared",
                (1 << rank, (1 << WORKERS) - 1, FIRST_SHARED, SHARED, GROUP, cookie(rank), 0),
            )
        there = (FALLBACK_PORT, FALLBACK.mac, FALLBACK.ip, FALLBACK.port, *relay, FIRST_THERE - FIRST_SHARED, 0)
        engine.insert(f"{cells}.fallback", (job, 0, EPOCH), f"{cells}.pass", there)
        above = (FALLBACK.ip, FALLBACK.port, FALLBACK_PORT, *relay, FIRST_THERE, SHARED, FIRST_SHARED, GROUP)
        engine.insert(
            "SwitchIngress.validate.above.above", (job, 0, EPOCH), "SwitchIngress.validate.above.relay", above
        )


class Traffic:
    """Random frames: rounds that get on, repeats, strangers, slots that two jobs share, and damage of every kind."""

    def __init__(self, rig: Rig, seed: int) -> None:
        self._rig = rig
        self._rng = np.random.default_rng(seed)
        self._numbers = [0xFFFF_FFF0] * 4
        self._operations = {(job, slot): (1, 1) for job in SHARING_JOBS for slot in range(SHARED)}
        self.now_us = 0
        """The switch's clock. It makes a jump now and then, so that slots have lost their owners."""
        self._lanes = [self._rng.integers(-(2**31), 2**31, rig.lanes_per_frame).astype(np.int32) for _ in range(8)]

    def frame(self) -> tuple[int, bytes]:
        """Return a port and what comes in there."""
        rng = self._rng
        choice = rng.integers(20)
        if choice == 0:
            return int(rng.integers(0, 8)), self._other()
        if choice == 1:
            return CPU_PORT, self._from_controller()
        if choice < 5:
            self.now_us += 2 * ORPHAN_AGE * AGE_US if not rng.integers(50) else int(rng.integers(2 * AGE_US))
            return self._of_sharing_jobs()
        rank = int(rng.integers(WORKERS))
        frame = self._contribution(rank)
        if choice == 5:
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

    def _of_sharing_jobs(self) -> tuple[int, bytes]:
        """Return a claim, a later contribution to an operation of either job, or what the fallback says of one."""
        rng = self._rng
        job, slot = self._pick(SHARING_JOBS), int(rng.integers(SHARED))
        digest, number = self._operations[job, slot]
        if not rng.integers(4):
            digest, number = digest + (not rng.integers(3)), number + 1
            self._operations[job, slot] = digest, number
        with_payload = bool(rng.integers(2))
        fields: dict[str, Any] = {
            "job": job,
            "epoch": EPOCH,
            "number": number - (not rng.integers(8)),
            "digest": digest - (not rng.integers(8)),
            "block": self._pick([NO_BLOCK, 0, 0]),
            "next_block": self._pick([NO_BLOCK, 3]),
            "flags": Flag.PAYLOAD if with_payload else Flag(0),
        }
        payload = self._lanes[rng.integers(8)].astype(">i4").tobytes() if with_payload else self._rig.padding
        if not rng.integers(4):
            fields |= {"rank": RELAY, "cookie": cookie(RELAY), "slot": FIRST_THERE + slot}
            header = Header(kind=self._pick([Kind.RESULT, Kind.RESULT, Kind.HELD, Kind.REJECT]), **fields)
            return FALLBACK_PORT, wire.build_frame(FALLBACK, SWITCH, header, payload)
        rank = int(rng.integers(WORKERS))
        fields |= {"rank": rank, "cookie": cookie(rank), "slot": FIRST_SHARED + slot}
        return rank + 1, wire.build_frame(worker(rank), SWITCH, Header(kind=Kind.CONTRIBUTION, **fields), payload)

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
            slot=self._pick([*range(FIRST_SLOT, FIRST_SLOT + 5), FIRST_SHARED]),
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

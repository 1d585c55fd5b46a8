"""Frames into the switch: our program in native code, beside the interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from checks.fuzz.both import Both
from checks.fuzz.choices import Choices, damage
from switchsum.testing.encapsulations import encapsulations
from switchsum.testing.rig import CPU_PORT, EPOCH, FIRST_SLOT, FLOOD_GROUP, FORWARDING, JOB, SWITCH, Rig, cookie, worker
from switchsum_protocol import wire
from switchsum_protocol.frame import WIDENED_FORMATS, Flag, Header, Kind, narrow_bytes

LANES: Final = 128
WORKERS: Final = 3
FRAMES: Final = 6
ENCAPSULATIONS: Final = 46
"""As many are there to choose from."""


class Target:
    """A switch of each kind that has a job."""

    def __init__(self) -> None:
        self._both = Both(LANES)
        for engine in (self._both.native, self._both.interpreted):
            Rig(engine, workers=WORKERS, lanes_per_frame=LANES)
            engine.set_default(f"{FORWARDING}.stations", f"{FORWARDING}.flood", (FLOOD_GROUP,))
        self._lanes = np.arange(LANES, dtype=">i4").tobytes()

    def run(self, data: bytes) -> None:
        """Run some frames through both and compare what comes out."""
        choices = Choices(data)
        for _ in range(FRAMES):
            self._both.run(*self._frame(choices))
            if choices.is_over:
                break
        self._both.compare()

    def _frame(self, choices: Choices) -> tuple[int, bytes]:
        """Make up a frame: nearly right, or anything."""
        how = choices.below(8)
        if how == 0:
            return choices.below(512), choices.rest()[:2048] or b"\0"
        if how == 7:
            return self._encapsulated(choices)
        rank = choices.below(WORKERS)
        from_controller = how == 1
        kind = choices.pick((Kind.QUERY, Kind.SET)) if from_controller else Kind.CONTRIBUTION
        has_payload = not from_controller and choices.below(2) == 1
        header = Header(
            kind=kind,
            job=JOB,
            epoch=EPOCH,
            rank=rank,
            slot=choices.pick((*(FIRST_SLOT + slot for slot in (0, 0, 1, 7, 8, -1)), 1024, 1 << 31, 0xFFFF_FFFF)),
            number=choices.pick((0, 1, 2, 3, 4, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF)),
            flags=Flag.PAYLOAD if has_payload else Flag(0),
            format=choices.pick((1, 2, 3, 7, 8)),
            next_block=choices.pick((0, 1, 0xFFFF_FFFF)),
            bitmap=choices.number(1),
            cookie=choices.pick((cookie(rank), cookie(rank), cookie(rank), 0)) if kind is Kind.CONTRIBUTION else 0,
        )
        source = SWITCH if from_controller else worker(rank)
        is_narrow = header.format in WIDENED_FORMATS and choices.below(4) > 0
        payload = self._lanes[: narrow_bytes(LANES)] if is_narrow else self._lanes
        frame = wire.build_frame(source, SWITCH, header, payload if has_payload else b"")
        if choices.below(2):
            frame = damage(frame, choices)
        return (CPU_PORT, bytes(2) + frame) if from_controller else (rank + 1, frame or b"\0")

    def _encapsulated(self, choices: Choices) -> tuple[int, bytes]:
        """Make up ordinary traffic that carries a result, by the switch or by a worker, in something; or nearly so."""
        frame = wire.build_frame(choices.pick((SWITCH, worker(0))), worker(1), Header(kind=Kind.RESULT))
        frame = choices.pick([around for _, around, _ in encapsulations(frame, worker(2), worker(1))])
        return 1 + choices.below(WORKERS), (damage(frame, choices, 2) if choices.below(2) else frame) or b"\0"


def seeds() -> Iterator[bytes]:
    """Return inputs that get far."""
    for rank in range(WORKERS):
        yield bytes([2, rank, 1, 0, 1, 0, 2, 0, 0] * FRAMES)
    yield bytes([2, 0, 1, 0, 1, 0, 2, 0, 0, 2, 1, 1, 0, 1, 0, 2, 0, 0, 2, 2, 1, 0, 1, 0, 2, 0, 0])
    yield bytes([1, 0, 0, 0, 1, 0, 0, 3, 0])
    yield b"".join(bytes([2, rank, 1, 0, 1, 3, 2, 0, 0, 1, 0]) for rank in range(WORKERS))  # what is to be widened
    for around in range(ENCAPSULATIONS):
        yield b"".join(bytes([7, sender, around, 0, 0]) for sender in (0, 1))
    yield bytes(range(100))

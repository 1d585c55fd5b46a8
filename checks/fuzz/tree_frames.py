"""Frames into a leaf and an inner switch of a tree: our program in native code, beside the interpreter.

What comes from members and what comes from the switch above is nearly right, or anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from checks.fuzz.both import Both
from checks.fuzz.choices import Choices, damage
from support.tree_pair import ABOVE, EPOCH, FIRST, JOB, LANES, UP, Pair, program
from switchsum_protocol import wire
from switchsum_protocol.frame import WIDENED_FORMATS, Flag, Header, Kind, narrow_bytes

MEMBERS: Final = 3
FRAMES: Final = 8
_FROM_ABOVE: Final = (Kind.RESULT, Kind.RESULT, Kind.RESULT, Kind.HELD, Kind.REJECT, Kind.CONTRIBUTION)
_NUMBERS: Final = (1, 1, 1, 2, 3, 0, 0x8000_0001, 0xFFFF_FFFF)


class Role:
    """Two engines that have one switch's entries."""

    def __init__(self, *, is_inner: bool) -> None:
        self.both = Both(LANES)
        self.pair = Pair(self.both.native, members=MEMBERS, is_inner=is_inner)
        program(self.both.interpreted, self.pair.own, self.pair.members, self.pair.above)


class Target:
    """A leaf and an inner switch, each twice, that get the same frames."""

    def __init__(self) -> None:
        self._roles = [Role(is_inner=False), Role(is_inner=True)]
        self._lanes = np.arange(LANES, dtype=">i4").tobytes()

    def run(self, data: bytes) -> None:
        """Run some frames through both engines of a switch, and compare what comes out and what stays."""
        choices = Choices(data)
        role = self._roles[choices.below(len(self._roles))]
        for _ in range(FRAMES):
            role.both.run(*self._frame(role.pair, choices))
            if choices.is_over:
                break
        role.both.compare()

    def _frame(self, pair: Pair, choices: Choices) -> tuple[int, bytes]:
        """Make up a frame of a member, or of the switch above."""
        is_above = choices.below(2) == 1
        one = pair.members[choices.below(MEMBERS)]
        who = pair.above if is_above else one
        first = ABOVE if is_above else FIRST
        has_payload = choices.below(3) > 0
        header = Header(
            kind=choices.pick(_FROM_ABOVE) if is_above else Kind.CONTRIBUTION,
            job=JOB,
            epoch=choices.pick((EPOCH, EPOCH, EPOCH, EPOCH + 1)),
            rank=who.rank,
            slot=first + choices.pick((0, 0, 0, 1, 2, -1)),
            number=choices.pick(_NUMBERS),
            flags=(Flag.PAYLOAD if has_payload else Flag(0)) | choices.pick((0, 0, 0, *map(int, Flag))),
            format=choices.pick((1, 2, 3, 7, 8)),
            next_block=choices.pick((0, 1, 0xFFFF_FFFF)),
            bitmap=choices.number(1),
            cookie=choices.pick((who.cookie, who.cookie, who.cookie, 0)),
        )
        is_narrow = header.format in WIDENED_FORMATS and choices.below(4) > 0
        payload = self._lanes[: narrow_bytes(LANES)] if is_narrow else self._lanes
        frame = wire.build_frame(who.address, pair.own, header, payload if has_payload else b"")
        if choices.below(4) == 0:
            frame = damage(frame, choices)
        return choices.pick((who.port, who.port, who.port, UP)), frame or b"\0"


def seeds() -> Iterator[bytes]:
    """Return inputs that get far: all members contribute, and the result comes from above."""
    everybody = [bytes([0, place, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]) for place in range(MEMBERS)]
    above = bytes([1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0])
    for role in range(2):
        yield bytes([role]) + b"".join(everybody)
        yield bytes([role]) + b"".join(everybody) + above + everybody[0]
        yield bytes([role]) + above * 3
    yield bytes(range(100))

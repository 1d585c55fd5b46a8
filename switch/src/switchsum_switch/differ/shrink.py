"""Shrinks a case that shows a difference to the smallest one that still does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from .case import Packet, Step


def shrink(steps: Sequence[Step], differs: Callable[[Sequence[Step]], bool], tries: int) -> tuple[Step, ...]:
    """Return as few and as short steps as `tries` runs find, for which `differs` is still true."""
    left = [tries]

    def holds(candidate: Sequence[Step]) -> bool:
        left[0] -= 1
        return left[0] >= 0 and differs(candidate)

    kept = _fewer(list(steps), holds)
    return tuple(_shorter(kept, holds))


def _fewer(steps: list[Step], holds: Callable[[Sequence[Step]], bool]) -> list[Step]:
    """Leave out halves, then quarters, and at last single steps (delta debugging)."""
    size = max(1, len(steps) // 2)
    while True:
        at, shrunk = 0, False
        while at < len(steps):
            candidate = steps[:at] + steps[at + size :]
            if candidate and holds(candidate):
                steps, shrunk = candidate, True
            else:
                at += size
        if size == 1 and not shrunk:
            return steps
        size = max(1, size // 2)


def _shorter(steps: list[Step], holds: Callable[[Sequence[Step]], bool]) -> list[Step]:
    """Cut frames at their ends, and set the bytes that do not matter to zero, in halves, quarters, and so on."""
    for index, step in enumerate(steps):
        if not isinstance(step, Packet):
            continue
        frame = step.frame
        length = len(frame) // 2
        while 0 < length < len(frame):
            cut = [*steps[:index], replace(step, frame=frame[:length]), *steps[index + 1 :]]
            if holds(cut):
                frame, steps = frame[:length], cut
                length = length // 2
            else:
                length += max(1, (len(frame) - length) // 2)
        size = max(1, len(frame) // 2)
        while size:
            for at in range(0, len(frame), size):
                zeroed = frame[:at] + bytes(len(frame[at : at + size])) + frame[at + size :]
                candidate = [*steps[:index], replace(step, frame=zeroed), *steps[index + 1 :]]
                if zeroed != frame and holds(candidate):
                    frame, steps = zeroed, candidate
            size //= 2
    return steps

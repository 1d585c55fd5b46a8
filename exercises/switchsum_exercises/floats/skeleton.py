"""Exercise 5: floats.  Complete what says TODO."""

from __future__ import annotations

import math  # noqa: F401

from switchsum_exercises.frames import LANES, LARGEST, LOWEST_EXPONENT, Answers, Frame, Kind, add, port_of  # noqa: F401

ZEROS = (0,) * LANES


def exponent_of(values: tuple[float, ...], workers: int) -> int:
    """Return the smallest exponent with which the sum of as many ranks fits, or one more; LOWEST_EXPONENT for zeros."""
    # TODO: workers times the greatest lane must be at most LARGEST.
    return 0


def to_lanes(values: tuple[float, ...], exponent: int) -> tuple[int, ...]:
    """Return values in units of 2^exponent."""
    # TODO: round to the nearest, halves to even; what does not fit becomes LARGEST or -LARGEST - 1.
    return tuple(int(value / 2**exponent) for value in values)


def to_floats(lanes: tuple[int, ...], exponent: int) -> tuple[float, ...]:
    """Return what lanes stand for."""
    return tuple(float(lane) for lane in lanes)  # TODO


class Switch:
    """Compares exponents, then adds lanes."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.sums: tuple[int, ...] = ZEROS
        self.count = 0

    def process(self, port: int, frame: Frame) -> Answers:
        """Take a contribution; return nothing, or the result for every rank when it was the last one."""
        # TODO: frames with lanes=() ask for an exponent: the result has the greatest one and no lanes.
        # TODO: a sum beyond LARGEST or -LARGEST - 1 stays there.  The result has the exponent of the contributions.
        self.sums = add(self.sums, frame.lanes or ZEROS)
        self.count += 1
        if self.count < self.workers:
            return []
        result = Frame(kind=Kind.RESULT, lanes=self.sums, exponent=frame.exponent)
        self.sums, self.count = ZEROS, 0
        return [(port_of(rank), result) for rank in range(self.workers)]

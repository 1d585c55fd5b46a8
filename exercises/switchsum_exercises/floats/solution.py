"""Exercise 5, solved: floats."""

from __future__ import annotations

import math

from switchsum_exercises.frames import LANES, LARGEST, LOWEST_EXPONENT, Answers, Frame, Kind, add, port_of

ZEROS = (0,) * LANES


def clamp(value: int) -> int:
    """Return the nearest integer that a lane holds."""
    return max(-LARGEST - 1, min(LARGEST, value))


def exponent_of(values: tuple[float, ...], workers: int) -> int:
    """Return the smallest exponent with which the sum of as many ranks fits; LOWEST_EXPONENT for zeros."""
    greatest = max(abs(value) for value in values)
    if greatest == 0:
        return LOWEST_EXPONENT
    exponent = math.frexp(greatest)[1] - 31
    while workers * round(math.ldexp(greatest, -exponent)) > LARGEST:
        exponent += 1
    return exponent


def to_lanes(values: tuple[float, ...], exponent: int) -> tuple[int, ...]:
    """Return values in units of 2^exponent."""
    return tuple(clamp(round(math.ldexp(value, -exponent))) for value in values)


def to_floats(lanes: tuple[int, ...], exponent: int) -> tuple[float, ...]:
    """Return what lanes stand for."""
    return tuple(math.ldexp(lane, exponent) for lane in lanes)


class Switch:
    """Compares exponents, then adds lanes."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.sums: tuple[int, ...] = ZEROS
        self.exponent = LOWEST_EXPONENT
        self.count = 0

    def process(self, port: int, frame: Frame) -> Answers:
        """Take a contribution; return nothing, or the result for every rank when it was the last one."""
        self.sums = tuple(clamp(total) for total in add(self.sums, frame.lanes or ZEROS))
        self.exponent = max(self.exponent, frame.exponent)
        self.count += 1
        if self.count < self.workers:
            return []
        result = Frame(kind=Kind.RESULT, lanes=self.sums if frame.lanes else (), exponent=self.exponent)
        self.sums, self.exponent, self.count = ZEROS, LOWEST_EXPONENT, 0
        return [(port_of(rank), result) for rank in range(self.workers)]

"""Exercise 5: what worker and switch must do."""

from __future__ import annotations

import math
import random
from typing import Any

from switchsum_exercises.driver import Attempt, Bench, Wrong, ranks
from switchsum_exercises.frames import LARGEST, LOWEST_EXPONENT, WORKERS, Frame

Values = tuple[float, ...]
BLOCKS = (
    (1.0, 0.5, -0.25, 0.0),
    (0.0, -70_000.0, 3.5, 1.0),
    (2.0**-140, 0.0, 0.0, 0.0),
    (1.5 * 2.0**100, 1.0, 0.0, 0.0),
)
SMALLEST = 2.0**-149
"""Of float32."""


def least(values: Values, workers: int) -> int:
    """Return the smallest exponent that will do."""
    greatest = max(map(abs, values))
    exponent = math.frexp(greatest)[1] - 40
    while workers * round(math.ldexp(greatest, -exponent)) > LARGEST:
        exponent += 1
    return exponent


def integer(value: Any, what: str) -> int:
    """Return an integer; raises Wrong for anything else."""
    if not isinstance(value, int):
        raise Wrong(f"{what} is {value!r}, which is no integer")
    return value


def exponents(attempt: Attempt) -> None:
    """See that exponents leave room for the sum, and no more."""
    for values in BLOCKS:
        for workers in (1, 3, 16):
            what = f"exponent_of({values}, {workers})"
            got, right = integer(attempt.call("exponent_of", values, workers), what), least(values, workers)
            if got < right:
                raise Wrong(
                    f"{what} is {got}: the sum of {workers} such ranks overflows a lane; {right} has room for it"
                )
            if got > right + 1:
                lost = f"{got - right} bits of every value are lost"
                raise Wrong(f"{what} is {got}, and {right} would do, or {right + 1}: {lost}")
    got = integer(attempt.call("exponent_of", (0.0,) * 4, WORKERS), "exponent_of zeros")
    if got > least((SMALLEST,) * 4, 1):
        raise Wrong(f"exponent_of zeros is {got}: a rank with zeros must not raise the exponent of the others")


def lanes_of(attempt: Attempt, values: Values, exponent: int) -> tuple[int, ...]:
    """Return what to_lanes makes of values."""
    made = attempt.call("to_lanes", values, exponent)
    if not isinstance(made, tuple) or len(made) != len(values) or not all(isinstance(lane, int) for lane in made):
        raise Wrong(f"to_lanes({values}, {exponent}) is {made!r}; it is a tuple of {len(values)} integers")
    return made


def rounding(attempt: Attempt) -> None:
    """See that lanes are the nearest integers."""
    for value, right, why in (
        (0.75, 1, "the nearest integer is 1; cutting off makes every sum smaller"),
        (-0.75, -1, "the nearest integer is -1; cutting off makes every sum smaller"),
        (2.5, 2, "halves go to the even neighbour: always upwards, and sums grow"),
        (-3.5, -4, "halves go to the even neighbour"),
    ):
        for exponent in (0, -20, 7):
            scaled = math.ldexp(value, exponent)
            got = lanes_of(attempt, (scaled, 0.0, 0.0, 0.0), exponent)[0]
            if got != right:
                raise Wrong(f"{scaled} in units of 2^{exponent} is {value}, and its lane became {got}: {why}")
    for value, right in ((1e10, LARGEST), (-1e10, -LARGEST - 1)):
        got = lanes_of(attempt, (value, 0.0, 0.0, 0.0), 0)[0]
        if got != right:
            raise Wrong(f"{value} in units of 2^0 became the lane {got}, which is not {right}: a lane has 32 bits")


def back(attempt: Attempt) -> None:
    """See that floats come back."""
    for lanes, exponent in (((8, -1, 0, 3), -3), ((1, 2, 3, -4), 5)):
        right = tuple(math.ldexp(lane, exponent) for lane in lanes)
        got = attempt.call("to_floats", lanes, exponent)
        if tuple(got) != right:
            raise Wrong(f"to_floats({lanes}, {exponent}) is {got}; the values are {right}")


def allreduce(bench: Bench, frames: list[dict[str, Any]], what: str) -> Frame:
    """Send a frame of each rank; return the result of the last one."""
    for count, fields in enumerate(frames, 1):
        results = bench.contribute(count - 1, **fields)
        if count < len(frames) and results:
            raise Wrong(f"{what}: a result left after {count} of {len(frames)} contributions")
    if missing := [rank for rank in range(WORKERS) if rank not in results]:
        raise Wrong(f"{what}: {ranks(missing)} got no result")
    return results[0]


def agree(bench: Bench, wanted: list[int]) -> int:
    """Let ranks agree on an exponent."""
    result = allreduce(bench, [{"lanes": (), "exponent": one} for one in wanted], "exponents")
    if result.lanes:
        raise Wrong(f"ranks asked for an exponent, with frames without lanes, and the result has lanes {result.lanes}")
    if result.exponent != max(wanted):
        raise Wrong(
            f"ranks need exponents {wanted}, and the switch answered {result.exponent}: with less than the greatest, "
            f"{max(wanted)}, a rank overflows; with more, bits are lost"
        )
    return result.exponent


def switch(attempt: Attempt) -> None:
    """See that exponents are compared, and sums saturate."""
    bench = attempt.switch(WORKERS)
    for wanted in ([-20, -3, -9], [-30, -29, -31], [5, LOWEST_EXPONENT, 0], [LOWEST_EXPONENT] * 3):
        agree(bench, wanted)
    for sign, right in ((1, LARGEST), (-1, -LARGEST - 1)):
        lanes = (sign * 2**30, sign, 0, 7)
        result = allreduce(bench, [{"lanes": lanes, "exponent": -4}] * WORKERS, "lanes")
        if len(result.lanes) != len(lanes) or result.lanes[0] != right:
            raise Wrong(
                f"three times {lanes[0]} became {result.lanes[:1]}; 32 bits do not hold that: it saturates at {right}"
            )
        if result.lanes[1:] != (3 * sign, 0, 21):
            raise Wrong(f"three times {lanes} became {result.lanes}")
        if result.exponent != -4:
            raise Wrong(f"contributions have exponent -4 and the result {result.exponent}: nobody can read the sum")


def everything(attempt: Attempt) -> None:
    """Add random floats, block after block."""
    bench, dice = attempt.switch(WORKERS), random.Random(1)
    for number in range(50):
        size = 2.0 ** dice.randrange(-60, 60)
        values = [tuple(dice.gauss(0, size) for _ in range(4)) for _ in range(WORKERS)]
        exponent = agree(bench, [attempt.call("exponent_of", one, WORKERS) for one in values])
        frames = [{"lanes": lanes_of(attempt, one, exponent), "exponent": exponent} for one in values]
        result = allreduce(bench, frames, f"block {number}")
        got = attempt.call("to_floats", result.lanes, result.exponent)
        for mine, right in zip(got, (math.fsum(column) for column in zip(*values, strict=True)), strict=True):
            if abs(mine - right) > WORKERS / 2 * math.ldexp(1.0, exponent):
                raise Wrong(f"block {number}: a sum is {mine} and should be {right}: off by more than three half units")


CHECKS = (exponents, rounding, back, switch, everything)

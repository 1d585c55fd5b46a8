"""How long a test waits: limits that grow with how slow the machine is at this moment, and waits for events.

A limit in a test is what a quiet machine needs, times a generous factor; `patience` makes it longer on one that is slow
or busy.  Nothing that goes well waits for a limit, so a long one costs no time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final

VARIABLE: Final = "SWITCHSUM_TEST_SLOWNESS"
"""Environment variable with the factor: set by hand, or measured once in a run, for its workers and their programs."""
PIECE: Final = "for i in range(1_500_000): i * i"
PIECE_S: Final = 0.1
"""What that takes a process on a quiet machine of today, with its start."""
MOST: Final = 30.0
"""A machine that is slower than this will not get through the tests, and a test that hangs is to end some day."""
POLL_S: Final = 0.01


def _measure() -> float:
    """Return how many times longer than on a quiet machine a piece of work takes on every core, at least 1."""
    cores = len(os.sched_getaffinity(0))
    began = time.monotonic()
    pieces = [subprocess.Popen([sys.executable, "-I", "-S", "-c", PIECE]) for _ in range(cores)]
    for piece in pieces:
        piece.wait()
    measured = (time.monotonic() - began) / PIECE_S
    # What others run in bursts is seen in the load of the last minute.
    return min(max(1.0, measured, os.getloadavg()[0] / cores), MOST)


def _slowness() -> float:
    if VARIABLE not in os.environ:
        os.environ[VARIABLE] = f"{_measure():.2f}"
    return float(os.environ[VARIABLE])


_IS_GIVEN: Final = VARIABLE in os.environ
SLOWNESS: Final = _slowness()


def expect_company() -> None:
    """Have the processes of tests that start from here on wait twice as long: each of them keeps the others waiting.

    What is measured before they begin does not know of them.  A factor that was set by hand stays.
    """
    if not _IS_GIVEN:
        os.environ[VARIABLE] = f"{min(2 * SLOWNESS, MOST):.2f}"


def patience(seconds: float) -> float:
    """Return a time-out for something that takes under `seconds` on a quiet machine, whatever it runs beside."""
    return seconds * SLOWNESS


def eventually(condition: Callable[[], object], seconds: float = 60.0) -> bool:
    """Wait until something is true; return whether it has become so within `seconds` of a quiet machine."""
    end = time.monotonic() + patience(seconds)
    while not condition():
        if time.monotonic() > end:
            return bool(condition())
        time.sleep(POLL_S)
    return True

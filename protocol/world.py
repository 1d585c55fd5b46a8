"""How many workers a job may have, and which operators and lane formats hold the sum of so many.

A switch has a bit for each of its members, 32 of them; over a tree of switches a job has more workers.  Partial sums
travel in the same lanes as results, so what counts is how many workers' values a lane must hold in the end: a format
that holds the sum of all of them holds that of those below any switch.
"""

from __future__ import annotations

from typing import Final

from .errors import UsageError
from .frame import MAX_WORKERS, MOST_WORKERS
from .lanes import MIN_SCALE_BITS

EXACT_WORKERS: Final = MAX_WORKERS
"""So many digits of 26 bits add up in a lane of 32: of more workers, a few floats are added in two rounds."""
_BITS: Final = {"int32": 32, "int16": 16, "int8": 8}


def most_workers(lanes: str) -> int:
    """Return how many workers' floats may be summed up in lanes of a format, `int32`, `int16` or `int8`."""
    bits = _BITS[lanes]
    return min(MOST_WORKERS, ((1 << (bits - 1)) - 1) // ((1 << MIN_SCALE_BITS) - 1))


def check_lanes(lanes: str, workers: int) -> None:
    """Refuse lanes that do not hold the sum of so many workers; raises UsageError, which names those that do."""
    if workers <= most_workers(lanes):
        return
    others = " or ".join(repr(other) for other in _BITS if workers <= most_workers(other))
    most = most_workers(lanes)
    raise UsageError(
        f"lanes={lanes!r} hold the sum of at most {most} workers, and the job has {workers}: lanes={others} hold it"
    )

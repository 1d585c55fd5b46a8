"""When the jobs of a cell arrive: from a file with a time for each, or drawn as a Poisson process."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from switchsum_lab.simulation.conditions import parse_time
from switchsum_protocol.errors import UsageError

POISSON: Final = "poisson:"


def check(text: str) -> None:
    """Raise UsageError for what says no arrivals."""
    times(text, None, seed=0)


def times(text: str, jobs: int | None, seed: int) -> list[float]:
    """Return when each job arrives, in seconds, the first one at 0 if they are drawn.

    Args:
        text: `poisson:200us`, with the mean time from one job to the next; or the path of a file, which has a time such
            as `150us` in each line. Empty lines and those that begin with `#` say nothing.
        jobs: How many there are; None: nobody asks for a number.
        seed: Of the draws.

    Raises:
        UsageError: It is none of both, or the file has another number of jobs.

    Example:
        >>> times("poisson:200us", 3, seed=1)[0]
        0.0

    """
    if text.startswith(POISSON):
        mean_s = parse_time(text.removeprefix(POISSON))
        gaps = np.random.default_rng([seed, 3]).exponential(mean_s, (jobs or 1) - 1)
        return [0.0, *map(float, np.cumsum(gaps))]
    try:
        lines = [line.strip() for line in Path(text).read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise UsageError(f"arrivals are poisson:200us, or a file with a time in each line; {text}: {reason}") from error
    found = [parse_time(line) for line in lines if line and not line.startswith("#")]
    if jobs is not None and len(found) != jobs:
        raise UsageError(f"{text} has {len(found)} arrivals: `jobs` must be as many, not {jobs}")
    return found

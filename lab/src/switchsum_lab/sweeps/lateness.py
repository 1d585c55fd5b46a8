"""How late the ranks of a cell begin: drawn from a distribution, with the seed of the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum_lab.simulation.conditions import parse_time
from switchsum_protocol.errors import UsageError

Draws = Callable[[np.random.Generator, float, int], npt.NDArray[np.float64]]


def _one(random: np.random.Generator, late_s: float, ranks: int) -> npt.NDArray[np.float64]:
    found = np.zeros(ranks)
    found[random.integers(ranks)] = late_s
    return found


DISTRIBUTIONS: Final[Mapping[str, Draws]] = MappingProxyType(
    {
        "exponential": lambda random, mean_s, ranks: random.exponential(mean_s, ranks),
        "uniform": lambda random, most_s, ranks: random.uniform(0.0, most_s, ranks),
        "one": _one,
    }
)
"""By name; each has one time: the mean, the most, and how late a single rank is."""


def parse(text: str) -> tuple[str, float]:
    """Return the distribution and its time; raises UsageError."""
    name, colon, time = text.partition(":")
    if name not in DISTRIBUTIONS or not colon:
        ways = ", ".join(f"{one}:100us" for one in DISTRIBUTIONS)
        raise UsageError(f"how late ranks are is written like {ways}, not {text!r}")
    return name, parse_time(time)


def drawn(text: str | None, ranks: int, seed: int) -> list[float]:
    """Return by how many seconds each rank begins behind the first one; all 0 without a distribution.

    Example:
        >>> drawn("one:1ms", 4, seed=0)
        [0.0, 0.0, 0.0, 0.001]

    """
    if text is None:
        return [0.0] * ranks
    name, time_s = parse(text)
    late = DISTRIBUTIONS[name](np.random.default_rng([seed, 2]), time_s, ranks)
    return [float(one) for one in late - late.min()]

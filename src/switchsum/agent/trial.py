"""A job without a program: allreduces whose sums everybody knows, to see whether two machines understand each other."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum.agent.options import AgentOptions, check_trial
from switchsum_host.api.communicator import Communicator
from switchsum_host.connect import connect
from switchsum_protocol.errors import RemoteError

BARRIERS: Final = 50
MEGABYTE: Final = 1_000_000
LOSSY: Final = 0.01
"""Share of repeats from which on it is worth a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What was seen."""

    rank: int
    world_size: int
    round_trip_ms: float
    """Median of some barriers."""
    allreduces: int
    megabytes: float
    """Megabytes of each array."""
    rate_mb_s: float
    """Megabytes of the array a second, over all allreduces."""
    frames_sent: int
    frames_received: int
    repeats: int
    """Frames sent again, for they or their answers were lost or late."""


def run(
    options: AgentOptions,
    world_size: int,
    *,
    megabytes: float,
    allreduces: int,
    joined: Callable[[], object] = lambda: None,
) -> Trial:
    """Join as the one rank of `options`, call `joined`, allreduce and check every sum.

    Every rank must ask for the same.  Raises RemoteError for a wrong sum, and whatever `connect` and `allreduce` raise.
    """
    check_trial(megabytes, allreduces)
    [rank] = options.ranks
    with connect(
        controller=options.controller, job=options.job, rank=rank, world_size=world_size, link=options.link
    ) as communicator:
        joined()
        round_trips = [_timed(communicator.barrier) for _ in range(BARRIERS)]
        seconds = _allreduce(communicator, max(1, round(megabytes * MEGABYTE / 4)), allreduces)
        seen = communicator.statistics()
        return Trial(
            rank=rank,
            world_size=world_size,
            round_trip_ms=statistics.median(round_trips) * 1e3,
            allreduces=allreduces,
            megabytes=megabytes,
            rate_mb_s=megabytes * allreduces / seconds,
            frames_sent=seen.frames_sent,
            frames_received=seen.frames_received,
            repeats=seen.repeats,
        )


def _allreduce(communicator: Communicator, count: int, allreduces: int) -> float:
    """Add arrays of `count` integers, check each sum; return the seconds spent adding."""
    pattern = np.random.default_rng(count).integers(-1_000_000, 1_000_000, count, np.int32)
    world_size, seconds = communicator.world_size, 0.0
    weights = world_size * (world_size + 1) // 2
    for serial in range(allreduces):
        values = pattern * np.int32(communicator.rank + 1) + np.int32(serial)
        seconds += _timed(lambda values=values: communicator.allreduce(values))  # type: ignore[misc]
        _compare(values, pattern * np.int32(weights) + np.int32(serial * world_size))
    return seconds


def _compare(found: npt.NDArray[np.int32], expected: npt.NDArray[np.int32]) -> None:
    wrong = np.flatnonzero(found != expected)
    if len(wrong):
        at = int(wrong[0])
        raise RemoteError(
            f"{len(wrong)} of {len(found)} sums are wrong; the first is element {at}, with {found[at]} "
            f"instead of {expected[at]}"
        )


def _timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began

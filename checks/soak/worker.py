"""A worker that takes orders line by line: join a job, add arrays whose sums it knows, leave, tell what happened."""

from __future__ import annotations

import ctypes
import gc
import json
import sys
import zlib
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import switchsum
from checks.soak.memory import resident_bytes
from switchsum_host.api.communicator import Communicator

BLOCK: Final = 256
REPEATS: Final = (4, 16, 200)
"""How often the same values, which are dear to draw, are added: the first time's result is compared with the sum, the
others with its bits.  Many repeats bring frames, few bring jobs that come and go."""
LARGEST: Final = 1000
"""Sums of at most 36 times that are whole numbers in every dtype, so that rounding them gives the exact sum."""


class Wrong(Exception):
    """A sum that is not right."""


def main() -> None:
    """Serve until standard input ends."""
    trim = ctypes.CDLL(None).malloc_trim
    print(json.dumps({"outcome": "ready"}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        report = {"job": order["job"], "rank": order["rank"], **_serve(order)}
        gc.collect()
        trim(0)  # what malloc keeps for later is not lost
        print(json.dumps(report | {"resident_bytes": resident_bytes("self")}), flush=True)


def _serve(order: dict[str, Any]) -> dict[str, Any]:
    """Work in one job; return what came of it."""
    counts = dict.fromkeys(("sums", "digest", "frames_sent", "frames_received", "taken"), 0)
    report: dict[str, Any] = {"outcome": "done", "reformed": False, **counts}
    communicator: Communicator | None = None
    try:
        communicator = switchsum.connect(
            job=order["job"], rank=order["rank"], world_size=order["size"], switch_timeout_s=order["timeout_s"]
        )
        try:
            _work(communicator, order, order["seed"], report)
        except switchsum.WorkerLost:
            if communicator.world_size == 2:
                raise
            _count(communicator, report)
            communicator = communicator.reform()
            report |= {"reformed": True, "digest": 0}
            _work(communicator, order, order["seed"] + 1, report)
    except Wrong as wrong:
        report["outcome"] = f"wrong: {wrong}"
    except switchsum.SwitchsumError as error:
        report |= {"outcome": "error", "error": type(error).__name__, "text": str(error)}
    finally:
        if communicator is not None:
            _count(communicator, report)
            communicator.close()
    return report


def _count(communicator: Communicator, report: dict[str, Any]) -> None:
    statistics = communicator.statistics()
    report["frames_sent"] += statistics.frames_sent
    report["frames_received"] += statistics.frames_received
    report["taken"] += statistics.taken


def _work(communicator: Communicator, order: dict[str, Any], seed: int, report: dict[str, Any]) -> None:
    """Add arrays, and check every sum; raises Wrong."""
    rank, size = communicator.rank, communicator.world_size
    for number in range(order["rounds"]):
        dice = np.random.default_rng([seed, number])
        own, expected = _values(dice, rank, size, order["most_blocks"])
        first = communicator.allreduce(own.copy())
        report["sums"] += 1
        report["digest"] = zlib.crc32(first.tobytes(), report["digest"])
        if not np.array_equal(np.rint(first), expected):
            raise Wrong(f"allreduce {number} of seed {seed}: {np.flatnonzero(np.rint(first) != expected)[:8]}")
        for repeat in range(1, dice.choice(REPEATS)):
            again = communicator.allreduce(own.copy())
            report["sums"] += 1
            if not np.array_equal(again.view(np.uint32), first.view(np.uint32)):
                raise Wrong(f"allreduce {number} of seed {seed}, time {repeat}: {np.flatnonzero(again != first)[:8]}")


def _values(
    dice: np.random.Generator, rank: int, size: int, most_blocks: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Draw what a rank adds, and what all ranks together come to: every rank draws the same."""
    dtype = (np.float32, np.int32)[dice.integers(2)]
    blocks = int(dice.integers(1, most_blocks if dice.random() < 0.5 else 64))
    length = blocks * BLOCK - int(dice.integers(BLOCK))
    pattern = dice.integers(-LARGEST, LARGEST + 1, length).astype(dtype)
    present = dice.random((size, blocks)) < dice.choice([0.05, 0.5, 1.0])
    weights = present * np.arange(1, size + 1)[:, None]

    def spread(by_block: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.repeat(by_block, BLOCK)[:length].astype(dtype)

    return pattern * spread(weights[rank]), pattern * spread(weights.sum(0))


if __name__ == "__main__":
    main()

"""Frames are those of 53df42da, before records of calls were compared: as many, of the same sizes, with the same bytes.

Digests of operations may be others, and so may the wire version and UDP's checksums, which follow from them.
`FIGURES` is what `python -m tests.host.test_same_frames` printed in that commit's tree, where packages had other names.
Sums of small blocks and of few rows have others since they choose their way. Their figures are of the commit in which
the numbers of ranks' rows were packed into fewer words.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np
import pytest

from switchsum.testing import local
from switchsum_host import compress
from switchsum_protocol.frame import AT, Flag, Operator

RANKS = 3
CHECKSUM_AT = 40
MASKED = ((AT.version, 1), (AT.digest, 4), (CHECKSUM_AT, 2))
"""Where bytes may be others, and how many."""
ROTATED: Final = ("thc", "thc of 4 bits")
"""Ranks turn values by a number that they agree on, and not by one of their own: so only sizes are the same."""
MULTIPLIED: Final = ("power",)
"""A library multiplies matrices of this rank's own, in another order on each kind of processor: only sizes count."""

DIGEST_IN_LANES: Final = {name: slice(378, 394) for name in ("threshold", "top-k with feedback", "dgc")}
"""Behind a bitmap of 2,048 blocks stands a digest of 128 bits of what ranks must have alike."""


def values(rank: int, size: int, dtype: Any = np.float32) -> Any:
    drawn = np.random.default_rng([rank, size]).standard_normal(size)
    return (drawn if np.dtype(dtype).kind == "f" else np.rint(20 * drawn)).astype(dtype)


def summed(size: int, dtype: Any = np.float32, op: str = "sum", **how: Any) -> Callable[[Any], Any]:
    return lambda comm: comm.allreduce(values(comm.rank, size, dtype), op, **how)


def averaged(make: Callable[[], Any]) -> Callable[[Any], None]:
    def exchange(comm: Any) -> None:
        compressor = make()
        for step in range(2):
            compressor.exchange(comm, "weight", values(comm.rank + 10 * step, 2048).reshape(32, 64))

    return exchange


def zeros_but_one(comm: Any) -> Any:
    array = np.zeros(3000, np.float32)
    array[1000 * comm.rank] = 1.0
    return comm.allreduce(array)


def few_rows(comm: Any) -> Any:
    return comm.allreduce_sparse(np.arange(comm.rank, 40, 4), values(comm.rank, 10), 40)


CALLS: Final[dict[str, Callable[[Any], Any]]] = {
    "float32": summed(3000),
    "4 bytes": summed(1),
    "int16 lanes": summed(3000, lanes="int16", label="layer 1"),
    "int8 lanes": summed(3000, lanes="int8"),
    "each": summed(3000, lanes="each"),
    "int4 lanes": lambda comm: comm.allreduce(values(comm.rank, 3000, np.int8) % 4, lanes="int4"),
    "float16": summed(1000, np.float16),
    "int64": summed(1000, np.int64),
    "max": summed(1000, op="max"),
    "average": summed(1000, op="average"),
    "float64": summed(1000, np.float64, narrow=True),
    "zeros": zeros_but_one,
    "blocks": lambda comm: comm.allreduce(values(comm.rank, 3000) * (np.arange(3000) % 700 < 40), block=64),
    "rows": few_rows,
    "top-k": lambda comm: comm.allreduce_topk(values(comm.rank, 3000), 30),
    "reduce": lambda comm: comm.reduce(values(comm.rank, 1000), 1),
    "reduce_scatter": lambda comm: comm.reduce_scatter(values(comm.rank, 999)),
    "broadcast": lambda comm: comm.broadcast(values(comm.rank, 1000), 2),
    "allgather": lambda comm: comm.allgather(values(comm.rank, 1000)),
    "barrier": lambda comm: comm.barrier(),
    "two at once": lambda comm: [
        handle.wait() for handle in [comm.allreduce_async(values(comm.rank, size)) for size in (300, 700)]
    ],
    "packed": averaged(compress.Packed),
    "block scaled": averaged(compress.BlockScaled),
    "thc": averaged(compress.Thc),
    "thc of 4 bits": averaged(lambda: compress.Thc(bits=4)),
    "power": averaged(lambda: compress.PowerSgd(2)),
    "qsgd": averaged(compress.Qsgd),
    "terngrad": averaged(compress.TernGrad),
    "threshold": averaged(lambda: compress.ThresholdTopK(0.05)),
    "global top-k": averaged(lambda: compress.GlobalTopK(0.05)),
    "block top-k": averaged(lambda: compress.BlockTopK(0.05)),
    "top-k with feedback": averaged(lambda: compress.ErrorFeedback(compress.TopK(0.05))),
    "dgc": averaged(lambda: compress.DeepGradientCompression(0.05)),
}

FIGURES: Final[dict[str, tuple[int, int, str]]] = {
    "float32": (72, 43344, "16a685edb5383cc9"),
    "4 bytes": (3, 3342, "af8b3cc4d4cb694b"),
    "int16 lanes": (36, 21672, "a7810504ec4b8f69"),
    "int8 lanes": (36, 12456, "ca0fbad07f6661c2"),
    "each": (45, 50130, "8e06c2a62baaac5a"),
    "int4 lanes": (9, 5418, "02bfc8045f671a97"),
    "float16": (24, 14448, "5e975bdb78a933f8"),
    "int64": (24, 26736, "d5fcf8bf76c60768"),
    "max": (12, 13368, "e0623b6ccda4132c"),
    "average": (24, 14448, "898771cd6f7b466c"),
    "float64": (24, 14448, "898771cd6f7b466c"),
    "zeros": (45, 7122, "57b0295604c0f384"),
    "blocks": (21, 14178, "124fb106133fddea"),
    "rows": (9, 6954, "72e9ba8c2154399a"),
    "top-k": (6, 6684, "6a4f3cee25231dd5"),
    "reduce": (24, 14448, "9ced174c13601756"),
    "reduce_scatter": (24, 14448, "456c6813f1002ca7"),
    "broadcast": (12, 5176, "560f493f88bde76e"),
    "allgather": (36, 17576, "c386f9f3fdf3370a"),
    "barrier": (3, 270, "669f63b815230ec3"),
    "two at once": (30, 18060, "0589336980301376"),
    "packed": (24, 26736, "bef0962d3547c187"),
    "block scaled": (60, 29976, "3032f040cabcb206"),
    "thc": (18, 20052, "e8cdf634456f146f"),
    "thc of 4 bits": (18, 13908, "138d040fbacc9a86"),
    "power": (24, 14448, "bc6febd71f074e10"),
    "qsgd": (18, 20052, "4d2bb4d5d231cdde"),
    "terngrad": (18, 20052, "d901bffaa74c354f"),
    "threshold": (18, 15956, "d316088a496249b5"),
    "global top-k": (111, 35590, "bf45a6e75bafd1bd"),
    "block top-k": (24, 20592, "6c853f2e4d0f5de2"),
    "top-k with feedback": (18, 15956, "10f93c0bd68398b8"),
    "dgc": (18, 15956, "9bd244a43c1bda7a"),
}
"""Of each call: how many frames all ranks send, with how many bytes, and a digest of all that has to be the same."""


def figures(name: str) -> tuple[int, int, str]:
    """Return the figures of a call, without what is sent again where a machine is slow."""
    sent: set[bytes] = set()
    send = local.LocalNetwork.send

    def noted(network: Any, port: int, frames: list[bytes]) -> None:
        for frame in frames:
            if frame[AT.flags] & Flag.REPEAT:
                continue
            masked = bytearray(frame)
            for at, length in MASKED:
                masked[at : at + length] = bytes(length)
            if name in DIGEST_IN_LANES and frame[AT.operator] == Operator.OR:
                masked[DIGEST_IN_LANES[name]] = bytes(16)
            sent.add(bytes(masked))
        send(network, port, frames)

    setattr(local.LocalNetwork, "send", noted)  # noqa: B010 (mypy)
    try:
        made = local.communicators(RANKS)
        with ThreadPoolExecutor(RANKS) as threads:
            list(threads.map(CALLS[name], made))
        for comm in made:
            comm.close()
    finally:
        setattr(local.LocalNetwork, "send", send)  # noqa: B010 (mypy)
    digest = hashlib.sha256(b"".join(sorted(sent))).hexdigest()[:16]
    return len(sent), sum(map(len, sent)), digest


@pytest.mark.parametrize("name", CALLS)
def test_a_call_sends_the_frames_that_it_sent(name: str) -> None:
    count, octets, digest = figures(name)
    before = FIGURES[name]
    assert (count, octets) == before[:2]
    assert name in ROTATED + MULTIPLIED or digest == before[2]


if __name__ == "__main__":
    for name in CALLS:
        sys.stdout.write(f"    {name!r}: {figures(name)},\n")

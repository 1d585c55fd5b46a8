"""What every rank does in the system test of operators, sparse arrays and compressors: checked against numpy."""

from __future__ import annotations

import sys
import zlib
from functools import reduce

import numpy as np

import switchsum
from switchsum_host.compress import (
    BlockTopK,
    Compressor,
    DeepGradientCompression,
    ErrorFeedback,
    GlobalTopK,
    PowerSgd,
    Qsgd,
    TernGrad,
    ThresholdTopK,
    TopK,
)
from switchsum_protocol.frame import Operator
from switchsum_protocol.slot_rules import COMBINATIONS

SIZE = 3_000
DTYPES = ("i1", "u2", "i4", "i8", "u8", "f4", "f8")
COMPRESSORS: tuple[Compressor, ...] = (
    ErrorFeedback(TopK(0.05)),
    GlobalTopK(0.05),
    ThresholdTopK(0.05),
    BlockTopK(0.1),
    Qsgd(levels=15),
    TernGrad(),
    PowerSgd(2),
    DeepGradientCompression(0.05, clip=1.0),
)


def combine(comm: switchsum.Communicator, dtype: np.dtype) -> None:
    """Check every operator that a dtype has."""
    low, high = (0, 200) if dtype.kind == "u" else (-90, 90)
    rows = [np.random.default_rng([rank, 5]).integers(low, high, SIZE).astype(dtype) for rank in range(comm.world_size)]
    for operator in Operator:
        if dtype.kind in "iu" and operator is Operator.SUM:
            limits = np.iinfo(dtype)
            expected = np.clip(sum(row.astype(object) for row in rows), limits.min, limits.max).astype(dtype)
        elif dtype.kind in "iu" or not (operator.is_bitwise or operator is Operator.SUM):
            expected = reduce(COMBINATIONS[operator], rows)
        else:
            continue
        result = comm.allreduce(rows[comm.rank].copy(), operator.name.lower(), saturate=True)
        np.testing.assert_array_equal(result, expected)


def move(comm: switchsum.Communicator, gradient: np.ndarray) -> list[np.ndarray]:
    """Check the other collectives; return what they bring."""
    rank, workers = comm.rank, comm.world_size
    total = np.random.default_rng(0).standard_normal(600 * workers)
    parts = np.split(total, workers)
    everything = comm.allgather(parts[rank])
    np.testing.assert_array_equal(everything.reshape(-1), total)
    np.testing.assert_array_equal(comm.broadcast(total if rank == 1 else np.zeros_like(total), root=1), total)
    count = np.full(600 * workers, rank + 1, np.int64)
    np.testing.assert_array_equal(comm.reduce_scatter(count), np.full(600, workers * (workers + 1) // 2))
    np.testing.assert_array_equal(
        comm.reduce(count, root=1)[:1], workers * (workers + 1) // 2 if rank == 1 else rank + 1
    )
    handles = [comm.allreduce_topk_async(gradient.copy(), 50), comm.allreduce_async(gradient.copy(), block="auto")]
    return [handle.wait() for handle in handles]


def main() -> None:
    """Run everything; write a digest of this rank's results for the test to compare."""
    with switchsum.connect() as comm:
        rank, workers = comm.rank, comm.world_size
        for name in DTYPES:
            combine(comm, np.dtype(name))
        gradient = np.random.default_rng(rank).standard_normal(20_000).astype(np.float32)
        results = [comm.allreduce(gradient.copy(), lanes=lanes) for lanes in ("int8", "int16")]
        total = comm.allreduce_sparse(np.arange(rank, 20_000, 100), np.ones(200, np.float32), 20_000)
        assert len(total.indices) == 200 * workers
        np.testing.assert_allclose(total.values, 1)
        blocks = np.zeros(20_000, np.int32)
        blocks[1_000:1_100] = rank + 1
        comm.allreduce(blocks, block=32)
        assert blocks.sum() == 100 * workers * (workers + 1) // 2
        results.append(comm.allreduce_topk(gradient.copy(), density=0.01))
        results.append(comm.allreduce_topk(gradient.copy(), density=0.01, keep=100))
        results += move(comm, gradient)
        for compressor in COMPRESSORS:
            results.append(compressor.exchange(comm, "gradient", gradient).mean)
    digest = zlib.crc32(b"".join(result.tobytes() for result in results))
    sys.stdout.write(f"operators {digest}\n")


if __name__ == "__main__":
    main()
    sys.exit(0)

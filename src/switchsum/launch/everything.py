"""The program of the workers of `switchsum warm`: it calls one collective of each kind, so that all kernels compile."""

from __future__ import annotations

import numpy as np

import switchsum
from switchsum_host.compress import BlockTopK, Compressor, ThresholdTopK, TopK


def main() -> None:
    """Call every collective and compressor that has kernels of its own."""
    with switchsum.connect() as comm:
        for dtype in (np.float32, np.float16, np.int32, np.int64):
            comm.allreduce(np.ones(1000, dtype))
        comm.allreduce(np.ones(3, np.float32))
        comm.barrier()
        gradient = np.random.default_rng(comm.rank).standard_normal(100_000).astype(np.float32)
        compressors: tuple[Compressor, ...] = (TopK(0.01), ThresholdTopK(0.01), BlockTopK(0.05))
        for compressor in compressors:
            compressor.exchange(comm, "gradient", gradient)


if __name__ == "__main__":
    main()

"""Replicas of a packet that are not whole: native code gives the body, which they have in common, to the first one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from switchsum.protocol.atomics import copy_bytes
from switchsum.protocol.kernels import kernel


@kernel
def complete(
    count: int,
    addresses: npt.NDArray[np.uint64],
    lengths: npt.NDArray[np.uint32],
    heads: npt.NDArray[np.uint32],
    bodies: npt.NDArray[np.uint64],
) -> None:
    """Make whole what is not, of the first `count` frames of an output."""
    for i in range(count):
        if bodies[i] != 0:
            copy_bytes(
                int(np.int64(addresses[i]) + heads[i]), int(np.int64(bodies[i])), int(np.int64(lengths[i]) - heads[i])
            )
            bodies[i] = 0

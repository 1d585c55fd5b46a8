"""Replicas of a packet that are not whole, and how they become whole.

All replicas of a multicast packet have the same body.  Native code writes it once, behind the head of the first
replica; each other replica is a head and the address of that body.  Ports that can send two pieces use them as they
are.  For all other ports `complete` copies the body behind each head.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from switchsum_switch.kernels.atomics import copy_bytes
from switchsum_switch.kernels.decorators import kernel


@kernel
def complete(
    count: int,
    addresses: npt.NDArray[np.uint64],
    lengths: npt.NDArray[np.uint32],
    heads: npt.NDArray[np.uint32],
    bodies: npt.NDArray[np.uint64],
) -> None:
    """Copy the body behind the head of each frame that is not whole, of the first `count` frames of an output."""
    for i in range(count):
        if bodies[i] != 0:
            copy_bytes(
                int(np.int64(addresses[i]) + heads[i]), int(np.int64(bodies[i])), int(np.int64(lengths[i]) - heads[i])
            )
            bodies[i] = 0

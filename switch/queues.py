"""Queues of frames that wait for their port, as the program sees them.

The program runs from ingress to egress in one go, and a frame that its port does not take at once waits behind egress,
not before it as in BMv2.  So what a frame is told of its queue is how it stood when the frame came to it: its depth
both as `enq_qdepth` and as `deq_qdepth`, and how long its first frame has waited by then as `deq_timedelta`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

PORTS: Final = 512
"""Port numbers are 9 bits wide."""
CAPACITY_FRAMES: Final = 64
"""Frames that a queue holds, as in BMv2 unless Thrift tells otherwise."""


class Queues:
    """The queues of all ports; the ports write, programs read."""

    def __init__(self, count: int = 1) -> None:
        """Give each port `count` queues, the last of which goes first."""
        self.count = count
        self.cells = np.zeros((PORTS, count, 2), np.uint64)
        """By port and queue: frames that wait, and since when the first has, in microseconds; native code reads it."""

    def state(self, port: int, queue: int, now_us: int) -> tuple[int, int]:
        """Return how many frames wait in a queue, and how long the first one has, in microseconds."""
        depth, since_us = self.cells[port if port < PORTS else 0, queue].tolist()
        return depth, now_us - since_us if depth else 0

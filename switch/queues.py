"""Queues of frames that wait for their port, as the program sees them.

BMv2 has a queue between ingress and egress.  Here a packet goes through ingress and egress in one call, and a frame
that its port does not take at once waits behind egress.  A packet can therefore not be told how long it waited.  It is
told the state of its queue at the time when it enters egress: `enq_qdepth` and `deq_qdepth` are the number of frames
that wait, and `deq_timedelta` is how long the first of them has waited.
"""

from __future__ import annotations

from typing import Final

import numpy as np

PORTS: Final = 512
"""Port numbers are 9 bits wide."""
CAPACITY_FRAMES: Final = 64
"""Frames that a queue holds; BMv2 holds as many unless its Thrift interface sets another number."""


class Queues:
    """The state of all ports' queues; ports write it, programs read it."""

    def __init__(self, count: int = 1) -> None:
        """Give each port `count` queues; frames of the last queue leave first."""
        self.count = count
        self.cells = np.zeros((PORTS, count, 2), np.uint64)
        """By port and queue: how many frames wait, and since when the first one waits, in microseconds.  Native code
        reads it."""

    def state(self, port: int, queue: int, now_us: int) -> tuple[int, int]:
        """Return how many frames wait in a queue, and how long the first one has, in microseconds."""
        # A program may choose a port that does not exist.  It reads the queue of port 0, and its frame is dropped
        # later.
        depth, since_us = self.cells[port if port < PORTS else 0, queue].tolist()
        return depth, now_us - since_us if depth else 0

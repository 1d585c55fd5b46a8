"""Queues of packets that wait for their port, as the program and its engines see them.

A port with a rate has queues between ingress and egress, as each port of BMv2 has (`traffic_manager.py`).  The packets
of all other ports go through ingress and egress in one call.  If such a port does not take a frame at once, the frame
waits behind egress.  A packet of the port can then not be told how long it waited.  It is told the state of its queue
at the time when it enters egress: `enq_qdepth` and `deq_qdepth` are the number of frames that wait, and `deq_timedelta`
is how long the first of them has waited.
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
        """Cells by port and queue: how many frames wait behind egress, and since when the first one waits, in
        microseconds. Native code reads it.
        """
        self.held = np.zeros(PORTS, np.uint8)
        """Flags by port. 1: its packets wait between ingress and egress. Native code reads it."""
        self.holds = False
        """Whether any port is held."""

    def hold(self, port: int, held: bool) -> None:
        """Let the packets of a port wait between ingress and egress, or go through both in one call."""
        self.held[port] = held
        self.holds = bool(self.held.any())

    def state(self, port: int, queue: int, now_us: int) -> tuple[int, int]:
        """Return how many frames wait in a queue, and how long the first one has, in microseconds."""
        # A program may choose a port that does not exist.  It reads the queue of port 0, and its frame is dropped
        # later.
        depth, since_us = self.cells[port if port < PORTS else 0, queue].tolist()
        return depth, now_us - since_us if depth else 0

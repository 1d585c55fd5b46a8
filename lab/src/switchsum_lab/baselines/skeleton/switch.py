"""The switch of the least protocol in Python: two cells, which rounds use in turn; program.p4 is the same in P4."""

from __future__ import annotations

import numpy as np

from switchsum_lab.protocols.seam import World

from .host import ETHERTYPE, HEADER


def switch(world: World) -> Switch:
    """Return the switch."""
    return Switch(world)


class Switch:
    """Adds the blocks of a round, and sends the sum to all workers when the last one has come."""

    def __init__(self, world: World) -> None:
        self.ports = [world.port(rank) for rank in range(world.workers)]
        self.rounds, self.bitmaps = np.zeros(2, np.uint32), np.zeros(2, np.uint32)
        self.sums = np.zeros((2, world.lanes), np.uint32)

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Take a frame that has come to a port; return the frames that leave, each with its port."""
        end = HEADER.size + self.sums[0].nbytes
        if len(frame) < end or HEADER.unpack_from(frame)[2] != ETHERTYPE:
            return []
        worker, workers, number = HEADER.unpack_from(frame)[3:]
        cell, bit, everybody = number & 1, 1 << worker & 0xFFFF_FFFF, (1 << workers) - 1 & 0xFFFF_FFFF
        if number < self.rounds[cell]:
            return []
        if number > self.rounds[cell]:
            self.rounds[cell], self.bitmaps[cell], self.sums[cell] = number, 0, 0
        is_new = not int(self.bitmaps[cell]) & bit
        if is_new:
            self.bitmaps[cell] |= np.uint32(bit)
            self.sums[cell] += np.frombuffer(frame, ">u4", len(self.sums[cell]), HEADER.size)
        if self.bitmaps[cell] != everybody:
            return []
        answer = frame[:6] * 2 + frame[12 : HEADER.size] + self.sums[cell].astype(">u4").tobytes() + frame[end:]
        return [(out, answer) for out in (self.ports if is_new else [port])]

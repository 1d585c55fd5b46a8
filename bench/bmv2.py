"""BMv2 alone: the same frames into simple_switch_grpc over veth pairs, every result counted."""

from __future__ import annotations

import time

import numpy as np

from bench.contributions import WORKERS, Contributions
from bench.records import Samples
from switchsum.protocol.batchsocket import BatchReceiver, BatchSender
from switchsum.protocol.rows import LEAD_BYTES
from switchsum.protocol.wire import FIELD_OFFSET, LOWER_BYTES, Kind
from switchsum.testing.bmv2 import Bmv2
from switchsum.testing.rig import LIMITED_GROWTH, SLOT_COUNT, Rig

SECONDS = 1.5
STALLED_S = 1.0
"""Without a result for so long frames were lost, and with them the run."""
_KIND = LEAD_BYTES + LOWER_BYTES + FIELD_OFFSET["kind"]
_SLOT = LEAD_BYTES + LOWER_BYTES + FIELD_OFFSET["slot"] + 3  # slots are few: the last byte tells them


class Driver:
    """Keeps every slot of a BMv2 busy: a slot's next round starts when all workers have the last one's result."""

    def __init__(self, bmv2: Bmv2, lanes: int) -> None:
        rig = Rig(bmv2, workers=WORKERS, lanes=lanes, growth_bytes=LIMITED_GROWTH)
        self._frames = Contributions(rig, slots=SLOT_COUNT)
        self._addresses = self._frames.addresses.reshape(SLOT_COUNT, WORKERS)
        self._lengths = np.full(SLOT_COUNT, self._frames.frame_bytes, np.uint32)
        self._descriptors = [link.fileno() for link in bmv2.sockets]
        self._sender = BatchSender()
        self._receiver = BatchReceiver(self._frames.frame_bytes)
        self._numbers = np.ones(SLOT_COUNT, np.uint32)
        self._missing = np.zeros(SLOT_COUNT, np.int64)

    def _start(self, slots: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        """Send every worker's contribution to the next round of some slots."""
        self._numbers[slots] += 1
        self._missing[slots] = WORKERS
        self._frames.set_numbers(self._numbers)
        for rank, descriptor in enumerate(self._descriptors):
            self._sender.send(descriptor, self._addresses[slots, rank], self._lengths[slots])

    def _take(self) -> None:
        """Note the results that have come."""
        for descriptor in self._descriptors:
            count = self._receiver.receive(descriptor, 64)
            rows = self._receiver.rows[:count]
            results = rows[rows[:, _KIND] == Kind.RESULT]  # a raw socket also sees what it has sent itself
            np.subtract.at(self._missing, results[:, _SLOT], 1)

    def measure(self) -> float:
        """Return contributions a second."""
        self._start(np.arange(SLOT_COUNT))
        rounds, started = 0, time.perf_counter()
        last = started
        while time.perf_counter() - started < SECONDS or self._missing.any():
            self._take()
            ended = np.flatnonzero(self._missing == 0)
            if len(ended):
                last = time.perf_counter()
                rounds += len(ended)
                if last - started < SECONDS:
                    self._start(ended)
                else:
                    self._missing[ended] = -1
                    if (self._missing < 0).all():
                        break
            elif time.perf_counter() - last > STALLED_S:
                raise RuntimeError("BMv2 lost a frame")
        return rounds * WORKERS / (last - started)


def bmv2_rate(lanes: int, runs: int) -> Samples:
    """Return contributions a second of real BMv2."""
    with Bmv2(lanes) as bmv2:
        driver = Driver(bmv2, lanes)
        driver.measure()
        return Samples.of(driver.measure, runs)

"""The queues with rates of a switch that runs: packets wait, and leave when their time has come on the clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..execution.pipeline import Pipeline
from ..queues.batch import Output
from ..queues.parking import Parked
from ..queues.traffic_manager import TrafficManager
from ..state.clock import Clock

AT_ONCE: Final = 64
"""Most packets that one call runs through egress."""


class Departures:
    """Runs the packets of a switch's queues through egress."""

    def __init__(self, manager: TrafficManager, clock: Clock, send: Callable[[Output], object]) -> None:
        """Take packets to and from `manager`; `send` is given the frames that leave."""
        self._manager = manager
        self._clock = clock
        self._send = send
        self._output = Output()
        self._pipeline: Pipeline | None = None

    def take(self, pipeline: Pipeline) -> None:
        """Queue the packets that a pipeline has parked."""
        self._follow(pipeline)
        if parked := pipeline.parked():
            pipeline.discard(self._manager.put(parked))

    def depart(self, pipeline: Pipeline | None) -> None:
        """Let the packets go whose time has come, if `pipeline` has parked them."""
        self._follow(pipeline)
        now_us = self._clock.now_us()
        while packets := self._due(now_us):
            self._finish(packets, now_us)

    def wait_s(self) -> float:
        """Return how long it takes until a packet may go; infinite if none waits."""
        return max(0.0, (self._manager.next_us() - self._clock.now_us()) / 1e6)

    def _follow(self, pipeline: Pipeline | None) -> None:
        if pipeline is not self._pipeline:  # a program was committed: what waits belongs to the one before
            self._manager.clear()
            self._pipeline = pipeline

    def _due(self, now_us: int) -> list[Parked]:
        packets: list[Parked] = []
        while len(packets) < AT_ONCE and (found := self._manager.pop(now_us)) is not None:
            packets.append(found[1])
        return packets

    def _finish(self, packets: list[Parked], now_us: int) -> None:
        pipeline, output = self._pipeline, self._output
        assert pipeline is not None  # it has parked them
        while packets:
            done = pipeline.egress_batch(packets, output, now_us)
            if not done:  # the output is too small for the copies of one packet
                frames, size = pipeline.room(packets[0].frame_bytes)
                output = self._output = Output(max(frames, len(output.ports)), max(size, len(output.arena)))
                continue
            self._send(output)
            packets = packets[done:]
            self.take(pipeline)

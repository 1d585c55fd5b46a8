"""A port's queues as a test sets and reads them: `switch.queue(port)` and `switch.queue(port, priority)`."""

from __future__ import annotations

from .traffic_manager import Rate, TrafficManager, WaitingPackets


class QueueView:
    """The queues of a port together, or one of them.

    Example:
        >>> from switchsum_switch.queues.queues import Queues
        >>> queue = QueueView(TrafficManager(Queues()), 3)
        >>> queue.rate_pps = 1000
        >>> queue
        <queue of port 3: 0 of 64 frames, 1000 frames/s>

    """

    def __init__(self, manager: TrafficManager, port: int, priority: int | None = None) -> None:
        """Look at the queue `priority` of a port, or at all of its queues; raises ValueError if there is none."""
        self._manager = manager
        self._number = port
        self._port = manager.port(port)
        if priority is not None and not 0 <= priority < len(self._port.queues):
            raise ValueError(f"there is no queue {priority}: a port has {len(self._port.queues)}, numbered from 0")
        self._priority = priority

    @property
    def rate_pps(self) -> float:
        """Frames a second; 0: no limit.

        The rate of a port is shared by its queues.  The rate of one queue is what BMv2's `set_queue_rate` sets.
        """
        return self._rate.frames_per_s

    @rate_pps.setter
    def rate_pps(self, rate: float) -> None:
        self._rate.frames_per_s = _checked(rate)
        self._manager.settle(self._number)

    @property
    def rate_bps(self) -> float:
        """Bits a second, of the bytes that a packet has when ingress has ended; 0: no limit."""
        return self._rate.bits_per_s

    @rate_bps.setter
    def rate_bps(self, rate: float) -> None:
        self._rate.bits_per_s = _checked(rate)
        self._manager.settle(self._number)

    @property
    def depth_frames(self) -> int:
        """Most frames that wait in each queue; a frame that finds so many is dropped.  64, as in BMv2."""
        return self._queues[0].depth_frames

    @depth_frames.setter
    def depth_frames(self, frames: int) -> None:
        for queue in self._queues:
            queue.depth_frames = int(_checked(frames))

    @property
    def depth_bytes(self) -> int:
        """Most bytes that wait in each queue; 0: any."""
        return self._queues[0].depth_bytes

    @depth_bytes.setter
    def depth_bytes(self, size: int) -> None:
        for queue in self._queues:
            queue.depth_bytes = int(_checked(size))

    @property
    def frames(self) -> int:
        """How many frames wait now."""
        return sum(len(queue.packets) for queue in self._queues)

    @property
    def bytes(self) -> int:
        """How many bytes wait now."""
        return sum(queue.bytes for queue in self._queues)

    @property
    def dropped(self) -> int:
        """How many frames found their queue full."""
        return sum(queue.dropped for queue in self._queues)

    @property
    def _rate(self) -> Rate:
        return self._port.rate if self._priority is None else self._port.queues[self._priority].rate

    @property
    def _queues(self) -> list[WaitingPackets]:
        return self._port.queues if self._priority is None else [self._port.queues[self._priority]]

    def __repr__(self) -> str:
        """Say what waits, and how fast it goes."""
        name = f"port {self._number}" if self._priority is None else f"port {self._number}, priority {self._priority}"
        rates = [f"{self.rate_pps:g} frames/s"] * bool(self.rate_pps) + [f"{self.rate_bps:g} bit/s"] * bool(
            self.rate_bps
        )
        limit = self.depth_frames * len(self._queues)
        return f"<queue of {name}: {self.frames} of {limit} frames, {' and '.join(rates) or 'no rate'}>"


def _checked(number: float) -> float:
    if not number >= 0:
        raise ValueError(f"a rate or a length is 0 or more, not {number}")
    return number

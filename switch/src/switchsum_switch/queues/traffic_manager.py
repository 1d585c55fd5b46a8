"""The queues between ingress and egress: which packets wait, which are dropped, and which one goes next.

Each port has as many queues as the switch was started with, and `standard_metadata.priority` chooses one, as in BMv2's
simple_switch.  A queue has a length (64 packets, as in BMv2) and may have a rate, which is what BMv2's
`set_queue_rate` sets.  A port may have a rate of its own, which its queues share; BMv2 has none.  Of the packets that
may go at the same time, that of the queue with the highest number goes first.

A packet takes time when it goes: after it, nothing goes for `1 / rate` seconds, or for as long as its bits take.  A
packet that comes to an empty queue at rest therefore goes at once.

Packets of ports without any rate do not come here: egress follows ingress in native code.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from .parking import Parked
from .queues import CAPACITY_FRAMES, PORTS, Queues

NEVER: Final = math.inf


class Rate:
    """How fast packets may go; 0 is no limit.  If both limits are set, both hold."""

    def __init__(self) -> None:
        self.frames_per_s = 0.0
        self.bits_per_s = 0.0
        self.free_us = 0.0
        """When the next packet may go."""

    def take(self, at_us: float, size: int) -> None:
        """Let a packet of so many bytes go."""
        frame_us = 1e6 / self.frames_per_s if self.frames_per_s else 0.0
        bits_us = 8e6 * size / self.bits_per_s if self.bits_per_s else 0.0
        self.free_us = at_us + max(frame_us, bits_us)

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit."""
        return bool(self.frames_per_s or self.bits_per_s)


class WaitingPackets:
    """The packets of one queue, and its limits."""

    def __init__(self) -> None:
        self.rate = Rate()
        self.depth_frames = CAPACITY_FRAMES
        self.depth_bytes = 0
        """Most bytes that wait; 0: any."""
        self.packets: deque[Parked] = deque()
        self.bytes = 0
        self.dropped = 0
        """Packets that found the queue full."""

    def put(self, packet: Parked) -> bool:
        """Let a packet wait, and note how many wait already; return False if there is no room."""
        if len(self.packets) >= self.depth_frames or self._is_beyond(self.bytes + packet.bytes):
            self.dropped += 1
            return False
        packet.enq_depth = len(self.packets)
        self.packets.append(packet)
        self.bytes += packet.bytes
        return True

    def pop(self) -> Parked:
        """Remove the first packet, and note how many are left."""
        packet = self.packets.popleft()
        self.bytes -= packet.bytes
        packet.deq_depth = len(self.packets)
        return packet

    def _is_beyond(self, size: int) -> bool:
        return bool(self.depth_bytes) and size > self.depth_bytes


class PortQueues:
    """The queues of one port, and the rate that they share."""

    def __init__(self, count: int) -> None:
        self.rate = Rate()
        self.queues = [WaitingPackets() for _ in range(count)]

    @property
    def is_limited(self) -> bool:
        """Whether the port or a queue of it has a rate."""
        return self.rate.is_limited or any(queue.rate.is_limited for queue in self.queues)

    @property
    def waiting(self) -> int:
        """How many packets wait."""
        return sum(len(queue.packets) for queue in self.queues)

    def next(self) -> tuple[float, int]:
        """Return when the next packet goes, in microseconds, and its queue; NEVER if none waits."""
        best = NEVER, 0
        for number, queue in enumerate(self.queues):
            if queue.packets:
                due_us = max(self.rate.free_us, queue.rate.free_us, float(queue.packets[0].enqueued_us))
                # At the same time the queue with the higher number goes.
                if due_us <= best[0]:
                    best = due_us, number
        return best


class TrafficManager:
    """The queues of all ports that have a rate."""

    def __init__(self, queues: Queues) -> None:
        """Start without rates; `queues` says how many queues a port has, and is told which ports are held."""
        self._queues = queues
        self._ports: dict[int, PortQueues] = {}
        self._busy: set[int] = set()
        """Ports whose packets wait."""

    def port(self, number: int) -> PortQueues:
        """Return the queues of a port; call `settle` after a change of a rate.  Raises ValueError for no port."""
        if not 0 <= number < PORTS:
            raise ValueError(f"there is no port {number}: ports are numbered from 0 to {PORTS - 1}")
        if number not in self._ports:
            self._ports[number] = PortQueues(self._queues.count)
        return self._ports[number]

    @property
    def ports(self) -> Mapping[int, PortQueues]:
        """The ports whose queues somebody has asked for, by number."""
        return self._ports

    def settle(self, number: int) -> None:
        """Hold a port that has a rate or packets that wait, and no other."""
        port = self._ports[number]
        self._queues.hold(number, port.is_limited or port.waiting > 0)

    def put(self, packets: Sequence[Parked]) -> list[Parked]:
        """Queue packets that ingress has parked; return those that are dropped."""
        self._busy.update(packet.port for packet in packets)
        return [packet for packet in packets if not self.port(packet.port).queues[packet.queue].put(packet)]

    def next_us(self) -> float:
        """Return when the next packet of all ports goes, in microseconds; NEVER if none waits."""
        return min((self._ports[number].next()[0] for number in self._busy), default=NEVER)

    def pop(self, now_us: float) -> tuple[float, Parked] | None:
        """Remove the packet that goes next, if it goes by `now_us`; return when it goes, and the packet."""
        due_us, number, queue = NEVER, 0, 0
        for candidate in sorted(self._busy):
            at_us, first = self._ports[candidate].next()
            if at_us < due_us:
                due_us, number, queue = at_us, candidate, first
        if due_us > now_us:
            return None
        port = self._ports[number]
        packet = port.queues[queue].pop()
        for rate in (port.rate, port.queues[queue].rate):
            rate.take(due_us, packet.bytes)
        if not port.waiting:
            self._busy.discard(number)
        if not port.is_limited:
            self.settle(number)
        return due_us, packet

    def clear(self) -> list[Parked]:
        """Remove all packets, and return them."""
        found: list[Parked] = []
        self._busy.clear()
        for number, port in self._ports.items():
            for queue in port.queues:
                found += queue.packets
                queue.packets.clear()
                queue.bytes = 0
            self.settle(number)
        return found

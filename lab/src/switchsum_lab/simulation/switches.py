"""The switches of a world in Python: their programs, queues between ingress and egress, and places for packets."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from switchsum_protocol.errors import UsageError
from switchsum_switch.execution.entry import ENTRY_WORDS
from switchsum_switch.kernels.loading import address_of
from switchsum_switch.queues.batch import DEFAULT_ARENA_BYTES, DEFAULT_FRAMES, CodeEntry, Output
from switchsum_switch.queues.parking import FRAME_BYTES, HELD, PLACE_WORDS, PLACES, POOL_WORDS, TAG
from switchsum_switch.queues.queues import PORTS
from switchsum_switch.queues.traffic_manager import Rate, TrafficManager

from .conditions import SwitchTiming
from .records import NEVER, NONE, PICOSECONDS, PLACE, QUEUE

_FIRST_PLACES: Final = 256
_LINE_BYTES: Final = 64


class Program(Protocol):
    """What the loop needs of a switch's data plane: a compiled program's `Pipeline`, or a `PythonSwitch`."""

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Held while time passes."""
        ...

    @property
    def queue_count(self) -> int:
        """Queues of a port."""
        ...

    @property
    def sees_waiting(self) -> bool:
        """Whether it matters to it that packets wait between ingress and egress."""
        ...

    def room(self, frame_bytes: int) -> tuple[int, int]:
        """Return how many frames and bytes of an output a frame of that length may need."""
        ...

    def entry(self, output: Output) -> CodeEntry | None:
        """Return how a kernel calls it with `output`; None if it cannot."""
        ...

    def place_bytes(self, frame_bytes: int) -> int:
        """Return the bytes of a place for a packet that waits between ingress and egress."""
        ...

    def park_in(self, pool: int) -> None:
        """Let packets wait in the places of a pool that the loop keeps, given its address; 0: no longer."""
        ...


class SwitchNode:
    """A switch: how the loop calls its program, and the queues of the ports whose packets wait before egress."""

    def __init__(self, pipeline: Program, manager: TrafficManager | None, timing: SwitchTiming) -> None:
        self.pipeline = pipeline
        self._manager, self._timing = manager, timing
        self._output = Output()
        self.entry: npt.NDArray[np.int64] = np.zeros(ENTRY_WORDS, np.int64)
        self.pool: npt.NDArray[np.int64] = np.zeros(POOL_WORDS, np.int64)
        self._held = np.zeros(PORTS, np.uint8)
        self.pool[HELD] = address_of(self._held)
        self._queues: dict[int, npt.NDArray[Any]] = {}
        """Queues by port."""

    @property
    def holds(self) -> bool:
        """Whether packets of any port wait between ingress and egress."""
        return bool(self._queues)

    def ask_for_queues(self, ports: npt.NDArray[np.int64], links: npt.NDArray[Any]) -> None:
        """Give a queue for each priority to each port where it matters when egress runs; `ports`: the link of each."""
        known = self._manager.ports if self._manager else {}
        always = self._timing.has_queues or (self.pipeline.sees_waiting and not self._timing.waits_behind)
        for port in np.flatnonzero(ports != NONE).tolist():
            link = links[ports[port]]
            if port not in self._queues and (always or port in known):
                self._add(port, link)
            if port in known:
                self._set(port, link)

    def _add(self, port: int, link: Any) -> None:
        """Give a port its queues."""
        queues = np.zeros(self.pipeline.queue_count, QUEUE)
        queues["first"] = queues["last"] = NONE
        queues["most_frames"] = self._timing.queue_frames or NEVER
        queues["most_bytes"] = NEVER
        self._queues[port] = queues
        self._held[port] = 1
        link["queues"], link["queue_count"] = address_of(queues), len(queues)
        link["pace"] = round(self._timing.egress_s * PICOSECONDS)

    def _set(self, port: int, link: Any) -> None:
        """Give the queues of a port the rates and lengths that `Switch.queue` has."""
        assert self._manager is not None
        settings = self._manager.ports[port]
        _set_pace(link, settings.rate)
        link["pace"] = max(int(link["pace"]), round(self._timing.egress_s * PICOSECONDS))
        for queue, one in zip(self._queues[port], settings.queues, strict=True):
            _set_pace(queue, one.rate)
            queue["most_frames"], queue["most_bytes"] = one.depth_frames, one.depth_bytes or NEVER

    def queue(self, port: int, priority: int) -> Any:
        """Return the record of a queue; None if the packets of the port do not wait before egress.

        Raises UsageError if there is no such queue.
        """
        count = self.pipeline.queue_count
        if not 0 <= priority < count:
            raise UsageError(f"there is no queue {priority}: a port has {count}, numbered from 0")
        return self._queues[port][priority] if port in self._queues else None

    def prepare(self, node: Any, frame_bytes: int) -> int:
        """Tell the loop how to call the program, while the pipeline's lock is held; return the most copies of a frame.

        Raises UsageError if a kernel cannot call it.
        """
        frames, size = self.pipeline.room(frame_bytes)
        if frames > len(self._output.ports) or size > len(self._output.arena):
            self._output = Output(max(frames, DEFAULT_FRAMES), max(size, DEFAULT_ARENA_BYTES))
        found = self.pipeline.entry(self._output)
        if found is None:
            raise UsageError("virtual time needs native programs: use engine='native'")
        self.pipeline.park_in(address_of(self.pool) if self.holds else 0)
        self.entry[:] = found.arguments
        node["entry"], node["output"] = address_of(self.entry), self._output.address
        node["result"] = address_of(found.result)
        node["pool"] = address_of(self.pool) if self.holds else 0
        return frames


def _set_pace(record: Any, rate: Rate) -> None:
    record["pace"] = round(PICOSECONDS / rate.frames_per_s) if rate.frames_per_s else 0
    record["pace_bits_per_s"] = round(rate.bits_per_s)


class Places:
    """The places of all packets that wait between ingress and egress (`queues/parking.py`), for all switches."""

    def __init__(self, world: npt.NDArray[Any]) -> None:
        """Begin without places; `world` is the record of the world."""
        self._world = world
        self._records: npt.NDArray[Any] = np.zeros(0, PLACE)
        self._stack = np.zeros(0, np.int64)
        self._memory: list[npt.NDArray[np.uint8]] = []
        self._stride = 0

    @property
    def bytes(self) -> int:
        """Bytes of memory that the places take."""
        return sum(memory.nbytes for memory in self._memory)

    def fit(self, switches: Iterable[SwitchNode], frame_bytes: int) -> None:
        """Make places large enough for a packet of each switch, and tell the switches' pools where places are."""
        found = list(switches)
        stride = max((one.pipeline.place_bytes(frame_bytes) for one in found), default=0)
        if stride > self._stride:  # packets that wait stay where they are, in places that are not used again
            self._stride = stride
            self._world["least_place"], self._world["free_places"] = len(self._records), 0
        for one in found:
            one.pool[PLACES], one.pool[FRAME_BYTES] = address_of(self._stack), frame_bytes

    def grow(self, switches: Iterable[SwitchNode], frame_bytes: int) -> None:
        """Double the number of places."""
        before, free = len(self._records), int(self._world["free_places"][0])
        more = max(_FIRST_PLACES, before, 2 * int(self._world["place_spare"][0]))
        memory = np.zeros(more * self._stride + _LINE_BYTES, np.uint8)
        self._memory.append(memory)
        start = address_of(memory) + -address_of(memory) % _LINE_BYTES
        addresses = start + self._stride * np.arange(more)
        for number, address in enumerate(addresses.tolist(), before):
            offset = address - address_of(memory)
            memory[offset : offset + 8 * PLACE_WORDS].view(np.int64)[TAG] = number
        records = np.zeros(more, PLACE)
        records["address"] = addresses
        self._records = np.concatenate([self._records, records])
        stack = np.zeros(len(self._records), np.int64)
        stack[:free], stack[free : free + more] = self._stack[:free], addresses
        self._stack = stack
        world = self._world
        world["parked"], world["place_count"] = address_of(self._records), len(self._records)
        world["places"], world["free_places"] = address_of(stack), free + more
        self.fit(switches, frame_bytes)

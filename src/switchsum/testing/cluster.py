"""Several worker engines and a switch on one virtual clock: thousands of frames a second, no process, no socket."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from switchsum.testing.clock import VirtualClock
from switchsum.testing.engine import EngineByHand
from switchsum.testing.network import LinkConditions, Network, Pipeline
from switchsum_host.engine.engine import EngineConfig, Failed, Finished, Outcome
from switchsum_host.engine.link import LinkFunctions, Stop
from switchsum_host.engine.loop import Driver
from switchsum_host.engine.operation import Operation
from switchsum_host.links.base import Indices, Received
from switchsum_host.links.callbacks import PythonTransport
from switchsum_protocol.frame import FRAME_BYTES, payload_bytes
from switchsum_protocol.slot_rules import SWITCH_ADDRESS, AdmittedMember, ReferenceSwitch
from switchsum_switch.wires.headers import Address
from switchsum_switch.wires.rows import LEAD_BYTES, allocate_rows

MOST_FRAMES: Final = 64
"""Frames that a worker takes in one go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """A job on the virtual network."""

    workers: int = 4
    at_leaf: int = 0
    """Workers at each leaf, where the switch is a tree that they are told of; 0: places in bitmaps are ranks."""
    lanes_per_frame: int = 8
    window_slots: int = 8
    first_slot: int = 5
    """The job's first slot on the switch. Not 0, so that slots of switch and job are not confused."""
    shares_slots: bool = False
    """The slots are shared with other jobs, and `switch` is one side of a `Sharing`."""
    own_slots: int = 0
    """So many of the slots, the first ones, are the job's own; shared ones have the numbers from `first_slot` on."""
    own_first_slot: int = 0
    """The first of these on the switch."""
    first_window: int = 16
    """Most contributions with lanes in flight before the first result of such."""
    first_number: int = 1
    job: int = 7
    epoch: int = 1
    growth_bytes: int | None = None
    """Bytes by which frames may grow in the switch. None: no limit."""
    timeout_s: float = 10.0
    switch_timeout_s: float | None = None
    checksum: bool = False
    rounding_seed: int = 0
    reading_s: float = 0.0
    """Seconds that the transport goes on reading a row that was handed over. Until then it must not be written."""

    def address(self, rank: int) -> Address:
        """Return a worker's address."""
        return Address(mac=0x02_00_00_00_01_00 + rank, ip=0x0A_00_00_64 + rank, port=40_000 + rank)

    def cookie(self, rank: int) -> int:
        """Return a worker's cookie."""
        return 0xC0FF_EE00_0000_0001 + (rank << 32 | rank)

    def member(self, rank: int) -> AdmittedMember:
        """Return a worker's entry for the switch; worker `rank` stands behind port `rank + 1`."""
        return AdmittedMember(
            job=self.job,
            rank=rank,
            epoch=self.epoch,
            cookie=self.cookie(rank),
            address=self.address(rank),
            port=rank + 1,
            workers=self.workers,
            first_slot=self.first_slot,
            slot_count=self.window_slots,
        )

    def engine(self, rank: int) -> EngineConfig:
        """Return a worker's configuration."""
        return EngineConfig(
            rank=rank,
            world_size=self.workers,
            job=self.job,
            epoch=self.epoch,
            lanes_per_frame=self.lanes_per_frame,
            cookie=self.cookie(rank),
            switch=SWITCH_ADDRESS,
            own=self.address(rank),
            window_slots=self.window_slots,
            first_window=self.first_window,
            first_slot=self.own_first_slot if self.own_slots else self.first_slot,
            first_shared_slot=self.first_slot,
            shares_slots=self.shares_slots,
            trees=(self.own_slots, self.window_slots - self.own_slots) if self.own_slots else (),
            first_number=self.first_number,
            growth_bytes=self.growth_bytes,
            timeout_s=self.timeout_s,
            switch_timeout_s=self.switch_timeout_s,
            checksum=self.checksum,
            seed=self.rounding_seed,
            # Delays of this network are below a millisecond: nobody has to wait for a second to learn that.
            probe_initial_s=0.02,
            probe_max_s=0.25,
            places=tuple(one for one in range(self.workers) if one // self.at_leaf == rank // self.at_leaf)
            if self.at_leaf
            else (),
        )


class VirtualTransport(PythonTransport):
    """A link that exists only in memory, on the virtual clock.

    Its `wait` notes until when it may sleep and ends the loop, so that others have their turn meanwhile.
    """

    def __init__(self, config: ClusterConfig, rank: int, network: Network, clock: VirtualClock) -> None:
        frame_bytes = FRAME_BYTES + payload_bytes(config.lanes_per_frame)
        self.address = config.address(rank)
        self.max_frame_bytes = frame_bytes
        self.tx_frames = allocate_rows(2 * config.window_slots, frame_bytes)
        self.reopened = 0
        self.sleeps_until = 0.0
        """Time at which the worker wants to be polled if no frame comes, after `wait`."""
        self._came = allocate_rows(MOST_FRAMES, frame_bytes)
        self._network = network
        self._port = rank + 1
        self._clock = clock
        self._reading_s = config.reading_s
        self._read: deque[tuple[float, int, bytes]] = deque()
        self._consumed = 0
        self._inbox: deque[bytes] = deque()
        self._stop: npt.NDArray[np.int64] = np.zeros(1, np.int64)

    def functions(self) -> LinkFunctions:
        """Return what the loop calls."""
        functions = super().functions()
        self._stop = functions.record["stop"]
        return functions

    def now(self) -> float:
        """Return the virtual time."""
        return self._clock.now_s

    def take(self, frame: bytes) -> None:
        """Receive a frame from the network."""
        if len(frame) <= self._came.shape[1] - LEAD_BYTES:
            self._inbox.append(frame)

    def open_again(self) -> None:
        """Do as if the link had been: nobody reads what was handed over, and the frame store has moved."""
        self.tx_frames = self.tx_frames.copy()
        self._read.clear()
        self.pushed = self._consumed = 0
        self._reading_s = 0.0
        self.reopened += 1

    def receive(self) -> Received:
        """Return frames that have come."""
        lengths: list[int] = []
        while self._inbox and len(lengths) < MOST_FRAMES:
            frame = self._inbox.popleft()
            self._came[len(lengths), LEAD_BYTES : LEAD_BYTES + len(frame)] = np.frombuffer(frame, np.uint8)
            lengths.append(len(frame))
        return Received(self._came, np.arange(len(lengths), dtype=np.int32), np.array(lengths, np.int32))

    def send(self, rows: Indices, lengths: Indices) -> int:
        """Put frames on the network."""
        for row, length in zip(rows.tolist(), lengths.tolist(), strict=True):
            frame = self.tx_frames[row, LEAD_BYTES : LEAD_BYTES + length].tobytes()
            self._network.send(self._port, frame)
            self._read.append((self.now() + self._reading_s, row, frame))
        self.pushed += len(rows)
        return len(rows)

    @property
    def consumed(self) -> int:
        """Return how many frames have been read; raises AssertionError if one was written meanwhile."""
        while self._read and self._read[0][0] <= self.now():
            _, row, frame = self._read.popleft()
            self._consumed += 1
            if self.tx_frames[row, LEAD_BYTES : LEAD_BYTES + len(frame)].tobytes() != frame:
                raise AssertionError(f"row {row} was written while the transport read it")
        return self._consumed

    def wait(self, timeout_s: float) -> bool:
        """Say until when it may sleep."""
        self.sleeps_until = self.now() + timeout_s
        self._stop[0] = Stop.PAUSED
        return False

    @property
    def wake_at(self) -> float:
        """When there is something to do."""
        if self._inbox:
            return self.now()
        return min(self.sleeps_until, self._read[0][0] if self._read else float("inf"))

    def close(self) -> None:
        """Do nothing."""


class Worker:
    """One engine on the link that exists only in memory, driven as all are."""

    def __init__(self, config: ClusterConfig, rank: int, network: Network, clock: VirtualClock) -> None:
        self.port = rank + 1
        self._transport = VirtualTransport(config, rank, network, clock)
        self.engine = EngineByHand(config.engine(rank), self._transport.tx_frames, LEAD_BYTES)
        self._driver = Driver(self.engine, self._transport)
        self._submitted = 0
        self.finished: dict[int, Finished] = {}
        """Events of operations that have finished, by serial number."""
        self.error: Exception | None = None
        """Why the engine has given up."""

    def take(self, frame: bytes) -> None:
        """Receive a frame from the network."""
        self._transport.take(frame)

    def relink(self) -> None:
        """Open the link again: nobody reads what was handed over, and the frame store has moved."""
        self._transport.open_again()

    @property
    def wake_at(self) -> float:
        """When the worker has something to do."""
        return self._transport.now() if self.engine.submitted > self._submitted else self._transport.wake_at

    def run(self) -> None:
        """Do everything that can be done now."""
        self._submitted = self.engine.submitted
        self._transport.sleeps_until = -np.inf
        while self._transport.sleeps_until == -np.inf:
            events = self._driver.step(np.inf)
            while events:
                self._note(events.popleft())
            if self.error is not None:  # the loop of an engine that has failed does not come to wait
                self._transport.sleeps_until = self.engine.wake_at

    def _note(self, event: Outcome) -> None:
        if isinstance(event, Failed):
            self.error = event.error
        else:
            self.finished[event.operation] = event


class Cluster:
    """A job's workers, joined and ready."""

    def __init__(
        self,
        config: ClusterConfig | None = None,
        *,
        links: LinkConditions | Sequence[LinkConditions] | None = None,
        seed: int = 0,
        switch: Pipeline | None = None,
        clock: VirtualClock | None = None,
    ) -> None:
        """Build the job; `switch` must already know its members if it is no `ReferenceSwitch`."""
        self.config = config or ClusterConfig()
        self.clock = clock or VirtualClock()
        if switch is None:
            switch = ReferenceSwitch(lanes_per_frame=self.config.lanes_per_frame, growth_bytes=self.config.growth_bytes)
        if isinstance(switch, ReferenceSwitch):
            for rank in range(self.config.workers):
                switch.admit(self.config.member(rank))
        self.network = Network(switch, self.clock, seed=seed)
        self.workers = [Worker(self.config, rank, self.network, self.clock) for rank in range(self.config.workers)]
        for rank, worker in enumerate(self.workers):
            link = links[rank] if isinstance(links, Sequence) else links
            self.network.connect(worker.port, link or LinkConditions(), worker.take)

    def submit(
        self,
        rank: int,
        array: npt.NDArray[Any],
        operator: str = "sum",
        lanes: str = "int32",
    ) -> int:
        """Begin an allreduce of a contiguous array at one rank; return its serial number."""
        operation = Operation.of(array, operator=operator, lanes=lanes)
        return self.workers[rank].engine.submit(operation, array.reshape(-1), self.clock.now_s)

    def run(self, until: Callable[[], bool], *, limit_s: float = 60.0) -> None:
        """Let virtual time pass until something holds; raises TimeoutError, or what an engine gave up with."""
        run_together([self], until, limit_s=limit_s)

    def allreduce(
        self, arrays: Sequence[npt.NDArray[Any]], operator: str = "sum", lanes: str = "int32"
    ) -> list[Finished]:
        """Reduce one array per rank, in place; return each rank's event."""
        serials = [self.submit(rank, array, operator, lanes) for rank, array in enumerate(arrays)]
        self.run(lambda: all(serial in w.finished for serial, w in zip(serials, self.workers, strict=True)))
        return [worker.finished.pop(serial) for serial, worker in zip(serials, self.workers, strict=True)]


def run_together(clusters: Sequence[Cluster], until: Callable[[], bool], *, limit_s: float = 60.0) -> None:
    """Let time pass for jobs of one clock until something holds; raises TimeoutError, or an engine's error."""
    clock = clusters[0].clock
    end = clock.now_s + limit_s
    workers = [worker for cluster in clusters for worker in cluster.workers]
    for worker in workers:
        worker.run()
    while not until():
        errors = [worker.error for worker in workers if worker.error is not None]
        if errors:
            raise errors[0]
        at = min(*(cluster.network.next_at for cluster in clusters), *(worker.wake_at for worker in workers))
        if at > end:
            raise TimeoutError(f"not done after {limit_s} s of virtual time")
        clock.advance_to(at)
        for cluster in clusters:
            cluster.network.deliver()
        for worker in workers:
            if worker.wake_at <= clock.now_s:
                worker.run()

"""Communicators of several ranks in one process, for tests of programs that use switchsum."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from switchsum.testing.cluster import ClusterConfig
from switchsum.testing.network import Pipeline
from switchsum_host.api.communicator import Communicator
from switchsum_host.engine.engine import Engine
from switchsum_host.engine.loop import Driver
from switchsum_host.links.base import Indices, Received
from switchsum_host.links.callbacks import PythonTransport
from switchsum_protocol.errors import SwitchsumError, UsageError
from switchsum_protocol.frame import FRAME_BYTES, payload_bytes
from switchsum_protocol.slot_rules import ReferenceSwitch
from switchsum_switch.wires.headers import Address
from switchsum_switch.wires.rows import LEAD_BYTES, allocate_rows

ROWS_RECEIVED = 64
Result = TypeVar("Result")


class LocalNetwork:
    """A switch that ranks in this process reach by a function call.  Frames may get lost on the way."""

    def __init__(self, switch: Pipeline, *, loss: float = 0.0, seed: int = 0) -> None:
        self._switch = switch
        self._lock = threading.Lock()
        self._random = random.Random(seed)
        self._loss = loss
        self._ends: dict[int, LocalTransport] = {}

    def attach(self, port: int, end: LocalTransport) -> None:
        """Register the transport that gets what the switch sends to a port.

        Args:
            port: Port of the switch.
            end: The transport.

        """
        self._ends[port] = end

    def send(self, port: int, frames: list[bytes]) -> None:
        """Have the switch process frames, and deliver its answers.

        Args:
            port: Port on which the frames arrive.
            frames: Whole Ethernet frames.

        """
        with self._lock:
            for frame in frames:
                if self._is_lost():
                    continue
                for out, answer in self._switch.process(port, frame):
                    if out in self._ends and not self._is_lost():
                        self._ends[out].take(answer)

    def _is_lost(self) -> bool:
        return self._random.random() < self._loss


class LocalTransport(PythonTransport):
    """A `Transport` to a switch in the same process."""

    def __init__(self, network: LocalNetwork, port: int, address: Address, *, rows: int, frame_bytes: int) -> None:
        self.address = address
        self.max_frame_bytes = frame_bytes
        self.tx_frames = allocate_rows(rows, frame_bytes)
        self._network = network
        self._port = port
        self._received = allocate_rows(ROWS_RECEIVED, frame_bytes)
        self._lengths = np.zeros(ROWS_RECEIVED, np.int32)
        self._rows: Indices = np.arange(ROWS_RECEIVED, dtype=np.int32)
        self._inbox: deque[bytes] = deque()
        self._arrived = threading.Event()
        network.attach(port, self)

    def send(self, rows: Indices, lengths: Indices) -> int:
        """Hand frames over."""
        store = self.tx_frames
        frames = [store[r, LEAD_BYTES : LEAD_BYTES + n].tobytes() for r, n in zip(rows, lengths, strict=True)]
        self._network.send(self._port, frames)
        self.pushed += len(frames)
        return len(frames)

    def take(self, frame: bytes) -> None:
        """Get a frame from the network."""
        self._inbox.append(frame)
        self._arrived.set()

    def receive(self) -> Received:
        """Return frames that have come."""
        self._arrived.clear()
        count = min(len(self._inbox), ROWS_RECEIVED)
        for row in range(count):
            frame = np.frombuffer(self._inbox.popleft(), np.uint8)
            self._received[row, LEAD_BYTES : LEAD_BYTES + len(frame)] = frame
            self._lengths[row] = len(frame)
        return Received(self._received, self._rows[:count], self._lengths[:count])

    def wait(self, timeout_s: float) -> bool:
        """Wait for a frame."""
        return bool(self._inbox) or self._arrived.wait(timeout_s)

    def close(self) -> None:
        """Do nothing."""


class LocalMembership:
    """A place in a job that nobody else knows of."""

    error: SwitchsumError | None = None
    """Set it to break the communicator."""
    loads = 0
    """Raise it when the switch has been restarted."""
    left: frozenset[int] = frozenset()
    """Set it when ranks have left."""
    on_heartbeat: Callable[[], object] = staticmethod(lambda: None)
    has_left = False

    def explain(self, error: SwitchsumError) -> SwitchsumError:
        """Return the error: nobody knows more."""
        return error

    def leave(self, *, failed: bool = False) -> None:
        """Give the place up."""
        self.has_left = True

    def reform(self, timeout_s: float) -> tuple[int, int]:
        """Refuse: nobody knows the other ranks."""
        raise UsageError("these ranks cannot form a job anew")


def communicators(
    world_size: int,
    *,
    config: ClusterConfig | None = None,
    loss: float = 0.0,
    seed: int = 0,
) -> list[Communicator]:
    """Return one communicator for each rank, all on one reference switch in this process.

    Each rank needs a thread of its own for calls that block: `on_ranks` starts them.

    Args:
        world_size: Number of ranks.
        config: Sizes of frame and window, and time-outs; None: 256 lanes, 16 slots.
        loss: Share of frames that get lost, in each direction, 0 to 1.
        seed: Of the draws which frames get lost.

    Returns:
        The communicators in the order of ranks.

    Example:
        >>> import numpy as np
        >>> from switchsum.testing import communicators
        >>> ranks = communicators(2, loss=0.05)
        >>> handles = [comm.allreduce_async(np.full(1000, comm.rank, np.int32)) for comm in ranks]
        >>> [int(handle.wait().sum()) for handle in handles]
        [1000, 1000]

    """
    config = config or ClusterConfig(workers=world_size, lanes_per_frame=256, window_slots=16)
    switch = ReferenceSwitch(lanes_per_frame=config.lanes_per_frame, growth_bytes=config.growth_bytes)
    network = LocalNetwork(switch, loss=loss, seed=seed)
    made = []
    for rank in range(world_size):
        switch.admit(config.member(rank))
        transport = LocalTransport(
            network,
            rank + 1,
            config.address(rank),
            rows=2 * config.window_slots,
            frame_bytes=FRAME_BYTES + payload_bytes(config.lanes_per_frame),
        )
        engine = Engine(config.engine(rank), transport.tx_frames, LEAD_BYTES)
        made.append(Communicator(Driver(engine, transport), LocalMembership(), rank=rank, world_size=world_size))
    return made


def on_ranks(
    world_size: int, function: Callable[[Communicator], Result], *, loss: float = 0.0, seed: int = 0
) -> list[Result]:
    """Call a function on several ranks at once, each on a thread of its own with a communicator of its own.

    Args:
        world_size: Number of ranks.
        function: Called with the rank's `Communicator`, which is closed afterwards.
        loss: Share of frames that get lost, in each direction, 0 to 1.
        seed: Of the draws which frames get lost.

    Returns:
        What the calls have returned, in the order of ranks.

    Raises:
        Exception: What the call of some rank has raised, of the lowest such rank.

    Example:
        >>> import numpy as np
        >>> from switchsum.testing import on_ranks
        >>> on_ranks(3, lambda comm: comm.allreduce(np.array([comm.rank])))
        [array([3]), array([3]), array([3])]

    """

    def call(communicator: Communicator) -> Result:
        with communicator:
            return function(communicator)

    with ThreadPoolExecutor(world_size) as threads:
        return list(threads.map(call, communicators(world_size, loss=loss, seed=seed)))

"""A seeded, terrible network on a virtual clock, with a switch in its middle.

It is not `switchsum_lab.simulation`, and serves another purpose.  There, switches run compiled programs, which have at
least 128 lanes, and hosts run compiled engines.  Here, a switch is any Python object with `process`: the model of the
slot's rules with a lane or four, such a model with a rule broken on purpose, or a tree of them.  Frames are Python
bytes, so that a test can look at each one, hold it back, or send it twice; some are corrupted, which no
simulated link does.  It takes no time to build, and everything runs without a compiler, as `make coverage` needs it.
The price is speed: some ten thousand frames a second, without rates and queues.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from switchsum.testing.clock import VirtualClock


class Pipeline(Protocol):
    """A switch's data plane: what comes in at a port, and what goes out where."""

    def process(self, port: int, frame: bytes) -> Sequence[tuple[int, bytes]]:
        """Process one frame."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Impairment:
    """What one direction of a link does to frames; probabilities are 0 to 1."""

    delay_s: float = 50e-6
    """Time on the way."""
    jitter_s: float = 0.0
    """Most delay in addition, in seconds, without overtaking."""
    loss: float = 0.0
    """Probability that a frame is lost."""
    duplication: float = 0.0
    """Probability that a frame arrives a second time, up to `reordering_s` later."""
    reordering: float = 0.0
    """Probability that a frame is late by up to `reordering_s`, so that others overtake it."""
    reordering_s: float = 1e-3
    corruption: float = 0.0
    """Probability that some bit of a frame is flipped, or its end cut off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkConditions:
    """Both directions between a worker and the switch."""

    up: Impairment = Impairment()
    """Towards the switch."""
    down: Impairment = Impairment()
    """Towards the worker."""
    outages: tuple[tuple[float, float], ...] = ()
    """Times between which nothing passes either way, as (from, until) in seconds: the link is down, or the network is
    partitioned between the workers whose links are and the others."""

    def is_down(self, now_s: float) -> bool:
        """Return whether nothing passes now."""
        return any(start <= now_s < end for start, end in self.outages)


class Direction(Enum):
    """Which way a frame is going."""

    UP = 0
    DOWN = 1


class Network:
    """Links between ports of a switch and whoever stands behind them; the same seed gives the same run."""

    def __init__(self, switch: Pipeline, clock: VirtualClock, *, seed: int = 0) -> None:
        self.switch = switch
        self._clock = clock
        self._random = random.Random(seed)
        self._links: dict[int, LinkConditions] = {}
        self._receivers: dict[int, Callable[[bytes], None]] = {}
        self._latest: dict[tuple[int, Direction], float] = {}
        self._events: list[tuple[float, int, int, Direction, bytes]] = []
        self._order = itertools.count()
        self.sent = 0
        """Frames that were put on a link."""
        self.lost = 0
        """Frames that never arrived."""

    def connect(self, port: int, link: LinkConditions, receiver: Callable[[bytes], None]) -> None:
        """Attach a port, or change its link; `receiver` is called with each frame that comes out."""
        self._links[port] = link
        self._receivers[port] = receiver

    def send(self, port: int, frame: bytes) -> None:
        """Put a frame on the link behind `port`, towards the switch."""
        self._travel(port, Direction.UP, frame)

    @property
    def next_at(self) -> float:
        """When the next frame arrives somewhere; infinity: none is on the way."""
        return self._events[0][0] if self._events else float("inf")

    def deliver(self) -> None:
        """Let everything arrive that is due."""
        while self._events and self._events[0][0] <= self._clock.now_s:
            _, _, port, direction, frame = heapq.heappop(self._events)
            if direction is Direction.DOWN:
                self._receivers[port](frame)
                continue
            for out, answer in self.switch.process(port, frame):
                if out in self._links:
                    self._travel(out, Direction.DOWN, answer)

    def _travel(self, port: int, direction: Direction, frame: bytes) -> None:
        link = self._links[port]
        impairment = link.up if direction is Direction.UP else link.down
        dice = self._random.random
        self.sent += 1
        if dice() < impairment.loss or link.is_down(self._clock.now_s):
            self.lost += 1
            return
        if dice() < impairment.corruption:
            frame = self._corrupt(frame)
        at = self._clock.now_s + impairment.delay_s + impairment.jitter_s * dice()
        if dice() < impairment.reordering:
            self._arrive(at + impairment.reordering_s * dice(), port, direction, frame)
        else:
            at = max(at, self._latest.get((port, direction), 0.0))
            self._latest[port, direction] = at
            self._arrive(at, port, direction, frame)
        if dice() < impairment.duplication:
            self._arrive(at + impairment.reordering_s * dice(), port, direction, frame)

    def _arrive(self, at: float, port: int, direction: Direction, frame: bytes) -> None:
        heapq.heappush(self._events, (at, next(self._order), port, direction, frame))

    def _corrupt(self, frame: bytes) -> bytes:
        if self._random.random() < 0.1:
            return frame[: self._random.randrange(len(frame))]
        broken = bytearray(frame)
        broken[self._random.randrange(len(frame))] ^= 1 << self._random.randrange(8)
        return bytes(broken)

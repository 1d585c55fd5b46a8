"""How short the time-out may be: that depends on how long rounds take and how late the driver looks at its clock."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from switchsum.testing.clock import VirtualClock
from switchsum.testing.cluster import ClusterConfig
from switchsum_host.engine.config import EngineConfig
from switchsum_host.engine.engine import Engine
from switchsum_host.engine.loop import Driver
from switchsum_host.engine.operation import Operation
from switchsum_host.engine.state import Count
from switchsum_host.links.base import Indices, Received
from switchsum_host.links.callbacks import PythonTransport
from switchsum_protocol.frame import FRAME_BYTES, payload_bytes
from switchsum_protocol.slot_rules import ReferenceSwitch
from switchsum_switch.wires.rows import LEAD_BYTES, allocate_rows

from .known import Known

CONFIG = ClusterConfig(workers=1, window_slots=1)
ROUND_S = 20e-6


class PunctualLink(PythonTransport):
    """A switch that answers after `ROUND_S`, and a driver that is woken `late_s` after it wanted to be."""

    def __init__(self, config: EngineConfig) -> None:
        self.clock = VirtualClock()
        self.late_s = 0.0
        self.answers_frames = True
        frame_bytes = FRAME_BYTES + payload_bytes(CONFIG.lanes_per_frame)
        self.address, self.max_frame_bytes = config.own, frame_bytes
        self.tx_frames = allocate_rows(2, frame_bytes)
        self.switch = ReferenceSwitch(lanes_per_frame=CONFIG.lanes_per_frame)
        self.switch.admit(CONFIG.member(0))
        self._rows = allocate_rows(1, frame_bytes)
        self._answers: deque[tuple[float, bytes]] = deque()

    def now(self) -> float:
        return self.clock()

    def send(self, rows: Indices, lengths: Indices) -> int:
        for row, length in zip(rows, lengths, strict=True):
            frame = self.tx_frames[row, LEAD_BYTES : LEAD_BYTES + length].tobytes()
            if self.answers_frames:
                self._answers += [(self.now() + ROUND_S, answer) for _, answer in self.switch.process(1, frame)]
        self.pushed += len(rows)
        return len(rows)

    def receive(self) -> Received:
        nothing = np.zeros(0, np.int32)
        if not self._answers or self._answers[0][0] > self.now():
            return Received(self._rows, nothing, nothing)
        frame = self._answers.popleft()[1]
        self._rows[0, LEAD_BYTES : LEAD_BYTES + len(frame)] = np.frombuffer(frame, np.uint8)
        return Received(self._rows, np.zeros(1, np.int32), np.full(1, len(frame), np.int32))

    def wait(self, timeout_s: float) -> bool:
        until = self.now() + max(timeout_s, 0.0)
        if self._answers:
            self.clock.advance_to(min(until, self._answers[0][0]))
            return True
        self.clock.advance_to(until + self.late_s)
        return False

    def close(self) -> None:
        pass


class Alone:
    """A worker that is a job of its own, and the loop that drives it."""

    def __init__(self, **facts: Any) -> None:
        config = replace(CONFIG.engine(0), **facts)
        self.link = PunctualLink(config)
        self.engine = Engine(config, self.link.tx_frames, LEAD_BYTES)
        self.driver = Driver(self.engine, self.link)

    @property
    def known(self) -> Known:
        return Known(self.engine)

    def add(self, blocks: int) -> None:
        values = np.ones(blocks * CONFIG.lanes_per_frame, np.int32)
        operation = Operation.of(values)
        operation.make_record(CONFIG.lanes_per_frame, 1)
        events = self.driver.submit(operation, values, 10.0)
        while not events:
            events = self.driver.step(10.0)
        events.clear()

    def wait(self, seconds: float) -> None:
        """Wait for a result that does not come, with a look at the clock whenever the engine asks for one."""
        self.link.answers_frames = False
        values = np.ones(CONFIG.lanes_per_frame, np.int32)
        operation = Operation.of(values)
        operation.make_record(CONFIG.lanes_per_frame, 1)
        self.driver.submit(operation, values, 0.0)
        self.drive(seconds)

    def drive(self, seconds: float) -> None:
        until = self.link.now() + seconds
        while self.link.now() < until:
            self.driver.step(until - self.link.now())


def test_a_driver_that_is_never_late_waits_for_two_rounds() -> None:
    alone = Alone(granularity_s=0.0)
    alone.add(100)
    known = alone.known
    assert known["smoothed_s"] == pytest.approx(ROUND_S)
    assert known["granularity_s"] == 0.0
    assert known["timeout_s"] == pytest.approx(2 * ROUND_S)
    assert alone.engine.counts[Count.PROBES] + alone.engine.counts[Count.OVERTAKEN] == 0


def test_a_driver_that_has_not_been_timed_waits_for_a_millisecond() -> None:
    alone = Alone()
    alone.add(100)
    assert alone.known["timeout_s"] == alone.known["timeout_min_s"] == 0.001


def test_what_a_driver_is_late_by_counts_up_to_the_minimum_and_is_forgotten() -> None:
    alone = Alone(granularity_s=0.0)
    alone.add(100)
    alone.link.late_s = 0.0003
    alone.wait(0.01)
    assert alone.known["granularity_s"] == pytest.approx(0.0003, rel=0.05)
    assert alone.known["timeout_s"] == pytest.approx(2 * ROUND_S + 0.0003, rel=0.05)
    alone.link.late_s = 0.02
    alone.wait(0.1)
    assert alone.known["granularity_s"] == pytest.approx(0.02, rel=0.05)
    assert alone.known["timeout_s"] == 0.001
    alone.link.late_s = 0.0
    alone.wait(8.0)
    assert alone.known["timeout_s"] < 0.0001


@pytest.mark.parametrize(("is_held", "longest_s"), [(False, 0.064), (True, 1 / 16)])
def test_pauses_grow_as_long_after_short_rounds_as_after_those_of_a_millisecond(
    is_held: bool, longest_s: float
) -> None:
    """A switch that is away, or a worker that is late, is asked no more often because rounds were short.

    After a second's wait for a worker that is a sixteenth of it.
    """
    alone = Alone(granularity_s=0.0)
    alone.add(100)
    engine, known = alone.engine, alone.known
    assert known["timeout_s"] < 0.0001
    alone.wait(1.0)
    if is_held:
        # Another worker, whom the switch waits for: it says so in its answer to each repeat.
        alone.link.switch = ReferenceSwitch(lanes_per_frame=CONFIG.lanes_per_frame)
        alone.link.switch.admit(replace(CONFIG.member(0), workers=2))
        alone.link.answers_frames = True
        alone.drive(1.0)
        assert engine.counts[Count.HELD] > 0
    before = int(engine.counts[Count.PROBES])
    alone.drive(1.0)
    probes = int(engine.counts[Count.PROBES]) - before
    assert 0.8 / longest_s < probes <= 2.0 / longest_s

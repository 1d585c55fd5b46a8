"""The switch's clock: it runs, stands, and is what kernels, meters and the process read."""

from __future__ import annotations

import math

import pytest

from switchsum_switch.api.switch import Switch
from switchsum_switch.execution.pipeline import EngineName
from switchsum_switch.kernels.decorators import kernel
from switchsum_switch.ports.backlog import Backlog
from switchsum_switch.process.system import monotonic
from switchsum_switch.queues.queues import Queues
from switchsum_switch.state.clock import Clock, ClockWords, clock_us
from switchsum_switch.state.meters import GREEN, RED, MeterRates

from .conftest import PROGRAMS
from .test_queues import columns


@kernel
def read(words: ClockWords) -> int:
    return clock_us(words, monotonic())


def test_a_clock_runs_from_its_start() -> None:
    clock = Clock()
    first, second, third = clock.now_us(), read(clock.words), clock.now_us()
    assert 0 <= first <= second + 1
    assert second <= third + 1


def test_a_clock_that_stands_moves_when_it_is_told() -> None:
    clock = Clock()
    clock.stop(at_s=1)
    assert clock.now_us() == read(clock.words) == 1_000_000
    clock.advance(0.25)
    assert clock.now_us() == read(clock.words) == 1_250_000
    with pytest.raises(ValueError, match="does not run back"):
        clock.advance(-1)
    clock.run()
    assert clock.now_us() >= 1_250_000
    with pytest.raises(ValueError, match=r"stop\(\) it first"):
        clock.advance(1)


def test_the_epoch_of_a_clock_moves_with_it() -> None:
    clock = Clock()
    clock.stop()
    before = clock.epoch_ns()
    clock.advance(2)
    assert clock.epoch_ns() == before + 2_000_000_000


def test_frames_wait_by_the_clock() -> None:
    clock, queues = Clock(), Queues()
    clock.stop(at_s=5)
    backlog = Backlog(3, queues, clock)
    backlog.push(*columns([b"frame"]))
    clock.advance(0.5)
    assert queues.state(3, 0, clock.now_us()) == (1, 500_000)


@pytest.mark.parametrize("engine", ["interpreter", "native"])
def test_meters_fill_by_the_clock(engine: EngineName) -> None:
    switch = Switch.from_file(PROGRAMS / "metering.json", engine=engine)
    switch.meters["packets"].configure(3, MeterRates(committed=1, committed_burst=1, peak=1, peak_burst=1))

    def colour() -> int:
        [(_, frame)] = switch.process(1, bytes([0, 3]).ljust(64, b"\0"))
        return frame[2]

    assert [colour(), colour()] == [GREEN, RED]
    switch.clock.advance(0.999)
    assert colour() == RED
    switch.clock.advance(0.001)
    assert colour() == GREEN


@pytest.mark.parametrize("seconds", [math.nan, math.inf, 1e300, -1, -math.inf])
def test_a_clock_names_what_is_no_time(seconds: float) -> None:
    clock = Clock()
    clock.stop(at_s=0)
    with pytest.raises(ValueError, match=r"time (advances by 0 to|does not run back)"):
        clock.advance(seconds)
    if seconds != -1:
        with pytest.raises(ValueError, match="a clock stands at a time of up to"):
            clock.stop(at_s=seconds)
    clock.advance(1e12)
    with pytest.raises(ValueError, match="the clock counts to"):
        clock.advance(1)
    assert clock.now_us() == 10**18

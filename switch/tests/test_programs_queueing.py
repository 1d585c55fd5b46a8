"""Queues and clocks, as the program sees them, and the queue that it chooses."""

from __future__ import annotations

import struct

import pytest

from switchsum_switch.execution.pipeline import EngineName, Pipeline
from switchsum_switch.program.v1model import QUEUE_SHIFT
from switchsum_switch.queues.queues import Queues

from .conftest import PROGRAMS

REPORT = struct.Struct("!B3s3sII6s6s")
PORT, QUEUES, DROP_PORT = 3, 2, 100


@pytest.fixture
def queues() -> Queues:
    return Queues(QUEUES)


@pytest.fixture(params=["interpreter", "native"])
def pipeline(request: pytest.FixtureRequest, queues: Queues) -> Pipeline:
    engine: EngineName = request.param
    program = (PROGRAMS / "queueing.json").read_bytes()
    return Pipeline.load(program, engine=engine, queues=queues, drop_port=DROP_PORT)


def report(pipeline: Pipeline, queue: int, now_us: int) -> tuple[int, ...]:
    [(port, frame)] = pipeline.process(1, bytes([queue]).ljust(REPORT.size, b"\0"), now_us)
    assert (port & ((1 << QUEUE_SHIFT) - 1), port >> QUEUE_SHIFT) == (PORT, queue)
    fields = REPORT.unpack(frame)[1:]
    return tuple(field if isinstance(field, int) else int.from_bytes(field, "big") for field in fields)


def test_nobody_waits(pipeline: Pipeline) -> None:
    assert report(pipeline, 0, 7_000_000_000) == (0, 0, 7_000_000_000 % (1 << 32), 0, 7_000_000_000, 7_000_000_000)


def test_each_queue_has_its_own_depth(pipeline: Pipeline, queues: Queues) -> None:
    queues.cells[PORT, 1] = 40, 1000
    queues.cells[PORT + 1] = 9, 9
    assert report(pipeline, 1, 1500) == (40, 40, 1500, 500, 1500, 1500)
    assert report(pipeline, 0, 1500) == (0, 0, 1500, 0, 1500, 1500)
    queues.cells[PORT, 1] = 0, 0
    assert report(pipeline, 1, 1600) == (0, 0, 1600, 0, 1600, 1600)


def test_a_priority_without_a_queue_is_dropped(pipeline: Pipeline) -> None:
    for priority in range(QUEUES, 8):
        assert pipeline.process(1, bytes([priority]).ljust(REPORT.size, b"\0")) == []


def test_the_drop_port_is_the_one_that_was_wanted(pipeline: Pipeline) -> None:
    assert pipeline.process(1, b"\xff".ljust(REPORT.size, b"\0")) == []
    assert pipeline.process(1, bytes(REPORT.size), 99) == []

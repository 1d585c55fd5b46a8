"""The switch alone: contributions a second in memory, native and interpreted, beside BMv2."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace

import numpy as np

from checks.bench.bmv2 import bmv2_rate, build
from checks.bench.contributions import WORKERS, Contributions
from checks.bench.records import Record, Samples, beside, record
from switchsum.testing.embedded import Embedded
from switchsum.testing.rig import SLOT_COUNT, Rig
from switchsum_switch.execution.pipeline import EngineName
from switchsum_switch.ports.port_set import BATCH_FRAMES
from switchsum_switch.queues.batch import DEFAULT_ARENA_BYTES, Output

LANES = (256, 2048)
RUNS = 5
ROUNDS = BATCH_FRAMES // (SLOT_COUNT * WORKERS)
"""Rounds in one call, which then has as many frames as the switch takes at once from its ports."""
ENGINES: tuple[EngineName, ...] = ("native", "interpreter")
SECONDS = {"native": 0.5, "interpreter": 2.0}
"""Least length of one run."""


class Measured:
    """The embedded switch; each round gives a result to each of four workers."""

    def __init__(self, lanes: int, engine: EngineName) -> None:
        self._switch = Embedded(lanes, engine)
        rig = Rig(self._switch, workers=WORKERS, lanes_per_frame=lanes)
        self._frames = Contributions(rig, slots=SLOT_COUNT, rounds=ROUNDS)
        count = self._frames.count
        self._columns = (
            self._frames.addresses,
            np.full(count, self._frames.frame_bytes, np.uint32),
            np.resize(np.arange(1, WORKERS + 1, dtype=np.uint32), count),
        )
        self._output = Output(arena_bytes=4 * DEFAULT_ARENA_BYTES)
        self._numbers = np.zeros(SLOT_COUNT, np.uint32)
        self._seconds = SECONDS[engine]

    def measure(self) -> float:
        """Return contributions a second."""
        done, spent, count = 0, 0.0, self._frames.count
        while spent < self._seconds:
            self._numbers += ROUNDS
            self._frames.set_numbers(self._numbers)
            started = time.perf_counter()
            ran = self._switch.pipeline.process_batch(*self._columns, count, self._output)
            spent += time.perf_counter() - started
            if ran != count or self._output.count != count:
                raise RuntimeError(f"{ran} of {count} frames ran and made {self._output.count}")
            done += count
        return done / spent


def embedded_rate(lanes: int, engine: EngineName) -> Samples:
    """Return contributions a second of the embedded switch."""
    measured = Measured(lanes, engine)
    measured.measure()
    return Samples.of(measured.measure, RUNS)


def run() -> list[Record]:
    """Measure both builds; BMv2 where it is on PATH and we are root."""
    with_bmv2 = shutil.which("simple_switch_grpc") is not None and os.geteuid() == 0
    records = []
    for lanes in LANES:
        conditions = (
            f"{lanes} lanes, {WORKERS} workers, {SLOT_COUNT} rounds in flight, in memory, one core, {RUNS} runs"
        )
        bmv2 = bmv2_rate(lanes, RUNS) if with_bmv2 else None
        if bmv2 is not None:
            conditions += f"; {build()}, beside it over veth pairs, since it has no other ports"
        for engine in ENGINES:
            name, conditions_here = f"switch.contributions.{lanes}.{engine}", f"{engine}, {conditions}"
            alone = record(name, embedded_rate(lanes, engine), "contributions/s", conditions_here)
            # In memory and over veth pairs are two things: no ratio is made of them.
            records.append(alone if bmv2 is None else replace(beside(alone, "bmv2", bmv2), ratio=None))
    return records

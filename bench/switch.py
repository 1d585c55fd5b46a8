"""The switch alone: contributions a second on one core in memory, native and interpreted, beside BMv2."""

from __future__ import annotations

import os
import shutil
import time

import numpy as np

from bench.bmv2 import bmv2_rate
from bench.contributions import WORKERS, Contributions
from bench.records import Record, Samples, beside, record
from switchsum.switch.batch import Output
from switchsum.switch.pipeline import EngineName
from switchsum.switch.ports.port_set import BATCH_FRAMES
from switchsum.testing.embedded import Embedded
from switchsum.testing.rig import SLOT_COUNT, Rig

LANES = (256, 2048)
RUNS = 5
ROUNDS = BATCH_FRAMES // (SLOT_COUNT * WORKERS)
"""Rounds in one call, which then has as many frames as the switch takes at once from its ports."""
ENGINES: tuple[EngineName, ...] = ("native", "interpreter")
SECONDS = {"native": 0.5, "interpreter": 2.0}
"""Least length of one run."""


def embedded_rate(lanes: int, engine: EngineName) -> Samples:
    """Return contributions a second of the embedded switch; each round gives a result to each of four workers."""
    switch = Embedded(lanes, engine)
    frames = Contributions(Rig(switch, workers=WORKERS, lanes=lanes), slots=SLOT_COUNT, rounds=ROUNDS)
    addresses, count = frames.addresses, frames.count
    lengths = np.full(count, frames.frame_bytes, np.uint32)
    ports = np.resize(np.arange(1, WORKERS + 1, dtype=np.uint32), count)
    output = Output()
    numbers = np.zeros(SLOT_COUNT, np.uint32)

    def measure() -> float:
        done, spent = 0, 0.0
        while spent < SECONDS[engine]:
            numbers[:] += ROUNDS
            frames.set_numbers(numbers)
            started = time.perf_counter()
            ran = switch.pipeline.process_batch(addresses, lengths, ports, count, output)
            spent += time.perf_counter() - started
            if ran != count or output.count != count:
                raise RuntimeError(f"{ran} of {count} frames ran and made {output.count}")
            done += count
        return done / spent

    measure()
    return Samples.of(measure, RUNS)


def run() -> list[Record]:
    """Measure both builds; BMv2 where it is on PATH and we are root."""
    with_bmv2 = shutil.which("simple_switch_grpc") is not None and os.geteuid() == 0
    records = []
    for lanes in LANES:
        conditions = (
            f"{lanes} lanes, {WORKERS} workers, {SLOT_COUNT} rounds in flight, in memory, one core, {RUNS} runs"
        )
        bmv2 = bmv2_rate(lanes, RUNS) if with_bmv2 else None
        for engine in ENGINES:
            name, conditions_here = f"switch.contributions.{lanes}.{engine}", f"{engine}, {conditions}"
            alone = record(name, embedded_rate(lanes, engine), "contributions/s", conditions_here)
            records.append(alone if bmv2 is None else beside(alone, "bmv2", bmv2))
    return records

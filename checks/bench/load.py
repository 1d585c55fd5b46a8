"""How long a program takes to load: compiled anew, and from the cache on disk; each in a new process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from checks.bench.records import Record, Samples, record
from switchsum_switch.kernels.cache import CACHE_VARIABLE

LANES = (128, 256, 2048)
RUNS = 5
_CODE = """
import sys, time
from switchsum import p4src
from switchsum_switch.execution.pipeline import Pipeline
text = p4src.load(int(sys.argv[1])).device_config
started = time.perf_counter()
Pipeline.load(text, engine="native")
print(time.perf_counter() - started)
"""


def seconds(lanes: int, cache: str) -> float:
    """Load once in a new process; returns what it says of itself."""
    done = subprocess.run(
        [sys.executable, "-c", _CODE, str(lanes)],
        env={**os.environ, CACHE_VARIABLE: cache},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def run() -> list[Record]:
    """Measure every build."""
    records = []
    for lanes in LANES:
        cold = []
        for _ in range(RUNS):
            with tempfile.TemporaryDirectory() as cache:
                cold.append(seconds(lanes, cache))
        with tempfile.TemporaryDirectory() as cache:
            seconds(lanes, cache)
            cached = [seconds(lanes, cache) for _ in range(RUNS)]
        for name, values in (("cold", cold), ("cached", cached)):
            conditions = f"{lanes} lanes, JSON to native code, new process, imports not counted, {RUNS} runs"
            records.append(record(f"load.{name}.{lanes}", Samples(values=values), "s", conditions))
    return records

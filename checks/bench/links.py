"""Allreduce on limited links: AF_PACKET and the embedded switch, beside gloo and Open MPI over a bridge.

Each rank has a link of its own, limited by a token bucket in both directions.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from checks.bench import swept
from checks.bench.choice import Choice
from checks.bench.records import Record, Samples, record
from switchsum.launch.link_options import rate_bits
from switchsum_lab.sweeps.sweep_file import load

RUNS_OF_TCP = 5
TAKES = swept.TAKES


def run(choice: Choice) -> list[Record]:
    """Measure each rate and lane build, and the others at the same MTU; nothing without root."""
    if os.geteuid() != 0:
        return []
    sweep = swept.narrowed(load(swept.SWEEPS / "links.yaml"), choice)
    lines = sorted({(str(swept.rate_of(cell)), swept.mtu_of(cell), cell.workers) for cell in sweep.cells})
    streams = [tcp_stream(rate, mtu) for rate, mtu in sorted({(rate, mtu) for rate, mtu, _ in lines})]
    made = swept.records("links", choice, lambda cell: f"allreduce.{swept.rate_of(cell)}.mtu{swept.mtu_of(cell)}")
    return [*streams, *made, *itertools.starmap(of_ring, lines)]


def of_ring(rate: str, mtu: int, workers: int) -> Record:
    """Compute what a ring could reach."""
    bound = Samples(values=[rate_bits(rate) / 8e6 * workers / (2 * (workers - 1))])
    conditions = "what a ring could reach at most: N / (2 (N - 1)) of the line, computed"
    return record(f"allreduce.{rate}.mtu{mtu}.any.{workers}workers.ring", bound, "MB/s per worker", conditions)


def tcp_stream(rate: str, mtu: int) -> Record:
    """Measure what one TCP stream gets of a link."""
    with tempfile.TemporaryDirectory(prefix="switchsum-bench-") as scratch:
        path = Path(scratch, "rates.json")
        star = [sys.executable, "-m", "switchsum_lab.sweeps.star", "tcp", "2", rate, str(mtu)]
        stream = [sys.executable, "-m", "checks.bench.tcp_stream", str(RUNS_OF_TCP), str(path)]
        subprocess.run(["unshare", "--net", "--", *star, *stream], check=True)
        rates = Samples(values=[value / 1e6 for value in json.loads(path.read_text())])
    conditions = f"one TCP stream from rank to rank over the bridge, {RUNS_OF_TCP} runs"
    return record(f"allreduce.{rate}.mtu{mtu}.tcp", rates, "MB/s", conditions)

"""Allreduce on limited links: AF_PACKET and the embedded switch, beside gloo and Open MPI over a bridge.

Each rank has a link of its own, limited by a token bucket in both directions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from checks.bench.choice import Choice
from checks.bench.compare import OTHERS, records
from checks.bench.jobs import LINE_MTU, Job, measure
from checks.bench.records import Record, Samples, record
from switchsum.launch.options import rate_bits

RATES = ("100mbit", "200mbit", "1gbit")
WORKERS = (4, 8)
LANES = (256, 2048)
SIZES = (4, 1_000_000, 10_000_000)
RUNS_OF_TCP = 5
TAKES = ("workers", "sizes", "lanes", "rates", "peers", "runs")


def run(choice: Choice) -> list[Record]:
    """Measure each rate and lane build, and the others at the same MTU; nothing without root."""
    made: list[Record] = []
    if os.geteuid() != 0:
        return made
    for rate in choice.rates or RATES:
        for lanes in choice.lanes or LANES:
            mtu = LINE_MTU[lanes]
            made.append(tcp_stream(rate, mtu))
            for workers in choice.workers or WORKERS:
                made += of_links(rate, lanes, workers, choice)
    return made


def of_links(rate: str, lanes: int, workers: int, choice: Choice) -> list[Record]:
    """Measure one number of workers; lanes of 16 bits only where messages are large."""
    sizes = tuple(sorted(choice.sizes or SIZES))
    ours = Job(peer="switchsum", workers=workers, sizes=sizes, runs=choice.runs, lanes=lanes, rate=rate)
    jobs = {f"{lanes}": ours, f"{lanes}-int16": replace(ours, peer="switchsum-int16", sizes=sizes[-1:])}
    jobs |= {peer: replace(ours, peer=peer) for peer in choice.peers or OTHERS}
    prefix = f"allreduce.{rate}.mtu{LINE_MTU[lanes]}"
    bound = Samples(values=[rate_bits(rate) / 8e6 * workers / (2 * (workers - 1))])
    conditions = "what a ring could reach at most: N / (2 (N - 1)) of the line, computed"
    ring = record(f"{prefix}.any.{workers}workers.ring", bound, "MB/s per worker", conditions)
    return [*records(prefix, workers, measure(jobs), rate), ring]


def tcp_stream(rate: str, mtu: int) -> Record:
    """Measure what one TCP stream gets of a link."""
    with tempfile.TemporaryDirectory(prefix="switchsum-bench-") as scratch:
        path = Path(scratch, "rates.json")
        star = [sys.executable, "-m", "checks.bench.star", "tcp", "2", rate, str(mtu)]
        stream = [sys.executable, "-m", "checks.bench.tcp_stream", str(RUNS_OF_TCP), str(path)]
        subprocess.run(["unshare", "--net", "--", *star, *stream], check=True)
        rates = Samples(values=[value / 1e6 for value in json.loads(path.read_text())])
    conditions = f"one TCP stream from rank to rank over the bridge, {RUNS_OF_TCP} runs"
    return record(f"allreduce.{rate}.mtu{mtu}.tcp", rates, "MB/s", conditions)

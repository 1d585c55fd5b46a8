"""Allreduce between worker processes over veth links (AF_PACKET): the embedded switch, and BMv2 in its place."""

from __future__ import annotations

import os
import shutil

from checks.bench.jobs import rates, switchsum_seconds
from checks.bench.records import Record, beside, record

LANES = (256, 2048)
RUNS = 5
WORKERS = 4
SIZE_BYTES = 8_000_000
SIZE_BYTES_BMV2 = 4_000_000
OPTIONS = ("--links", "veth", "--timeout", "60")


def run() -> list[Record]:
    """Measure both builds on both switches; nothing without root, and BMv2 only where it is on PATH."""
    if os.geteuid() != 0:
        return []
    with_bmv2 = shutil.which("simple_switch_grpc") is not None
    records = []
    for lanes in LANES:
        conditions = f"{WORKERS} worker processes and the switch on one machine, float32, {RUNS} runs, {lanes} lanes"
        ours = rates(switchsum_seconds(lanes, SIZE_BYTES, options=OPTIONS), SIZE_BYTES)
        alone = record(
            f"allreduce.veth.{WORKERS}workers.{lanes}.embedded",
            ours,
            "MB/s per worker",
            f"{conditions}, {SIZE_BYTES:,} bytes, one veth pair a worker, embedded switch",
        )
        if not with_bmv2:
            records.append(alone)
            continue
        seconds = switchsum_seconds(lanes, SIZE_BYTES_BMV2, options=(*OPTIONS, "--switch", "bmv2"))
        theirs = rates(seconds, SIZE_BYTES_BMV2)
        records += [
            beside(alone, "bmv2", theirs),
            record(
                f"allreduce.veth.{WORKERS}workers.{lanes}.bmv2",
                theirs,
                "MB/s per worker",
                f"{conditions}, {SIZE_BYTES_BMV2:,} bytes, one veth pair a worker, real BMv2 with the same program",
            ),
        ]
    return records

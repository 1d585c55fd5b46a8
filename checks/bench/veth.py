"""Allreduce between worker processes over veth links (AF_PACKET): the embedded switch, and BMv2 in its place."""

from __future__ import annotations

import dataclasses
import os
import shutil

from checks.bench.choice import Choice
from checks.bench.jobs import Job, measure
from checks.bench.records import Record, Samples, beside, pairs, record

LANES = (256, 2048)
WORKERS = 4
SIZE_BYTES = 4_000_000
"""BMv2 takes a second for it."""
SWITCHES = {"embedded": "the embedded switch", "bmv2": "real BMv2 with the same program"}
UNIT = "MB/s per worker"
TAKES = ("lanes", "runs")


def run(choice: Choice) -> list[Record]:
    """Measure builds on both switches in turn; nothing without root, and BMv2 only where it is on PATH."""
    if os.geteuid() != 0:
        return []
    there = [name for name in SWITCHES if name == "embedded" or shutil.which("simple_switch_grpc")]
    return [item for lanes in choice.lanes or LANES for item in _of_build(lanes, there, choice.runs)]


def _of_build(lanes: int, switches: list[str], runs: int) -> list[Record]:
    ours = Job(peer="switchsum", workers=WORKERS, sizes=(SIZE_BYTES,), runs=runs, lanes=lanes)
    options = ("--links", "veth", "--timeout", "60", "--switch")
    taken = measure({name: dataclasses.replace(ours, options=(*options, name)) for name in switches})
    seconds = {name: [one.seconds for one in taken[name, SIZE_BYTES]] for name in switches}
    where = f"{WORKERS} worker processes and the switch on one machine, one veth pair a worker, float32"
    records = {
        name: record(
            f"allreduce.veth.{WORKERS}workers.{lanes}.{name}",
            Samples(values=[SIZE_BYTES / one / 1e6 for one in seconds[name]]),
            UNIT,
            f"{where}, {SIZE_BYTES:,} bytes, {runs} runs in turn, {lanes} lanes, {SWITCHES[name]}",
        )
        for name in switches
    }
    if "bmv2" in records:
        ratios = pairs(seconds["embedded"], seconds["bmv2"])
        theirs = Samples(values=[SIZE_BYTES / one / 1e6 for one in seconds["bmv2"]])
        records["embedded"] = dataclasses.replace(
            beside(records["embedded"], "bmv2", theirs),
            ratio=ratios.median,
            more={"x BMv2": ratios.median},
            intervals={"x BMv2": ratios.interval},
        )
    return list(records.values())

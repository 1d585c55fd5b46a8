"""Allreduce between worker processes over veth links (AF_PACKET): the embedded switch, and BMv2 in its place."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping

from checks.bench import swept
from checks.bench.choice import Choice
from checks.bench.records import Record, Samples, beside, pairs, record

SWITCHES = {"embedded": "the embedded switch", "bmv2": "real BMv2 with the same program"}
UNIT = "MB/s per worker"
TAKES = swept.TAKES


def run(choice: Choice) -> list[Record]:
    """Measure builds on both switches in turn; nothing without root, and BMv2 only where it is on PATH."""
    if os.geteuid() != 0:
        return []
    builds: dict[tuple[int, int, int], dict[str, list[float]]] = {}
    for cell, runs in swept.measure("veth", choice).items():
        build = cell.workers, cell.bytes, swept.lanes_of(cell)
        builds.setdefault(build, {})[cell.switch] = [run.seconds for run in runs]
    return [item for build, seconds in builds.items() for item in _of_build(*build, seconds)]


def _of_build(workers: int, size: int, lanes: int, seconds: Mapping[str, list[float]]) -> list[Record]:
    where = f"{workers} worker processes and the switch on one machine, one veth pair a worker, float32"
    records = {
        name: record(
            f"allreduce.veth.{workers}workers.{lanes}.{name}",
            Samples(values=[size / one / 1e6 for one in taken]),
            UNIT,
            f"{where}, {size:,} bytes, {len(taken)} runs in turn, {lanes} lanes, {SWITCHES[name]}",
        )
        for name, taken in seconds.items()
    }
    if "bmv2" in records:
        ratios = pairs(seconds["embedded"], seconds["bmv2"])
        theirs = Samples(values=[size / one / 1e6 for one in seconds["bmv2"]])
        records["embedded"] = dataclasses.replace(
            beside(records["embedded"], "bmv2", theirs),
            ratio=ratios.median,
            more={"x BMv2": ratios.median},
            intervals={"x BMv2": ratios.interval},
        )
    return list(records.values())

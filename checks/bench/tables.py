"""How packets a second depend on the size of tables: native code, from pcap files to pcap files."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from checks.bench.choice import Choice
from checks.bench.program_cases import PROGRAMS, Program, fill_firewall, fill_router, filtered_frames, routed_frames
from checks.bench.programs import own_rate
from checks.bench.records import Record, record

TAKES: Final = ("runs",)
TABLE_SIZES: Final = (100, 100_000)


def run(choice: Choice) -> list[Record]:
    """Measure how the native rate depends on the number of entries and of masks."""
    router, firewall = PROGRAMS[:2]
    records = []
    for count in TABLE_SIZES:
        made = replace(
            router,
            fill=partial(fill_router, count=count),
            frames=partial(routed_frames, count=count),
        )
        records.append(_sized(f"tables.lpm.{count}", made, f"router with {count:,} routes", choice.runs))
    for count, masks in ((100, 64), (100, 100), (100_000, 64)):
        made = replace(
            firewall,
            fill=partial(fill_firewall, count=count, masks=masks),
            frames=partial(filtered_frames, count=count, masks=masks),
        )
        text = f"firewall with {count:,} rules of {masks} masks"
        records.append(_sized(f"tables.ternary.{count}.{masks}masks", made, text, choice.runs))
    return records


def _sized(name: str, program: Program, what: str, runs: int) -> Record:
    return record(name, own_rate(program, "native", runs), "packets/s", f"{what}, files to files, native, {runs} runs")

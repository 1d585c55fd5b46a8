"""Processor time of what a sparse sum does beside its frames: `python -m checks.lab.coding_time [--publish]`.

A rank codes the places of its rows, and describes them in the first step.  Then it decodes the parts of all ranks, and
adds them.  The times are those of one thread, which other work on the machine makes longer, too: the load is printed.

`--publish` writes the table into docs/results/sparse-ways.md.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Final

import numpy as np

from checks.bench.records import machine
from checks.lab.block_bytes import arguments, print_tables
from checks.lab.sparse_ways import DENSITIES, PAGE, VALUES
from switchsum_host.api import places

BEGIN, END = "<!-- coding: python -m checks.lab.coding_time --publish -->", "<!-- end of coding -->"
PARTS: Final = 4
RUNS: Final = 20


def median_us(work: Callable[[], object]) -> float:
    """Return the median of the thread's microseconds, after a run that compiles."""
    work()
    took = []
    for _ in range(RUNS):
        began = time.thread_time_ns()
        work()
        took.append(time.thread_time_ns() - began)
    return statistics.median(took) / 1e3


def table() -> Iterator[str]:
    """Yield the table, a row for each density, and what it was measured on."""
    yield "| density | coding own places | digest and sketch | decoding and adding four parts |"
    yield "|---|---|---|---|"
    draw = np.random.default_rng(1)
    for density in DENSITIES:
        count = round(VALUES * density)
        rows = [np.sort(draw.choice(VALUES, count, replace=False)) for _ in range(PARTS)]
        own, digest, sketch = rows[0], np.zeros(1, np.uint64), np.zeros(places.SKETCH_WORDS, np.uint64)
        parts = [
            places.Part(places.code(one, VALUES), draw.standard_normal(count).astype(np.float32), count) for one in rows
        ]
        coding = median_us(partial(places.code, own, VALUES))
        describing = median_us(partial(places.describe, own, digest, sketch))
        adding = median_us(partial(places.add, parts, VALUES, 1, 1.0))
        yield f"| {density:.1%} | {coding:,.0f} us | {describing:,.0f} us | {adding:,.0f} us |"
    yield ""
    yield f"Measured on {machine()}, {datetime.now(UTC).date()}, load {os.getloadavg()[0]:.1f}."


if __name__ == "__main__":
    print_tables(table(), BEGIN, END, publish=arguments(__doc__).parse_args().publish, page=PAGE)

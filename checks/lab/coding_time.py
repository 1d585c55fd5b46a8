"""Processor time of what a sparse sum does beside its frames: `python -m checks.lab.coding_time [--publish]`.

A rank codes the places of its rows, and describes them in the first step.  Then it decodes the parts of all ranks, and
adds them.  Any way adds values: the same pass over places of 32 bits, which need no decoding, is taken off.  What
SparCML's hosts need to merge the same pairs stands beside it.  What remains should be at most a tenth of the time of
the links, or 50 us.  The times are those of one thread, which other work on the machine makes longer, too: the load is
printed.

`--publish` writes the table into docs/results/sparse-ways.md.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from checks.bench.records import machine
from checks.lab.block_bytes import arguments, print_tables
from checks.lab.sparse_ways import DENSITIES, PAGE, VALUES, chosen, costs, facts_of, seconds
from switchsum_host.api import places
from switchsum_host.api.bitmap import WORD_BITS, Indices, Words, trailing_zeros
from switchsum_lab.sweeps.sparse_hosts import Stream
from switchsum_switch.kernels.decorators import kernel
from switchsum_switch.kernels.plain import wrapping

BEGIN, END = "<!-- coding: python -m checks.lab.coding_time --publish -->", "<!-- end of coding -->"
PARTS: Final = 4
RUNS: Final = 20
RATES_BPS: Final = {"10 Gbit/s": 1e10, "1 Gbit/s": 1e9, "100 Mbit/s": 1e8}
SHARE: Final = 0.1
LEAST_US: Final = 50.0
_TILE: Final = 1 << 12
"""As `places.add` has it."""


def median_us(work: Callable[[], object]) -> float:
    """Return the median of the thread's microseconds, after a run that compiles."""
    work()
    took = []
    for _ in range(RUNS):
        began = time.thread_time_ns()
        work()
        took.append(time.thread_time_ns() - began)
    return statistics.median(took) / 1e3


def merged(pairs: Sequence[Stream]) -> Stream:
    """Return the sum of four streams, as SparCML's hosts make it."""
    return (pairs[0] + pairs[1]) + (pairs[2] + pairs[3])


def passed(joined: Stream, starts: Indices) -> int:
    """Add streams in the pass of `places.add`, but without decoding; return how many rows there are."""
    most, indices, values = len(joined.indices), joined.indices, joined.values
    totals, seen = np.zeros(_TILE), np.zeros(_TILE // WORD_BITS, np.uint64)
    return int(_pass(indices, values, starts, totals, seen, np.empty(most, np.int64), np.empty(most, np.float32)))


@kernel
@wrapping
def _pass(
    indices: npt.NDArray[np.uint32],
    values: npt.NDArray[np.float32],
    starts: Indices,
    totals: npt.NDArray[np.float64],
    seen: Words,
    rows: Indices,
    sums: npt.NDArray[np.float32],
) -> int:
    """Add parts tile by tile, and write rows and sums."""
    done, found = starts[:-1].copy(), 0
    for first in range(0, VALUES, _TILE):
        end = first + _TILE
        for part in range(done.size):
            at = done[part]
            while at < starts[part + 1] and indices[at] < end:
                place = np.uint64(indices[at]) - np.uint64(first)
                totals[place] += np.float64(values[at])
                seen[place >> np.uint64(6)] |= np.uint64(1) << (place & np.uint64(63))
                at += 1
            done[part] = at
        for word in range(seen.size):
            bits = seen[word]
            seen[word] = np.uint64(0)
            while bits != 0:
                place = np.uint64(WORD_BITS * word) + np.uint64(trailing_zeros(bits))
                bits &= bits - np.uint64(1)
                rows[found] = first + np.int64(place)
                sums[found] = np.float32(totals[place])
                totals[place] = 0.0
                found += 1
    return found


def table() -> Iterator[str]:
    """Yield the table, a row for each density, and what it was measured on."""
    allowed = " | ".join(f"allowed at {name}" for name in RATES_BPS)
    yield (
        "| density | coding own places | digest and sketch | decoding and adding four parts | SparCML's merge | "
        f"adding places of 32 bits | beyond that | {allowed} |"
    )
    yield f"|{'---|' * (7 + len(RATES_BPS))}"
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
        pairs = [Stream(one.astype(np.uint32), part.values) for one, part in zip(rows, parts, strict=True)]
        merging = median_us(partial(merged, pairs))
        joined = Stream(np.concatenate([o.indices for o in pairs]), np.concatenate([o.values for o in pairs]))
        passing = median_us(partial(passed, joined, count * np.arange(PARTS + 1)))
        beyond = coding + describing + adding - passing
        facts = facts_of(VALUES, [count] * PARTS, round(VALUES * (1 - (1 - density) ** PARTS)), is_same=False)
        best = chosen(facts, costs(facts, 0.0))[0]
        most = [max(LEAST_US, SHARE * seconds(best, rate) * 1e6) for rate in RATES_BPS.values()]
        cells = " | ".join(f"{one:,.0f} us{' (more)' * (beyond > one)}" for one in most)
        yield (
            f"| {density:.1%} | {coding:,.0f} us | {describing:,.0f} us | {adding:,.0f} us | {merging:,.0f} us | "
            f"{passing:,.0f} us | {beyond:,.0f} us | {cells} |"
        )
    yield ""
    yield f"Measured on {machine()}, {datetime.now(UTC).date()}, load {os.getloadavg()[0]:.1f}."


if __name__ == "__main__":
    print_tables(table(), BEGIN, END, publish=arguments(__doc__).parse_args().publish, page=PAGE)

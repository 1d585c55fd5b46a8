"""Processor time of what a sparse sum does beside its frames: `python -m checks.lab.coding_time [--publish]`.

A rank codes the places of its rows, and describes them in the first step.  Then it decodes the parts of the others, and
adds them to its own.  Any way adds values: the same pass over places of 32 bits, which need no decoding, is taken off.
What SparCML's hosts need to merge the same pairs stands beside it.  What remains should be at most a tenth of the time
of the links, or 50 us.  The times are those of one thread, which other work on the machine makes longer, too: the load
is printed.

Each run has other places, for a processor learns the branches of what it has seen before.  A call checks its places
before it describes and codes them, so they have just been read here, too.  Adding is compared with the pass that comes
right behind it, since other work on the machine makes both longer.

`--publish` writes the table into docs/results/sparse-ways.md.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from checks.bench.records import machine
from checks.lab.block_bytes import arguments, print_tables
from checks.lab.sparse_ways import DENSITIES, LANES, PAGE, VALUES, chosen, costs, facts_of, seconds
from switchsum_host.api import bitmap, places
from switchsum_host.api.bitmap import WORD_BITS, Indices, Words
from switchsum_lab.sweeps.sparse_hosts import Stream
from switchsum_protocol.frame import LANE_BYTES
from switchsum_switch.kernels.decorators import kernel
from switchsum_switch.kernels.plain import wrapping

BEGIN, END = "<!-- coding: python -m checks.lab.coding_time --publish -->", "<!-- end of coding -->"
PARTS: Final = 4
RUNS: Final = 31
RATES_BPS: Final = {"10 Gbit/s": 1e10, "1 Gbit/s": 1e9, "100 Mbit/s": 1e8}
SHARE: Final = 0.1
LEAST_US: Final = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """What is coded and added in a run."""

    own: Indices
    parts: Sequence[places.Part]
    pairs: Sequence[Stream]
    joined: Stream
    """All pairs side by side."""


def microseconds(works: Sequence[Callable[[Drawn], object]], all_drawn: Sequence[Drawn]) -> npt.NDArray[np.float64]:
    """Return the thread's microseconds in each work, a row for each run, after one that compiles."""
    took = []
    for one in [all_drawn[0], *all_drawn]:
        bitmap.examine(one.own)
        row = []
        for work in works:
            began = time.thread_time_ns()
            work(one)
            row.append(time.thread_time_ns() - began)
        took.append(row)
    return np.array(took[1:]) / 1e3


def drawn(count: int, seed: int) -> Drawn:
    """Draw so many places of each rank, and values."""
    draw = np.random.default_rng([seed, count])
    rows = [np.sort(draw.choice(VALUES, count, replace=False)) for _ in range(PARTS)]
    values = [draw.standard_normal(count).astype(np.float32) for _ in range(PARTS)]
    parts = [places.Part(places.code(one, VALUES), own, count) for one, own in zip(rows, values, strict=True)]
    parts[0] = parts[0]._replace(indices=rows[0])
    pairs = [Stream(one.astype(np.uint32), own) for one, own in zip(rows, values, strict=True)]
    joined = Stream(np.concatenate([o.indices for o in pairs]), np.concatenate(values))
    return Drawn(own=rows[0], parts=parts, pairs=pairs, joined=joined)


def _describe(one: Drawn, known: tuple[Words, Words, Words]) -> None:
    places.describe(one.own, *known, places.stretch_of(VALUES, 8 * LANE_BYTES * LANES))


def merged(pairs: Sequence[Stream]) -> Stream:
    """Return the sum of four streams, as SparCML's hosts make it."""
    return (pairs[0] + pairs[1]) + (pairs[2] + pairs[3])


def passed(joined: Stream) -> int:
    """Add streams in the pass of `places.add`, but without decoding; return how many rows there are."""
    room = len(joined.indices) + places.AT_ONCE
    totals, seen = np.zeros(places.TILE), np.zeros(places.TILE // WORD_BITS, np.uint64)
    starts = len(joined.indices) // PARTS * np.arange(PARTS + 1)
    indices, sums = np.empty(room, np.int64), np.empty((room, 1), np.float32)
    return int(_pass(joined.indices, joined.values, starts, totals, seen, indices, sums))


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
    """Add parts tile by tile, and write rows and sums as `places.add` does."""
    done, found = starts[:-1].copy(), 0
    for first in range(0, VALUES, totals.size):
        end = first + totals.size
        for part in range(done.size):
            at = done[part]
            while at < starts[part + 1] and indices[at] < end:
                place = np.uint64(indices[at]) - np.uint64(first)
                totals[place] += np.float64(values[at])
                seen[place >> np.uint64(6)] |= np.uint64(1) << (place & np.uint64(63))
                at += 1
            done[part] = at
        found = places.write_sums(seen, totals, 1.0, first, found, rows, sums)
    return found


def table() -> Iterator[str]:
    """Yield the table, a row for each density, and what it was measured on."""
    allowed = " | ".join(f"allowed at {name}" for name in RATES_BPS)
    yield (
        "| density | coding own places | digest and sketch | decoding three parts, and adding four | SparCML's merge | "
        f"adding places of 32 bits | beyond that | {allowed} |"
    )
    yield f"|{'---|' * (7 + len(RATES_BPS))}"
    for density in DENSITIES:
        count = round(VALUES * density)
        all_drawn = [drawn(count, seed) for seed in range(RUNS)]
        known = (
            np.zeros(1, np.uint64),
            np.zeros(places.SKETCH_WORDS, np.uint64),
            np.zeros(places.STRETCH_WORDS, np.uint64),
        )
        describing = np.median(microseconds([partial(_describe, known=known)], all_drawn))
        coding = np.median(microseconds([lambda one: places.code(one.own, VALUES)], all_drawn))
        merging = np.median(microseconds([lambda one: merged(one.pairs)], all_drawn))
        both = microseconds(
            [lambda one: places.add(one.parts, VALUES, 1, 1.0), lambda one: passed(one.joined)], all_drawn
        )
        adding, passing = np.median(both, axis=0)
        beyond = float(coding + describing + np.median(both[:, 0] - both[:, 1]))
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

"""Bytes and round trips of the ways of a sparse sum, by arithmetic: `python -m checks.lab.sparse_ways [--publish]`.

The cells are those of lab/docs/papers-sparse.md.  What a way brings down is what `switchsum_host.api.ways` reckons with
when it chooses, in frames of 256 lanes.  A time is that of these frames, of a frame that goes up in each step, and of 2
us for each round trip.  It leaves headers without lanes out.

`--publish` writes the tables into docs/results/sparse-ways.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from checks.lab.block_bytes import arguments, print_tables
from switchsum_host.api import bitmap, expected, places, ragged, scaled, supports, ways
from switchsum_host.api.collectives import Way
from switchsum_host.api.expected import Expected, Key
from switchsum_host.api.ways import Cost, Facts
from switchsum_lab.sweeps import replay
from switchsum_lab.sweeps.axes import Cell
from switchsum_lab.sweeps.peers import TCP_HEADERS_BYTES
from switchsum_protocol.frame import FRAME_BYTES, LANE_BYTES

Places = npt.NDArray[np.int64]

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "results" / "sparse-ways.md"
BEGIN, END = "<!-- ways: python -m checks.lab.sparse_ways --publish -->", "<!-- end of ways -->"
LANES: Final = 256
VALUES: Final = 1_000_000
DENSITIES: Final = (0.001, 0.01, 0.1)
WORKERS: Final = (2, 4, 16)
RATE_BPS: Final = 10e9
RECORDING: Final = "lab/papers/recordings/logistic"
RECORDED_WORKERS: Final = (4, 8, 16)
RECORDED_RATE_BPS: Final = 100e6
OVERLAPPING: Final = {"words": "words", "images": "images", "gpt": "small GPT"}
"""Recordings of trainings whose ranks have many of their largest values at the same places."""
OVERLAPPING_WORKERS: Final = (4, 16)
DELAY_S: Final = 1e-6
_FRAME_BITS: Final = 8 * LANES * LANE_BYTES
_FRAME_ON_WIRE_BITS: Final = 8 * (FRAME_BYTES + LANES * LANE_BYTES)
_TCP_PAYLOAD_BYTES: Final = 1514 - TCP_HEADERS_BYTES
_PAIR_BYTES: Final = 8
_VALUE_BYTES: Final = 4
_ONE_STEP_BITS: Final = 1 << 19
"""Up to so many rows the bitmap of the ways before went in one step."""
FIRST: Final = Cost(way=Way.SAME, frames=1, trips=1, steps=1)
"""The first step: counts and a sketch."""
EARLY: Final = "(b) with the first step of the first call"
AGAIN: Final = "(b) with the first step of later calls"
_FACTS_WORDS: Final = 2
_FIRST_WORDS: Final = _FACTS_WORDS + 2 + places.SKETCH_WORDS + places.STRETCH_WORDS
"""Words of the first step beside the counts."""
NAMES: Final = (
    "(a) bitmaps, as before",
    "(a) bitmaps, after a first step",
    "(b) pairs",
    EARLY,
    AGAIN,
    "(c) coded places",
    "(d) last union",
    "(e) same places",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Values that are to be added."""

    name: str
    facts: Facts
    rate_bps: float
    kept: float
    """Share of the union's places that the last step's union had, too."""


def cases() -> Iterator[Case]:
    """Yield the cells of the page of papers."""
    for density, workers, overlap in product(DENSITIES, WORKERS, ("random", "all")):
        own = round(VALUES * density)
        union = own if overlap == "all" else round(VALUES * (1 - (1 - density) ** workers))
        facts = facts_of(VALUES, [own] * workers, union, is_same=overlap == "all")
        name = f"{density:.1%}, {workers} workers, {'the same places' if overlap == 'all' else 'at random'}"
        yield Case(name=name, facts=facts, rate_bps=RATE_BPS, kept=1.0 if overlap == "all" else union / VALUES)
    last, now = (np.unique(np.concatenate(recorded(RECORDED_WORKERS[0], step))) for step in (0, 1))
    kept = len(np.intersect1d(now, last)) / len(now)  # of few workers: more of them replay each other's steps
    for workers in RECORDED_WORKERS:
        places = recorded(workers, 0)
        rows = replay.calls(Cell(recording=RECORDING, collective="topk"))[0].values
        facts = facts_of(rows, [len(one) for one in places], len(np.unique(np.concatenate(places))), is_same=False)
        yield Case(name=f"logistic regression, {workers} workers", facts=facts, rate_bps=RECORDED_RATE_BPS, kept=kept)


def overlapping() -> Iterator[Case]:
    """Yield the first bucket of the recorded trainings, 1 % of whose values each worker has."""
    for (name, title), workers in product(OVERLAPPING.items(), OVERLAPPING_WORKERS):
        recording = f"lab/papers/recordings/{name}"
        last, now = (recorded(workers, step, recording) for step in (0, 1))
        before, union = (np.unique(np.concatenate(places)) for places in (last, now))
        rows = replay.calls(Cell(recording=recording, collective="topk"))[0].values
        facts = facts_of(rows, [len(one) for one in now], len(union), is_same=False)
        share = len(union) / len(now[0])
        kept = len(np.intersect1d(before, union)) / len(union)
        yield Case(name=f"{title}, {workers} workers, union {share:.1f} k", facts=facts, rate_bps=RATE_BPS, kept=kept)


def recorded(workers: int, step: int, recording: str = RECORDING) -> list[Places]:
    """Return the places of each worker in a step of a recording."""
    draw = replay.drawing(Cell(recording=recording, collective="topk", workers=workers, step=step), 0, 0)
    return [np.flatnonzero(draw(rank)) for rank in range(workers)]


def facts_of(rows: int, counts: Sequence[int], union: int, *, is_same: bool) -> Facts:
    """Return facts about single values of float32."""
    free = scaled.frames_behind(_FIRST_WORDS + supports.count_words(rows, len(counts)), LANES)
    return Facts(
        rows=rows,
        counts=counts,
        union=union,
        is_same=is_same,
        has_exponents=is_same and max(counts) <= free * LANES,
        pair_bits=32,
        sum_bits=32,
        frame_bits=_FRAME_BITS,
    )


def costs(facts: Facts, kept: float) -> dict[str, Cost]:
    """Return what each way takes, the first step included."""
    found = {(one.way, one.levels): one for one in ways.costs(replace(facts, is_same=True))}
    bitmaps = min((one for one in found.values() if one.way is Way.BITMAPS), key=lambda one: one.bits(facts.frame_bits))
    made = {
        NAMES[0]: _before(facts),
        NAMES[1]: _both(FIRST, bitmaps),
        NAMES[2]: _both(FIRST, found[Way.PAIRS, 0]),
        NAMES[5]: _both(FIRST, found[Way.PLACES, 0]),
        NAMES[6]: _guess(facts, kept),
    }
    first = expected.first_pairs(facts.rows, len(facts.counts))
    for name, known in ((EARLY, first), (AGAIN, _later(facts))):
        if (early := _early(facts, known.octets)) is not None:
            made[name] = early
    if facts.is_same:
        made[NAMES[7]] = _both(FIRST, found[Way.SAME, 0])
    return made


def _later(facts: Facts) -> Expected:
    """Return what goes along with the first step of a second call."""
    known: dict[Key, Expected] = {}
    key = ("", facts.rows, "")
    expected.note(known, key, facts)
    return known[key]


def chosen(facts: Facts, found: dict[str, Cost]) -> tuple[Cost, str]:
    """Return what a second call takes, and its name."""
    later = _later(facts)
    if AGAIN in found:
        return found[AGAIN], "pairs, with the first step"
    if later.has_words:
        beside = bitmap.WORD_BITS * (_FACTS_WORDS + supports.count_words(facts.rows, len(facts.counts)))
        step = Cost(
            way=Way.BITMAPS, frames=_frames(facts.rows + beside), trips=1, steps=1
        )  # neither sketch nor digest then
        rest = ways.choose(replace(facts, is_known=True))
        return _both(step, rest), f"{rest.way.name.lower()}, with the first step"
    best = ways.choose(facts)
    return _both(FIRST, best), best.way.name.lower()


def _early(facts: Facts, most: int) -> Cost | None:
    """Return what pairs take of which up to `most` bytes go along with the first step; None: they are too many."""
    parts = [ways.part_octets(count, facts.rows, facts.pair_bits) for count in facts.counts]
    if max(parts) > most:
        return None
    frame = facts.frame_bits // 8
    made = ragged.layout([most] * len(parts), frame)
    whole = [-(-min(part, inside) // frame) for part, inside in zip(parts, made.inside, strict=True)]
    has_end = [part > inside for part, inside in zip(parts, made.inside, strict=True)]
    ends = -(-(made.size - len(parts) * made.region) // frame) if any(has_end) else 0
    return Cost(way=Way.PAIRS, frames=FIRST.frames + sum(whole) - min(whole) + ends, trips=1, steps=1)


def _before(facts: Facts) -> Cost:
    """Return what bitmaps took when the first of their steps was the first step."""
    one, _, three = ways.bitmap_bits(facts.rows, facts.union)
    bits, levels = (one, 1) if facts.rows <= _ONE_STEP_BITS else (three, 3)
    return Cost(
        way=Way.BITMAPS,
        frames=_frames(bits) + _frames(facts.union * facts.sum_bits),
        trips=levels + ways.SUM_TRIPS,
        steps=levels + 1,
    )


def _guess(facts: Facts, kept: float) -> Cost:
    """Return what sums on the last step's union take, while the first step tells who has other places: those follow."""
    sums = Cost(way=Way.BITMAPS, frames=1 + _frames(facts.union * facts.sum_bits), trips=ways.SUM_TRIPS, steps=1)
    rest = [round(count * (1 - kept)) for count in facts.counts]
    if not any(rest):
        return sums
    found = {one.way: one for one in ways.costs(replace(facts, counts=rest, union=sum(rest)))}
    return _both(sums, found[Way.PAIRS])


def _both(one: Cost, other: Cost) -> Cost:
    return replace(
        other, frames=one.frames + other.frames, trips=one.trips + other.trips, steps=one.steps + other.steps
    )


def _frames(bits: int) -> int:
    return -(-bits // _FRAME_BITS)


def seconds(cost: Cost, rate_bps: float) -> float:
    """Return how long a way takes."""
    return (cost.frames + cost.steps) * _FRAME_ON_WIRE_BITS / rate_bps + 2 * DELAY_S * cost.trips


def split(facts: Facts, rate_bps: float) -> tuple[float, float]:
    """Return the bytes that SparCML's split and allgather brings down to a rank, and how long it takes."""
    ranks, own = len(facts.counts), sum(facts.counts) / len(facts.counts)
    part = min(_PAIR_BYTES * facts.union, _VALUE_BYTES * facts.rows) / ranks
    total = 0.0
    for octets in (_PAIR_BYTES * own / ranks, part):
        packets = max(1, -(-octets // _TCP_PAYLOAD_BYTES))
        total += (ranks - 1) * (octets + TCP_HEADERS_BYTES * packets)
    return total, 8 * total / rate_bps + 4 * DELAY_S


def tables() -> Iterator[str]:
    """Return the lines for the page."""
    yield f"| kB down, round trips, ms | {' | '.join(NAMES)} | SparCML's split | first call | chosen in later calls |"
    yield f"|{'---|' * (4 + len(NAMES))}"
    for case in chain(cases(), overlapping()):
        found = costs(case.facts, case.kept)
        best = min(seconds(one, case.rate_bps) for one in found.values())
        row = [_shown(found.get(name), case.rate_bps, best) for name in NAMES]
        octets, rival_s = split(case.facts, case.rate_bps)
        before_s = seconds(found[NAMES[0]], case.rate_bps)
        first = found.get(EARLY) or _both(FIRST, ways.choose(case.facts))
        taken, name = chosen(case.facts, found)
        one, later = (_judged(seconds(cost, case.rate_bps), before_s, rival_s) for cost in (first, taken))
        split_cell = f"{octets / 1e3:.1f}, 2, {rival_s * 1e3:.3f}"
        yield f"| {case.name} | {' | '.join(row)} | {split_cell} | {one} | {name}: {later} |"


def _judged(took_s: float, before_s: float, rival_s: float) -> str:
    """Return a time in ms, and whether it is longer than that of bitmaps as before, or of SparCML's split."""
    slower = ["slower than before"] * (took_s > before_s) + ["behind the split"] * (took_s > rival_s)
    return ", ".join([f"{took_s * 1e3:.3f}", *slower])


def _shown(cost: Cost | None, rate_bps: float, best: float) -> str:
    if cost is None:
        return ""
    took = seconds(cost, rate_bps)
    time = f"{took * 1e3:.3f}"
    down = cost.frames * _FRAME_ON_WIRE_BITS / 8e3
    return f"{down:.1f}, {cost.trips}, {f'**{time}**' if took == best else time}"


if __name__ == "__main__":
    print_tables(tables(), BEGIN, END, publish=arguments(__doc__).parse_args().publish, page=PAGE)

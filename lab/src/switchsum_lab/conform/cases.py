"""All cases in order: those of the table, those that need a sequence of their own, and frames that are refused."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from switchsum_protocol.frame import NO_BLOCK, Flag, LaneFormat, Operator, selection

from .case import ENTERED, Case, case
from .play import FAR, Play
from .refusals import marked
from .table import reveal, table

FORMATS: Final = {each: each.dtype for each in LaneFormat}


def all_cases() -> list[Case]:
    """Return all cases, those on fresh cells first."""
    cases = [*ENTERED, *table(), *_lanes()]
    return sorted(cases, key=lambda case: not case.is_fresh)


@case("row 4", "cells that were never used: the first numbers of the job", is_fresh=True)
def _unused(play: Play) -> None:
    first = play.facts.first_number - play.base
    play.round(first, next_block=7, next_exponent=9)
    play.round(first + 1, without=play.ranks, next_block=8)
    play.contribute(0, play.lanes(), first)


@case("row 4", "cells that were never used: numbers that would be older than 0", is_fresh=True)
def _unused_and_older(play: Play) -> None:
    far = 0x8000_0002 - play.base if play.facts.fresh and play.facts.first_number == 0 else 2
    play.round(far, next_block=7, next_exponent=9)
    play.round(far + 1, without=play.ranks)
    play.contribute(0, play.lanes(), far)


@case("row 5", "rounds without lanes after rounds with flags, in both cells")
def _nothing_is_left(play: Play) -> None:
    most = b"\x7f\xff\xff\xff" * play.facts.lanes
    for step in range(2):
        for rank in play.ranks:
            wrong = {"digest": 1} if rank == 0 else {}
            flags = Flag.PAYLOAD | Flag.MARK
            play.contribute(rank, most, step, flags=flags, next_block=1, next_exponent=99, **wrong)
    for step in range(2, 4):
        play.round(step, without=play.ranks, next_block=5)
        play.contribute(0, None, step)


@case("row 6", "ten rounds one after another, contributions in another order each time", version=1)
def _rounds(play: Play) -> None:
    for step in range(10):
        for rank in play.random.permutation(len(play.ranks)).tolist():
            play.contribute(rank, play.lanes(), step, block=step, next_block=step + 1)


@case("row 7", "blocks that are zero at some ranks, at one, and at all")
def _skipped(play: Play) -> None:
    ranks = set(play.ranks)
    for step, rank in enumerate(play.ranks):
        play.round(2 * step, without=[rank])
        play.round(2 * step + 1, without=sorted(ranks - {rank}))
    play.round(2 * len(ranks), without=play.ranks)
    reveal(play, 2 * len(ranks))


@case("row 8", "lanes that overflow upwards, downwards and by the way", version=1)
def _overflow(play: Play) -> None:
    for step, lane_format in enumerate(LaneFormat):
        kind = FORMATS[lane_format]
        limits = np.iinfo(kind)
        count = play.payload_bytes // np.dtype(kind).itemsize
        for rank in play.ranks:
            values = np.zeros(count, kind)
            if rank < 2:
                values[0], values[-1] = limits.max - rank, limits.min
            elif rank == 2:
                values[0] = limits.min  # brings the exact sum back into the lane; the flag stays
            play.contribute(rank, values.tobytes(), step, format=lane_format)
        play.contribute(0, None, step)


@case("row 9", "each part of the tag, and the flag for everybody")
def _tags(play: Play) -> None:
    parts: list[dict[str, int]] = [
        {"digest": 1},
        {"block": 8},
        {"exponent": 3},
        {"operator": Operator.OR},
        {"format": LaneFormat.INT8},
    ]
    for step, other in enumerate(parts):
        play.contribute(0, play.lanes(), step, next_block=20)
        for rank in play.ranks[1:]:
            wrong = other if rank == 1 else {}
            play.contribute(rank, play.lanes(), step, next_block=10 if rank == 1 else 20, **wrong)
        play.contribute(1, play.lanes(), step)


@case("row 10", "a contribution is lost: the others repeat theirs three times each", version=1)
def _lost_contribution(play: Play) -> None:
    payloads = [play.lanes() for _ in play.ranks]
    for rank in play.ranks[:-1]:
        play.contribute(rank, payloads[rank])
    for _, rank in itertools.product(range(3), play.ranks[:-1]):
        play.contribute(rank, payloads[rank], flags=Flag.PAYLOAD | Flag.REPEAT)
        play.contribute(rank, None, flags=Flag.REPEAT)
    play.contribute(play.ranks[-1], payloads[-1], flags=Flag.PAYLOAD | Flag.REPEAT)


@case("row 11", "a result is lost: one member repeats, while the others are a round ahead")
def _lost_result(play: Play) -> None:
    payloads = play.round()
    for rank in play.ranks[1:]:
        play.contribute(rank, play.lanes(), 1)
    for flags in (Flag.PAYLOAD | Flag.REPEAT, Flag.PAYLOAD | Flag.REPEAT | Flag.RECALL):
        play.contribute(0, payloads[0], flags=flags)
        play.contribute(0, None, flags=flags & ~Flag.PAYLOAD)
    play.contribute(0, play.lanes(), 1)
    play.contribute(0, payloads[0])


@case("row 12", "whoever comes last, each member gets the result once", version=1)
def _last(play: Play) -> None:
    for step, last in enumerate(play.ranks):
        for rank in [*(one for one in play.ranks if one != last), last]:
            play.contribute(rank, play.lanes(), step)


@case("cells", "both cells of a slot are open, and take contributions in turns")
def _both_cells(play: Play) -> None:
    for rank, step in itertools.product(play.ranks, range(2)):
        play.contribute(rank, play.lanes(), step, block=step, next_block=step + 4)
    for step in range(2):
        play.contribute(0, None, step, block=step)


@case("cells", "two slots are open, and take contributions in turns")
def _two_slots(play: Play) -> None:
    other = play.facts.first_slot if play.slot != play.facts.first_slot else play.slot + 1
    base = play.bench.base(other, play.base & 1)
    for rank in play.ranks:
        play.contribute(rank, play.lanes())
        play.contribute(rank, play.lanes(), slot=other, number=base)
    play.contribute(0, None)
    play.contribute(0, None, slot=other, number=base)


@case("numbers", "numbers go once round, in steps as large as they can be, and at the edge of old and new")
def _numbers(play: Play) -> None:
    step = 0
    for _ in range(3):
        for parity in range(2):
            play.round(step + parity)
            play.contribute(0, play.lanes(), step + parity + 0x8000_0000)  # older by the largest difference
            play.contribute(0, play.lanes(), step + parity - 2)
        step += FAR
    for parity in range(2):
        play.round(step + parity)


@case("numbers", "numbers pass 2^32", version=1)
def _wrap(play: Play) -> None:
    edge = -play.base - 4 & 0xFFFF_FFFE  # so many rounds to four before zero, and three leaps of which none is too far
    for start in (edge // 3 & ~1, 2 * (edge // 3) & ~1, edge):
        for parity in range(2):
            play.round(start + parity)
    for step in range(edge + 2, edge + 12):
        play.round(step)


@case("next", "the smallest next block wins, and the largest exponent of those that name it")
def _next(play: Play) -> None:
    rounds = [
        [(9, 100), (5, 7), (5, 12)],
        [(5, 12), (5, 7), (9, 100)],
        [(NO_BLOCK, 200), (NO_BLOCK, 3), (NO_BLOCK, 1)],
        [(0, 1), (NO_BLOCK, 255), (1, 255)],
        [(0x8000_0000, 4), (0x7FFF_FFFF, 0), (0xFFFF_FFFE, 9)],
    ]
    for step, named in enumerate(rounds):
        for rank in play.ranks:
            block, exponent = named[min(rank, 2)]
            lanes = play.lanes() if rank == 0 else None
            play.contribute(rank, lanes, step, next_block=block, next_exponent=exponent, exponent=33)
        play.contribute(0, None, step)


@case("widened", "narrow payloads, whole ones, and both in one round", version=1)
def _widened(play: Play) -> None:
    narrow = play.payload_bytes // 2
    for step, some in enumerate((set(play.ranks), {0}, set(play.ranks) - {0}, set())):
        for rank in play.ranks:
            payload = play.random.bytes(narrow) if rank in some else play.lanes(-100, 100)
            play.contribute(rank, payload, step, format=LaneFormat.WIDENED)
        play.contribute(0, None, step, format=LaneFormat.WIDENED)


@case("widened", "payloads of 4 bits a lane, whole ones, and both in one round")
def _nibbles(play: Play) -> None:
    narrow = play.payload_bytes // 2
    for step, some in enumerate((set(play.ranks), {0}, set(play.ranks) - {0}, set())):
        for rank in play.ranks:
            payload = play.random.bytes(narrow if rank in some else play.payload_bytes)
            play.contribute(rank, payload, step, format=LaneFormat.NIBBLES)
        play.contribute(0, None, step, format=LaneFormat.NIBBLES)


@case("mark", "flag 8 of one contribution, of a first, a middle and a last one, and of one with another tag")
def _mark(play: Play) -> None:
    for step, of in enumerate(play.ranks):
        for rank in play.ranks:
            play.contribute(rank, play.lanes(), step, flags=Flag.PAYLOAD | (Flag.MARK if rank == of else 0))
    last = len(play.ranks)
    for rank in play.ranks:
        other = {"flags": Flag.MARK, "digest": 1} if rank == 1 else {}
        play.contribute(rank, None, last, **other)


@case("mark", "IPv4's mark of a router on the way", is_raw=True)
def _router_mark(play: Play) -> None:
    for rank in play.ranks:
        frame = play.contribution(rank, play.lanes())
        play.send([(rank, marked(frame) if rank == 1 else frame)])


@case("select", "one rank alone gets the lanes, or all others do; repeats and HELD as well", version=1)
def _select(play: Play) -> None:
    flags, step = Flag.PAYLOAD | Flag.SELECT, 0
    for rank, but in itertools.product((0, play.ranks[-1]), (False, True)):
        bitmap = selection(rank, len(play.ranks), but=but)
        for each in play.ranks:
            play.contribute(each, play.lanes(), step, flags=flags, bitmap=bitmap)
            if each == 0:
                play.contribute(each, play.lanes(), step, flags=flags | Flag.REPEAT, bitmap=bitmap)
        for each in play.ranks:
            play.contribute(each, play.lanes(), step, flags=flags | Flag.REPEAT, bitmap=bitmap)
        step += 1
    play.round(step)
    play.round(step + 1)


@case("flags", "overflow, mismatch, repeat, final and recall of a worker")
def _flags(play: Play) -> None:
    for step, flag in enumerate((Flag.OVERFLOW, Flag.MISMATCH, Flag.REPEAT, Flag.FINAL, Flag.RECALL)):
        for rank in play.ranks:
            play.contribute(rank, play.lanes(), step, flags=Flag.PAYLOAD | flag)
        play.contribute(0, play.lanes(), step, flags=Flag.PAYLOAD | flag)


@case("order", "contributions to eight rounds of several slots come at once, in any order", version=1)
def _order(play: Play) -> None:
    facts = play.facts
    slots = range(facts.first_slot, facts.first_slot + min(facts.slot_count - 2, 8))
    for _ in range(2):
        frames = []
        for slot in slots:
            base = play.bench.base(slot, 0)
            frames += [
                (rank, play.contribution(rank, play.lanes(), slot=slot, number=base + step & 0xFFFF_FFFF, block=step))
                for rank in play.ranks
                for step in range(2)
            ]
        play.send([frames[place] for place in play.random.permutation(len(frames))])


@dataclass(frozen=True, slots=True)
class _Combined:
    """Rounds of one operator and one lane format."""

    operator: Operator
    lane_format: LaneFormat

    def __call__(self, play: Play) -> None:
        """Play one round with any lanes, and one with the edges of their range."""
        kind = FORMATS[self.lane_format]
        limits = np.iinfo(kind)
        fields = {"operator": self.operator, "format": self.lane_format}
        for rank in play.ranks:
            play.contribute(rank, play.random.bytes(play.payload_bytes), **fields)
        edges = np.array([limits.min, limits.max, 0, -1, 1], kind)
        count = play.payload_bytes // edges.itemsize
        for rank in play.ranks:
            play.contribute(rank, np.resize(np.roll(edges, rank), count).tobytes(), 1, **fields)
        play.contribute(0, None, 1, **fields)


def _lanes() -> Iterator[Case]:
    for count, (operator, lane_format) in enumerate(itertools.product(Operator, LaneFormat)):
        title = f"{operator.name.lower()} of {lane_format.name.lower()} lanes, any numbers and the edges of their range"
        yield Case(rule="lanes", title=title, act=_Combined(operator, lane_format), version=count % 2)

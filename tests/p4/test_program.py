"""Slots and rounds of contributions in the P4 program, on every engine that can run it."""

from __future__ import annotations

import itertools
from functools import reduce

import numpy as np
import pytest

from switchsum.testing.rig import CPU_PORT, FIRST_SLOT, SLOT_COUNT, SWITCH, Rig, cookie, sums, worker
from switchsum_protocol import wire
from switchsum_protocol.frame import NO_BLOCK, Flag, Header, Kind, LaneFormat, Operator, Reason, selection
from switchsum_protocol.slot_rules import COMBINATIONS

from .rounds import RNG, SLOTS, Lanes, Sums, run_rest, run_round, some_lanes


def test_a_round_gives_everybody_the_sum(rig: Rig) -> None:
    for number in range(1, 6):
        run_round(rig, number, slot=FIRST_SLOT + number % SLOT_COUNT)
    assert rig.events(Reason.COMPLETED) == 5
    assert rig.events(Reason.CONTRIBUTED) == 5 * rig.workers


def test_slots_and_versions_do_not_touch_each_other(rig: Rig) -> None:
    blocks = {key: some_lanes(rig) for key in itertools.product(range(3), (8, 9), range(rig.workers))}
    keys = list(blocks)
    RNG.shuffle(keys)
    answers = {}
    for slot, number, rank in keys:
        got = rig.contribute(rank, number, blocks[slot, number, rank], slot=FIRST_SLOT + slot)
        if got:
            answers[slot, number] = got
    for slot, number in itertools.product(range(3), (8, 9)):
        total = sum(blocks[slot, number, rank].astype(np.int64) for rank in range(rig.workers))
        for [packet] in answers[slot, number].values():
            np.testing.assert_array_equal(sums(packet), total)


def test_the_smallest_next_block_wins_with_its_largest_exponent(rig: Rig) -> None:
    named = [(9, 100), (5, 7), (5, 12), (NO_BLOCK, 200)][: rig.workers]
    for rank, (block, exponent) in enumerate(named):
        answers = rig.contribute(rank, 1, next_block=block, next_exponent=exponent, block=4, exponent=33, digest=0xABC)
    header = answers[1][0].header
    assert (header.next_block, header.next_exponent) == (5, 12)
    assert (header.block, header.exponent, header.digest) == (4, 33, 0xABC)
    assert header.bitmap == (1 << rig.workers) - 1


@pytest.mark.parametrize("contributors", [(), (0,), (3,), (1, 2), (0, 3)])
def test_skipped_blocks_cost_no_payload(rig: Rig, contributors: tuple[int, ...]) -> None:
    run_round(rig, 1)  # what an earlier round left must not show
    blocks = {rank: some_lanes(rig) for rank in contributors}
    for rank in range(rig.workers):
        answers = rig.contribute(rank, 3, blocks.get(rank))
    for [packet] in answers.values():
        if contributors:
            assert packet.header.flags == Flag.PAYLOAD
            np.testing.assert_array_equal(sums(packet), sum(block.astype(np.int64) for block in blocks.values()))
        else:
            assert packet.header.flags == 0
            assert packet.payload == b""


@pytest.mark.parametrize("but", [False, True])
def test_lanes_of_a_selection_go_to_those_workers_alone(rig: Rig, but: bool) -> None:
    wanting = {rank for rank in range(rig.workers) if (rank == 1) != but}
    bitmap = selection(1, rig.workers, but=but)
    blocks = [some_lanes(rig) for _ in range(rig.workers)]
    total = np.sum(blocks, axis=0, dtype=np.int64)

    def check(packet: wire.Packet) -> None:
        header = packet.header
        assert (header.kind, header.flags & ~Flag.PAYLOAD, header.bitmap) == (Kind.RESULT, Flag.SELECT, bitmap)
        assert bool(header.flags & Flag.PAYLOAD) == (header.rank in wanting)
        np.testing.assert_array_equal(sums(packet), total if header.rank in wanting else [])

    flags = Flag.PAYLOAD | Flag.SELECT
    for rank, block in enumerate(blocks):
        answers = rig.contribute(rank, 1, block, flags=flags, bitmap=bitmap)
    assert sorted(answers) == [rank + 1 for rank in range(rig.workers)]
    for [packet] in answers.values():
        check(packet)
    for rank, block in enumerate(blocks):
        [again] = rig.contribute(rank, 1, block, flags=flags | Flag.REPEAT, bitmap=bitmap)[rank + 1]
        check(again)
    run_round(rig, 2)
    run_round(rig, 3)  # nothing is left of the selection in this version


def test_a_selection_has_no_say_in_who_is_held(rig: Rig) -> None:
    fields = {"flags": Flag.PAYLOAD | Flag.SELECT, "bitmap": selection(0, rig.workers, but=False)}
    rig.contribute(2, 1, some_lanes(rig), **fields)
    [held] = rig.contribute(2, 1, some_lanes(rig), **fields)[3]
    assert (held.header.kind, held.header.bitmap) == (Kind.HELD, 0b0100)


def test_a_repeat_in_an_open_round_is_held(rig: Rig) -> None:
    block = some_lanes(rig)
    assert rig.contribute(2, 1, block) == {}
    [held] = rig.contribute(2, 1, block)[3]
    assert held.header.kind == Kind.HELD
    assert held.header.bitmap == 0b0100
    assert held.payload == b""
    assert held.destination == worker(2)
    assert held.header.cookie == cookie(2)
    assert rig.events(Reason.HELD) == 1
    assert run_rest(rig, 1, {2: block}) is not None


def test_a_repeat_in_a_complete_round_gets_the_stored_result_alone(rig: Rig) -> None:
    total = run_round(rig, 1, next_block=77)
    for lanes in (some_lanes(rig), None):  # a repeat may leave its payload out
        answers = rig.contribute(1, 1, lanes, flags=Flag.PAYLOAD | Flag.REPEAT if lanes is not None else Flag.REPEAT)
        assert list(answers) == [2]
        [packet] = answers[2]
        assert packet.header.kind == Kind.RESULT
        assert packet.header.next_block == 77
        assert packet.destination == worker(1)
        assert packet.header.cookie == cookie(1)
        np.testing.assert_array_equal(sums(packet), total)
    assert rig.events(Reason.REPEATED) == 2
    run_round(rig, 2)
    run_round(rig, 3)


def test_an_older_number_is_stale(rig: Rig) -> None:
    run_round(rig, 5)
    assert rig.contribute(0, 3, some_lanes(rig)) == {}
    assert rig.events(Reason.STALE) == 1
    run_round(rig, 7)


@pytest.mark.parametrize("first", [0xFFFF_FFFD, 0x7FFF_FFFD, 0])
def test_numbers_wrap(rig: Rig, first: int) -> None:
    for step in range(6):
        run_round(rig, (first + step) & 0xFFFF_FFFF)
    assert rig.events(Reason.STALE) == 0


def test_a_new_incarnation_may_skip_numbers(rig: Rig) -> None:
    rig.contribute(0, 4, some_lanes(rig))  # a round that nobody finished
    run_round(rig, 1000)
    run_round(rig, 1001)


@pytest.mark.parametrize("field", ["block", "digest", "exponent", "format", "operator"])
def test_what_does_not_belong_together_is_a_mismatch(rig: Rig, field: str) -> None:
    block = some_lanes(rig)
    for rank in range(rig.workers):
        wrong = {field: 3} if rank == 1 else {}  # a block, a digest, an exponent, INT8, MIN
        answers = rig.contribute(rank, 1, block, **wrong)
    for [packet] in answers.values():
        assert packet.header.flags & Flag.MISMATCH
        np.testing.assert_array_equal(sums(packet), (rig.workers - 1) * block.astype(np.int64))
    assert rig.events(Reason.MISMATCH) == 1
    total = run_round(rig, 3)
    assert total is not None


def test_lanes_that_were_not_combined_do_not_come_back(rig: Rig) -> None:
    for rank in range(rig.workers - 1):
        rig.contribute(rank, 1, digest=1)
    last = rig.workers - 1
    answers = rig.contribute(last, 1, some_lanes(rig), digest=2)
    assert sorted(answers) == [rank + 1 for rank in range(rig.workers)]
    answers[last + 1] += rig.contribute(last, 1, some_lanes(rig), digest=2)[last + 1]
    for packet in [packet for packets in answers.values() for packet in packets]:
        assert packet.header.flags == Flag.MISMATCH
        assert packet.payload == b""


FORMATS = [(lane_format, lane_format.dtype) for lane_format in LaneFormat]
BUT_SUMS = [operator for operator in Operator if operator is not Operator.SUM]


@pytest.mark.parametrize(("lane_format", "kind"), FORMATS, ids=str)
def test_lanes_of_every_format_have_every_operator_but_the_sum(rig: Rig, lane_format: LaneFormat, kind: str) -> None:
    limits = np.iinfo(kind)
    for number, operator in enumerate(BUT_SUMS, 1):
        values = np.frombuffer(RNG.bytes(rig.workers * rig.lanes_per_frame * 4), kind).reshape(rig.workers, -1).copy()
        values[:, :4] = limits.min, limits.max, 0, -1
        values[0, :4] = limits.max, limits.min, -1, 0
        values[:, 4:8] = values[0, 4:8]
        for rank in range(rig.workers):
            payload = np.frombuffer(values[rank].tobytes(), ">i4").astype(np.int32)
            answers = rig.contribute(rank, number, payload, operator=operator, format=lane_format)
        for [packet] in answers.values():
            assert packet.header.flags == Flag.PAYLOAD
            assert (packet.header.operator, packet.header.format) == (operator, lane_format)
            np.testing.assert_array_equal(np.frombuffer(packet.payload, kind), reduce(COMBINATIONS[operator], values))
    assert rig.events(Reason.OVERFLOW) == 0


@pytest.mark.parametrize(
    ("lane_format", "kind", "bits"), [(lane_format, kind, lane_format.bits) for lane_format, kind in FORMATS]
)
def test_lanes_of_every_format_add_and_overflow_apart(rig: Rig, lane_format: LaneFormat, kind: str, bits: int) -> None:
    def lanes(values: Sums) -> Lanes:
        return np.frombuffer(values.astype(kind).tobytes(), dtype=">i4").astype(np.int32)

    count = rig.lanes_per_frame * 32 // bits
    half = 1 << (bits - 1)
    exact = object if bits == 64 else np.int64
    calm = RNG.integers(-(half // rig.workers), half // rig.workers, (rig.workers, count))
    for rank in range(rig.workers):
        answers = rig.contribute(rank, 1, lanes(calm[rank]), format=lane_format)
    header, payload = answers[1][0].header, answers[1][0].payload
    assert header.flags == Flag.PAYLOAD
    np.testing.assert_array_equal(np.frombuffer(payload, dtype=kind), calm.sum(axis=0))

    wild = np.zeros((rig.workers, count), dtype=np.int64)
    wild[:2, count // 3] = half - 1  # one lane overflows upwards, its neighbours must not notice
    wild[:2, count - 1] = -half
    wild[0, 0], wild[1, 0] = half - 1, -half
    for rank in range(rig.workers):
        answers = rig.contribute(rank, 3, lanes(wild[rank]), format=lane_format)
    header, payload = answers[1][0].header, answers[1][0].payload
    assert header.flags == Flag.PAYLOAD | Flag.OVERFLOW
    expected = (wild.astype(exact).sum(axis=0) + half) % (2 * half) - half
    np.testing.assert_array_equal(np.frombuffer(payload, dtype=kind), expected)
    assert rig.events(Reason.OVERFLOW) == 1


def test_a_congestion_mark_sticks(rig: Rig) -> None:
    for rank in range(rig.workers):
        answers = rig.contribute(rank, 1, flags=Flag.MARK if rank == 0 else 0)
    assert all(packet.header.flags == Flag.MARK for [packet] in answers.values())


def test_the_controller_queries_and_sets_slots(rig: Rig) -> None:
    slot = FIRST_SLOT + 3
    assert rig.query(slot, 0).bitmap == 0
    rig.contribute(1, 6, some_lanes(rig), slot=slot, next_block=8)
    state = rig.query(slot, 0)
    assert (state.number, state.bitmap, state.next_block, state.flags) == (6, 0b10, 8, 0)
    assert rig.query(slot, 1).bitmap == 0
    everybody = (1 << rig.workers) - 1
    state = rig.query(slot, 0, Kind.SET, number=100, bitmap=everybody)
    assert (state.number, state.bitmap) == (100, everybody)
    assert rig.contribute(1, 8, some_lanes(rig), slot=slot) == {}
    assert rig.events(Reason.STALE) == 1


@pytest.mark.parametrize("kind", [Kind.QUERY, Kind.SET])
def test_slots_that_are_not_there_are_no_ones(rig: Rig, kind: Kind) -> None:
    frame = wire.build_frame(SWITCH, SWITCH, Header(kind=kind, slot=SLOTS, number=7, bitmap=1))
    assert rig.engine.process(CPU_PORT, bytes(2) + frame) == []
    assert rig.events(Reason.SLOT) == 1
    assert rig.query(0, 1).bitmap == 0

"""What the P4 program does with frames, on every engine that can run it."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from switchsum.protocol import wire
from switchsum.protocol.frame import (
    AGGREGATION_PORT,
    FRAME_BYTES,
    LOWER_BYTES,
    NO_BLOCK,
    WIRE_VERSION,
    Flag,
    Header,
    Kind,
    LaneFormat,
    Operator,
    Reason,
    selection,
)
from switchsum.testing.encapsulations import TAG, encapsulations
from switchsum.testing.rig import (
    CPU_PORT,
    EPOCH,
    FIRST_SLOT,
    FLOOD_GROUP,
    FORWARDING,
    JOB,
    SLOT_COUNT,
    SWITCH,
    TREE,
    Rig,
    cookie,
    sums,
    worker,
)

SLOTS = 1024
"""Of the switch, see p4src/config.p4."""
RNG = np.random.default_rng(5)

Lanes = npt.NDArray[np.int32]
Sums = npt.NDArray[np.int64]


def some_lanes(rig: Rig, bits: int = 28) -> Lanes:
    return RNG.integers(-(1 << bits), 1 << bits, rig.lanes_per_frame, dtype=np.int32)


def run_round(rig: Rig, number: int, **fields: int) -> Sums:
    """Let every rank contribute, check the results, and return their sum."""
    blocks = [some_lanes(rig) for _ in range(rig.workers)]
    for rank in range(rig.workers - 1):
        assert rig.contribute(rank, number, blocks[rank], **fields) == {}
    answers = rig.contribute(rig.workers - 1, number, blocks[-1], **fields)
    total: Sums = np.sum(blocks, axis=0, dtype=np.int64)
    assert sorted(answers) == [rank + 1 for rank in range(rig.workers)]
    for port, [packet] in answers.items():
        assert packet.header.kind == Kind.RESULT
        assert packet.header.rank == port - 1
        assert packet.header.cookie == cookie(port - 1)
        assert (packet.source, packet.destination) == (SWITCH, worker(port - 1))
        assert packet.header.number == number
        np.testing.assert_array_equal(sums(packet), total)
    return total


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


def run_rest(rig: Rig, number: int, given: dict[int, Lanes]) -> Sums:
    """Complete a round in which some have contributed; return its sum."""
    blocks = dict(given)
    for rank in range(rig.workers):
        if rank not in blocks:
            blocks[rank] = some_lanes(rig)
            answers = rig.contribute(rank, number, blocks[rank])
    total: Sums = np.sum(list(blocks.values()), axis=0, dtype=np.int64)
    for [packet] in answers.values():
        np.testing.assert_array_equal(sums(packet), total)
    return total


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


FORMATS = [(LaneFormat.INT64, ">i8"), (LaneFormat.INT32, ">i4"), (LaneFormat.INT16, ">i2"), (LaneFormat.INT8, "i1")]
COMBINATIONS: dict[Operator, Callable[..., npt.NDArray[np.int64]]] = {
    operator: getattr(np, operator.function).reduce for operator in Operator if operator is not Operator.SUM
}


@pytest.mark.parametrize(("lane_format", "kind"), FORMATS, ids=str)
def test_lanes_of_every_format_have_a_maximum_a_minimum_and_a_union(
    rig: Rig, lane_format: LaneFormat, kind: str
) -> None:
    limits = np.iinfo(kind)
    for number, (operator, combine) in enumerate(COMBINATIONS.items(), 1):
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
            np.testing.assert_array_equal(np.frombuffer(packet.payload, kind), combine(values, axis=0))
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


REFUSALS = {
    "another job": ({"job": JOB + 1}, Reason.NOT_ADMITTED),
    "another epoch": ({"epoch": EPOCH + 1}, Reason.NOT_ADMITTED),
    "an unknown rank": ({"rank": 40}, Reason.NOT_ADMITTED),
    "another's rank": ({"rank": 1}, Reason.NOT_ADMITTED),
    "another tree": ({"tree": 1}, Reason.NOT_ADMITTED),
    "a slot too far": ({"slot": FIRST_SLOT + SLOT_COUNT}, Reason.SLOT),
    "a slot too near": ({"slot": FIRST_SLOT - 1}, Reason.SLOT),
    "another job's slot": ({"slot": 0}, Reason.SLOT),
    "no slot of the switch": ({"slot": 0x8000_0000 | FIRST_SLOT}, Reason.SLOT),
    "no slot, and an unknown operator": ({"slot": 0, "operator": 0}, Reason.OPERATOR),
    "no slot, and an unknown format": ({"slot": 0, "format": 0}, Reason.FORMAT),
    "no slot, and not admitted": ({"slot": 0, "job": JOB + 1}, Reason.NOT_ADMITTED),
    "an unknown operator": ({"operator": 9}, Reason.OPERATOR),
    "an unknown format": ({"format": 9}, Reason.FORMAT),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refused_contribution_is_rejected_with_its_reason(rig: Rig, name: str) -> None:
    fields, reason = REFUSALS[name]
    [reject] = rig.contribute(0, 1, some_lanes(rig), **fields)[1]
    assert (reject.header.kind, reject.header.reason) == (Kind.REJECT, reason)
    assert reject.payload == b""
    assert reject.destination == worker(0)
    assert reject.header.cookie == cookie(0)
    assert rig.events(reason) == 1
    run_round(rig, 1)


WRONG_COOKIES = [0, cookie(1), *(cookie(0) ^ 1 << bit for bit in (0, 7, 31, 32, 63))]


def test_a_contribution_with_another_cookie_is_dropped_without_an_answer(rig: Rig) -> None:
    for tries, wrong in enumerate(WRONG_COOKIES, 1):
        assert rig.contribute(0, 1, some_lanes(rig), cookie=wrong) == {}
        assert rig.events(Reason.COOKIE) == tries
    assert rig.query(FIRST_SLOT, 1).bitmap == 0
    block = some_lanes(rig)
    assert rig.contribute(0, 1, block) == {}
    # Nor does who tries it learn whether the member has contributed, or what would be refused besides.
    for fields in ({}, {"slot": 0}, {"operator": 9}, {"format": 9}):
        assert rig.contribute(0, 1, block, cookie=cookie(1), **fields) == {}
    assert rig.events(Reason.COOKIE) == len(WRONG_COOKIES) + 4
    run_rest(rig, 1, {0: block})
    assert rig.contribute(0, 1, block, cookie=cookie(1)) == {}


def test_each_members_frames_are_counted_by_what_became_of_them(rig: Rig) -> None:
    block = some_lanes(rig)
    for fields in ({}, {}, {"cookie": 0}, {"slot": 0}, {"job": JOB + 1}):  # the last is no member's
        rig.contribute(1, 1, block, **fields)
    run_rest(rig, 1, {1: block})
    rig.contribute(1, 1, block)
    by_reason = {reason: rig.member_events(1, reason) for reason in Reason}
    expected = (Reason.HELD, Reason.COOKIE, Reason.SLOT, Reason.REPEATED)
    assert {reason: count for reason, count in by_reason.items() if count} == dict.fromkeys(expected, 1)
    assert not any(rig.member_events(0, reason) for reason in Reason)
    for rank in range(rig.workers):
        place = (JOB, TREE, rank, EPOCH, worker(rank).ip, worker(rank).port, rank + 1)
        assert rig.engine.frames("SwitchIngress.validate.admission.admission", place) == (
            5 if rank == 1 else 1
        )  # 4, and 1 CONTRIBUTED
        assert rig.engine.frames("SwitchEgress.result_address", (JOB, rank)) == 1


def test_the_controllers_frames_need_no_cookie(rig: Rig) -> None:
    assert rig.query(FIRST_SLOT, 0).cookie == 0


def cut(rig: Rig) -> bytes:
    return rig.contribution(0, 1, some_lanes(rig))[:-1]


def too_long(rig: Rig) -> bytes:
    return rig.contribution(0, 1, some_lanes(rig)) + b"\0"


def other_version(rig: Rig) -> bytes:
    return rig.contribution(0, 1, some_lanes(rig), version=WIRE_VERSION + 1)


def a_result(rig: Rig) -> bytes:
    return rig.contribution(0, 1, some_lanes(rig), kind=Kind.RESULT)


def a_query_from_a_worker(rig: Rig) -> bytes:
    return rig.contribution(0, 1, kind=Kind.QUERY)


def payload_without_flag(rig: Rig) -> bytes:
    return rig.contribution(0, 1, some_lanes(rig), flags=0)


def flag_without_payload(rig: Rig) -> bytes:
    return rig.contribution(0, 1, flags=Flag.PAYLOAD)


def header_cut_short(rig: Rig) -> bytes:
    return rig.contribution(0, 1)[: LOWER_BYTES + 20]


def wrong_udp_checksum(rig: Rig) -> bytes:
    frame = wire.build_frame(
        worker(0), SWITCH, Header(kind=Kind.CONTRIBUTION, job=JOB, epoch=EPOCH, number=1), rig.padding, checksum=True
    )
    return frame[:-1] + bytes([frame[-1] ^ 1]) if rig.padding else frame[: FRAME_BYTES - 1] + b"\x55"


def wrong_ip_checksum(rig: Rig) -> bytes:
    frame = rig.contribution(0, 1, some_lanes(rig))
    return frame[:24] + bytes([frame[24] ^ 0x10]) + frame[25:]


BROKEN: dict[Callable[[Rig], bytes], Reason] = {
    cut: Reason.TRUNCATED,
    too_long: Reason.LENGTH,
    other_version: Reason.VERSION,
    a_result: Reason.KIND,
    a_query_from_a_worker: Reason.KIND,
    payload_without_flag: Reason.LENGTH,
    flag_without_payload: Reason.LENGTH,
    header_cut_short: Reason.TRUNCATED,
    wrong_udp_checksum: Reason.CHECKSUM,
    wrong_ip_checksum: Reason.CHECKSUM,
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda function: function.__name__)
def test_a_broken_frame_is_dropped_and_counted(rig: Rig, broken: Callable[[Rig], bytes]) -> None:
    assert rig.send(0, broken(rig)) == {}
    assert rig.events(BROKEN[broken]) == 1
    run_round(rig, 1)


def test_a_right_udp_checksum_passes(rig: Rig) -> None:
    for number, rank in itertools.product(range(1, 30), range(rig.workers)):
        lanes = some_lanes(rig)
        values = {"job": JOB, "epoch": EPOCH, "rank": rank, "slot": FIRST_SLOT, "number": number, "digest": number}
        values["cookie"] = cookie(rank)
        header = Header(kind=Kind.CONTRIBUTION, flags=Flag.PAYLOAD, **values)
        rig.send(rank, wire.build_frame(worker(rank), SWITCH, header, lanes.astype(">i4").tobytes(), checksum=True))
    assert rig.events(Reason.CHECKSUM) == 0
    assert rig.events(Reason.COMPLETED) == 29


def test_a_sender_at_another_address_or_port_is_not_admitted(rig: Rig) -> None:
    frame = rig.contribution(0, 1, some_lanes(rig))
    assert rig.send(1, frame)[2][0].header.kind == Kind.REJECT  # from rank 1's port
    header = Header(kind=Kind.CONTRIBUTION, job=JOB, epoch=EPOCH, number=1)
    stranger = wire.Address(mac=worker(0).mac, ip=worker(0).ip, port=worker(0).port + 1)
    [reject] = rig.send(0, wire.build_frame(stranger, SWITCH, header, rig.padding))[1]
    assert reject.header.reason == Reason.NOT_ADMITTED
    assert rig.query(FIRST_SLOT, 1).bitmap == 0


def test_a_hello_reaches_the_controller_with_its_port(rig: Rig) -> None:
    hello = wire.build_frame(worker(1), SWITCH, Header(kind=Kind.HELLO, number=0x1234, digest=0x5678), rig.padding)
    [(port, frame)] = rig.engine.process(2, hello)
    assert port == CPU_PORT
    assert int.from_bytes(frame[:2]) >> 7 == 2
    assert frame[2:] == hello


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


def test_the_controller_may_send_only_its_own_kinds_to_the_switch(rig: Rig) -> None:
    frame = wire.build_frame(SWITCH, SWITCH, Header(kind=Kind.CONTRIBUTION))
    assert rig.engine.process(CPU_PORT, bytes(2) + frame) == []
    assert rig.events(Reason.KIND) == 1


def test_a_packet_out_leaves_by_its_port(rig: Rig) -> None:
    frame = bytes(range(60))
    assert rig.engine.process(CPU_PORT, (3 << 7).to_bytes(2) + frame) == [(3, frame)]


def test_growth_is_limited_by_padding(limited_rig: Rig) -> None:
    rig = limited_rig
    run_round(rig, 1)
    if rig.padding:
        rig.padding, padding = b"", rig.padding
        [reject] = rig.contribute(0, 2)[1]
        assert reject.header.reason == Reason.PADDING
        rig.padding = padding
    for rank in range(rig.workers):
        answers = rig.contribute(rank, 2, some_lanes(rig) if rank == 0 else None)
    assert all(len(packet.payload) == 4 * rig.lanes_per_frame for [packet] in answers.values())


def ethernet(destination: int, source: int, ethertype: int, body: bytes) -> bytes:
    return destination.to_bytes(6) + source.to_bytes(6) + ethertype.to_bytes(2) + body


BROADCAST = (1 << 48) - 1


def test_ordinary_traffic_follows_its_entries_or_floods(rig: Rig) -> None:
    stations = f"{FORWARDING}.stations"
    frame = ethernet(worker(1).mac, worker(0).mac, 0x88B5, b"hello" * 12)
    assert rig.engine.process(1, frame) == []
    assert rig.events(Reason.UNKNOWN_DESTINATION) == 1
    rig.engine.insert(stations, (worker(1).mac,), f"{FORWARDING}.forward", (2,))
    assert rig.engine.process(1, frame) == [(2, frame)]
    rig.engine.set_default(stations, f"{FORWARDING}.flood", (FLOOD_GROUP,))
    frame = ethernet(BROADCAST, worker(0).mac, 0x88B5, b"hello" * 12)
    flooded = rig.engine.process(1, frame)
    assert sorted(flooded) == [(rank + 1, frame) for rank in range(1, rig.workers)]


def test_transit_frames_of_ours_pass_untouched(rig: Rig) -> None:
    rig.engine.insert(
        f"{FORWARDING}.stations",
        (worker(1).mac,),
        f"{FORWARDING}.forward",
        (2,),
    )
    header = Header(kind=Kind.CONTRIBUTION, job=1, flags=0)
    for payload in (b"", rig.padding, b"odd"):
        other = wire.Address(mac=worker(1).mac, ip=wire.parse_ip("10.9.9.9"), port=AGGREGATION_PORT)
        frame = wire.build_frame(worker(0), other, header, payload, checksum=True)
        assert rig.engine.process(1, frame) == [(2, frame)]


def test_nobody_else_may_bear_the_switchs_address(rig: Rig) -> None:
    rig.engine.set_default(f"{FORWARDING}.stations", f"{FORWARDING}.flood", (FLOOD_GROUP,))
    forged = wire.build_frame(SWITCH, worker(1), Header(kind=Kind.RESULT))
    assert rig.engine.process(1, forged) == []
    own_mac = ethernet(worker(1).mac, SWITCH.mac, 0x88B5, bytes(50))
    assert rig.engine.process(1, own_mac) == []
    assert rig.events(Reason.SPOOFED) == 2


STRANGER = wire.Address(mac=0x02_00_00_00_09_09, ip=wire.parse_ip("10.0.0.99"), port=AGGREGATION_PORT)


def result_from(source: wire.Address) -> bytes:
    header = Header(kind=Kind.RESULT, job=JOB, epoch=EPOCH, flags=Flag.PAYLOAD, cookie=cookie(0))
    return wire.build_frame(source, worker(0), header, bytes(512))


FORGED = {name: (frame, why) for name, frame, why in encapsulations(result_from(SWITCH), STRANGER, worker(0))}
ORDINARY = {name: frame for name, frame, _ in encapsulations(result_from(STRANGER), STRANGER, worker(0))}


def test_nobody_bears_the_switchs_ip_whatever_is_around_it(rig: Rig) -> None:
    rig.engine.insert(f"{FORWARDING}.stations", (worker(0).mac,), f"{FORWARDING}.forward", (1,))
    counted = dict.fromkeys((Reason.SPOOFED, Reason.SPOOFED_INSIDE, Reason.OPAQUE), 0)
    for name, (frame, reason) in FORGED.items():
        counted[reason] += 1
        assert rig.engine.process(3, frame) == [], name
        assert rig.events(reason) == counted[reason], name
    for name, frame in ORDINARY.items():
        hidden = FORGED[name][1] is Reason.OPAQUE
        assert rig.engine.process(3, frame) == ([] if hidden else [(1, frame)]), name
    assert rig.events(Reason.OPAQUE) == 2 * counted[Reason.OPAQUE]
    assert rig.events(Reason.TRUNCATED) == 0


def test_nobody_bears_the_switchs_mac_whatever_is_around_it(rig: Rig) -> None:
    rig.engine.set_default(f"{FORWARDING}.stations", f"{FORWARDING}.flood", (FLOOD_GROUP,))
    for name, frame in ORDINARY.items():
        forged = frame[:6] + SWITCH.mac.to_bytes(6) + frame[12:]
        assert rig.engine.process(3, forged) == [], name
    in_gre = ORDINARY["a frame in GRE"]
    at = in_gre.rindex(STRANGER.mac.to_bytes(6))
    assert rig.engine.process(3, in_gre[:at] + SWITCH.mac.to_bytes(6) + in_gre[at + 6 :]) == []


def test_nobody_says_in_arp_that_the_switchs_ip_is_his(rig: Rig) -> None:
    rig.engine.insert(f"{FORWARDING}.stations", (worker(0).mac,), f"{FORWARDING}.forward", (1,))
    reply = bytes.fromhex("0001080006040002") + STRANGER.mac.to_bytes(6)
    target = worker(0).mac.to_bytes(6) + worker(0).ip.to_bytes(4)
    for reason, tags in ((Reason.SPOOFED, b""), (Reason.SPOOFED_INSIDE, TAG), (Reason.SPOOFED_INSIDE, 2 * TAG)):
        before = rig.events(reason)
        macs = worker(0).mac.to_bytes(6) + STRANGER.mac.to_bytes(6)
        for sender in (SWITCH.ip, STRANGER.ip):
            frame = macs + tags + b"\x08\x06" + reply + sender.to_bytes(4) + target
            assert rig.engine.process(4, frame) == ([] if sender == SWITCH.ip else [(1, frame)])
        assert rig.events(reason) == before + 1


def test_what_has_a_tag_is_ordinary_traffic_though_it_is_addressed_to_the_switch(rig: Rig) -> None:
    frame = rig.contribution(0, 1, some_lanes(rig))
    for tags in (TAG, 2 * TAG):
        assert rig.engine.process(1, frame[:12] + tags + frame[12:]) == []
    ask = bytes.fromhex("0001080006040001") + worker(0).mac.to_bytes(6) + worker(0).ip.to_bytes(4) + bytes(6)
    macs = bytes.fromhex("ffffffffffff") + worker(0).mac.to_bytes(6)
    assert rig.engine.process(1, macs + TAG + b"\x08\x06" + ask + SWITCH.ip.to_bytes(4)) == []
    assert rig.query(FIRST_SLOT, 1).bitmap == 0
    assert rig.events(Reason.UNKNOWN_DESTINATION) == 3
    run_round(rig, 1)


def test_the_switch_answers_arp_and_ping(rig: Rig) -> None:
    from scapy.layers.inet import ICMP, IP
    from scapy.layers.l2 import ARP, Ether

    me, it = wire.format_mac(worker(0).mac), wire.format_mac(SWITCH.mac)
    my_ip, its_ip = wire.format_ip(worker(0).ip), wire.format_ip(SWITCH.ip)
    request = Ether(src=me, dst="ff:ff:ff:ff:ff:ff") / ARP(op=1, hwsrc=me, psrc=my_ip, pdst=its_ip)
    [(port, frame)] = rig.engine.process(1, bytes(request))
    reply = Ether(frame)
    assert port == 1
    assert (reply[ARP].op, reply[ARP].hwsrc, reply[ARP].psrc, reply[ARP].hwdst, reply.dst) == (2, it, its_ip, me, me)

    for sequence in range(64):  # every kind of carry in the checksum
        ping = Ether(src=me, dst=it) / IP(src=my_ip, dst=its_ip) / ICMP(id=0xF7F0, seq=sequence * 1021) / b"data"
        [(port, frame)] = rig.engine.process(1, bytes(ping))
        pong = Ether(frame)
        assert (pong[ICMP].type, pong[IP].src, pong[IP].dst, pong.dst) == (0, its_ip, my_ip, me)
        assert bytes(pong[ICMP].payload)[:4] == b"data"
        assert wire.internet_checksum(bytes(pong[ICMP])[:12]) == 0


@pytest.mark.parametrize(("direction", "reason"), [("Ingress", Reason.LOST_INGRESS), ("Egress", Reason.LOST_EGRESS)])
def test_the_drop_simulator_loses_its_share(rig: Rig, direction: str, reason: Reason) -> None:
    share = 0.25
    rig.engine.insert(
        f"Switch{direction}.{direction.lower()}_loss.probability",
        (1,),
        f"Switch{direction}.{direction.lower()}_loss.lose",
        (int(share * 2**32),),
    )
    ask = bytes.fromhex("ffffffffffff") + worker(0).mac.to_bytes(6) + bytes.fromhex("0806000108000604000102")
    ask += bytes(5) + worker(0).ip.to_bytes(4) + bytes(6) + SWITCH.ip.to_bytes(4)
    tries = 120
    answered = sum(len(rig.engine.process(1, ask)) for _ in range(tries))
    assert rig.events(reason) == tries - answered
    assert abs(answered / tries - (1 - share)) < 0.16
    assert rig.engine.process(2, ask.replace(worker(0).ip.to_bytes(4), worker(1).ip.to_bytes(4))) != []

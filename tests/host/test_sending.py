"""What a worker contributes: which block, under which header, with which lanes; frame by frame, without a network."""

from __future__ import annotations

import numpy as np
import pytest

from switchsum.testing.cluster import Cluster, ClusterConfig
from switchsum_host.engine.operation import Operation
from switchsum_host.engine.state import Count, Phase
from switchsum_protocol.frame import ALL_BUT, LANE_BYTES, NO_BLOCK, PADDING_LESS_BYTES, Flag, Kind, payload_bytes
from switchsum_switch.wires.rows import LEAD_BYTES

from .alone import UNTOUCHED, Alone, one_slot, read

PER_BLOCK, ROOT, WORKERS = 8, 1, 4


@pytest.mark.parametrize("gathers", [False, True])
@pytest.mark.parametrize(("part", "parts"), [(15, 2), (16, 2), (17, 2), (8, 3), (20, 3)])
def test_blocks_of_parts_take_turns_and_say_whose_they_are(part: int, parts: int, gathers: bool) -> None:
    job = Alone(ClusterConfig(workers=WORKERS, window_slots=16, lanes_per_frame=PER_BLOCK // LANE_BYTES))
    values = np.arange(1, part * parts + 1, dtype=np.int8)
    job.submit(values, part=part, root=ROOT, gathers=gathers)
    blocks = -(-len(values) // PER_BLOCK)
    turns = [each * (blocks // parts) + turn for turn in range(blocks // parts) for each in range(parts)]
    order = [*turns, *range(len(turns), blocks)]
    packets = [read(frame) for frame in job.frames()]
    assert [packet.header.block for packet in packets] == list(range(blocks))
    for packet, place in zip(packets, order, strict=True):
        inside = range(place * PER_BLOCK, min((place + 1) * PER_BLOCK, len(values)))
        assert packet.payload == values[inside.start : inside.stop].tobytes().ljust(PER_BLOCK, b"\0")
        having = {index // part for index in inside}
        owner = having.pop() + ROOT if len(having) == 1 else None
        assert bool(packet.header.flags & Flag.SELECT) == (owner is not None)
        expected = 0 if owner is None else (ALL_BUT if gathers else 0) | WORKERS << 16 | owner
        assert packet.header.bitmap == expected


def test_what_lies_behind_the_parts_of_all_ranks_is_for_all() -> None:
    job = Alone(ClusterConfig(workers=2, window_slots=16, lanes_per_frame=PER_BLOCK // LANE_BYTES))
    job.submit(np.ones(5 * PER_BLOCK - 2, np.int8), part=PER_BLOCK, gathers=True)
    headers = [read(frame).header for frame in job.frames()]
    assert [bool(header.flags & Flag.SELECT) for header in headers] == [True, True, False, False, False]
    assert [header.bitmap for header in headers[2:]] == [0, 0, 0]


@pytest.mark.parametrize("gathers", [False, True])
def test_a_worker_takes_the_parts_that_are_for_it(gathers: bool) -> None:
    cluster = Cluster(ClusterConfig(workers=2, window_slots=2, lanes_per_frame=2))
    arrays = [np.zeros(32, np.int8) if gathers else np.full(32, rank + 1, np.int8) for rank in range(2)]
    serials = []
    for rank, (worker, array) in enumerate(zip(cluster.workers, arrays, strict=True)):
        if gathers:
            array[16 * rank : 16 * (rank + 1)] = rank + 1
        operation = Operation.of(array, part=16, gathers=gathers)
        serials.append(worker.engine.submit(operation, array, cluster.clock.now_s))
    cluster.run(lambda: all(serial in one.finished for serial, one in zip(serials, cluster.workers, strict=True)))
    for rank, array in enumerate(arrays):
        if gathers:
            assert array.tolist() == [1] * 16 + [2] * 16
        else:
            assert array[16 * rank : 16 * (rank + 1)].tolist() == [3] * 16
            assert array[16 * (1 - rank) :][:16].tolist() == [rank + 1] * 16  # the other one's sums are not sent


def test_zeros_travel_where_they_change_something() -> None:
    values = np.array([1] * 8 + [0] * 8 + [1] * 8, np.int32)
    cases = [("max", np.int32, [1, 2, NO_BLOCK]), ("sum", np.int32, [2, NO_BLOCK]), ("max", np.uint32, [2, NO_BLOCK])]
    for operator, dtype, nexts in cases:
        packets = one_slot().add(values.astype(dtype), operator=operator)
        assert [packet.header.next_block for packet in packets] == nexts


def test_the_exponent_is_that_of_the_round() -> None:
    job = one_slot()
    floats = np.array([1.5] * 8 + [6.0] * 8, np.float32)  # 2**0 and 2**2, biased 127 and 129
    for _ in range(2):
        packets = job.add(floats.copy())
        headers = [(one.header.block, one.header.exponent, one.header.next_exponent) for one in packets]
        assert headers == [(NO_BLOCK, 0, 127), (0, 127, 129), (1, 129, 0)]
        [packet] = job.add(np.ones(8, np.int32))
        assert (packet.header.exponent, packet.header.next_exponent) == (0, 0)
    packets = job.add(np.full(8, 0x8000_0001, np.uint32))
    assert [packet.header.exponent for packet in packets] == [1, 2], "which part of the integers it is"


def test_a_block_that_nobody_named_may_be_empty() -> None:
    job = one_slot()
    job.add(np.ones(16, np.int32))
    [packet] = job.add(np.zeros(8, np.int32))
    assert not packet.header.flags & Flag.PAYLOAD


def test_the_first_block_of_integers_goes_along_if_there_is_one() -> None:
    [packet] = one_slot().add(np.ones(8, np.int8))
    assert packet.header.block == 0
    assert packet.header.flags & Flag.PAYLOAD
    [packet] = one_slot().add(np.zeros(0, np.int8))
    assert packet.header.block == NO_BLOCK
    assert not packet.header.flags


def test_nothing_stays_in_a_row_of_what_it_held_before() -> None:
    job = one_slot(lanes_per_frame=136, growth_bytes=PADDING_LESS_BYTES)
    selected = job.add(np.ones(136, np.int32), part=136)
    assert [packet.header.bitmap for packet in selected] == [1 << 16]
    for _ in range(2):  # both rows
        [packet] = job.add(np.ones(136, np.int32))
        assert (packet.header.bitmap, packet.header.flags) == (0, Flag.PAYLOAD)
    for _ in range(2):
        [packet] = job.add(np.zeros(136, np.int32))
        assert packet.payload == bytes(payload_bytes(136) - PADDING_LESS_BYTES)


def test_few_floats_are_packed_whole() -> None:
    values = np.array([1e30, -1.0, 1e-30], np.float32)
    [packet] = one_slot(lanes_per_frame=36).add(values, exact=True)
    assert any(packet.payload)
    assert values.tolist() == np.array([1e30, -1.0, 1e-30], np.float32).tolist()


@pytest.mark.parametrize("lanes", ["int32", "int16", "int8"])
def test_lanes_stay_in_their_row(lanes: str) -> None:
    job = one_slot()
    job.add(np.ones(40, np.float32), lanes=lanes)
    outside = np.delete(job.store, range(LEAD_BYTES, LEAD_BYTES + job.frame_bytes), axis=1)
    assert (outside == UNTOUCHED).all()
    assert not job.store[2 * job.config.window_slots :, LEAD_BYTES : LEAD_BYTES + job.frame_bytes].any()


def test_slots_name_their_tree() -> None:
    job = Alone(ClusterConfig(workers=1, window_slots=4), trees=(1, 3))
    job.submit(np.ones(32, np.int32))
    assert [read(frame).header.tree for frame in job.frames()] == [0, 1, 1, 1]


def test_a_contribution_waits_for_its_row() -> None:
    job = one_slot()
    job.submit(np.ones(24, np.int32))
    for _ in range(2):  # nobody lets go of either row
        [frame] = job.frames(consumed=False)
        [answer] = job.answers(frame)
        job.feed(answer)
    core, slot = job.core, job.slot
    for _ in range(2):
        assert (slot["phase"], core["progress"]["blocked"], job.engine.counts[Count.BLOCKED]) == (Phase.BLOCKED, 1, 1)
        assert job.frames(consumed=False) == []
        job.engine.poll(0.0)
    job.engine.consumed(2)
    job.engine.poll(0.0)
    assert (slot["phase"], core["progress"]["blocked"], job.engine.counts[Count.BLOCKED]) == (Phase.WAITING, 0, 1)
    assert [read(frame).header.block for frame in job.frames()] == [2]


def test_what_is_held_is_so_for_one_round() -> None:
    job = one_slot()
    job.submit(np.ones(16, np.int32))
    [frame] = job.frames()
    slot = job.slot
    job.feed(job.result(frame, kind=Kind.HELD, flags=0))
    assert slot["held"] == 1
    [answer] = job.answers(frame)
    job.feed(answer)
    assert (slot["phase"], slot["held"]) == (Phase.WAITING, 0)


def test_operations_that_are_alike_differ_in_their_digest() -> None:
    first, other = one_slot(), one_slot()
    digests = [[job.add(np.ones(8, np.int32))[0].header.digest for _ in range(3)] for job in (first, other)]
    assert digests[0] == digests[1]
    assert len(set(digests[0])) == 3


def test_columns_of_operations_go_over_all_slots() -> None:
    job = Alone(ClusterConfig(workers=1, window_slots=4, first_slot=5))
    for _ in range(3):  # of three blocks each
        job.submit(np.ones(24, np.int32))
    assert [read(frame).header.slot - 5 for frame in job.frames()] == [0, 1, 2, 3]
    assert np.asarray(job.engine.state.operations)["first_slot"][:3].tolist() == [0, 3, 2]
    job.submit(np.zeros(0, np.int32))  # a column without a block
    assert np.asarray(job.engine.state.operations)["first_slot"][3] == 1

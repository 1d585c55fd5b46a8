"""Packets that wait between ingress and egress: what a place keeps, pools that run short, kernels that keep pools."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from support.ir_programs import Draft, Pair, straight
from switchsum_switch.execution.entry import call_egress, call_program
from switchsum_switch.execution.pipeline import EngineName, Pipeline
from switchsum_switch.kernels.loading import address_of
from switchsum_switch.program import ir
from switchsum_switch.queues.batch import Output
from switchsum_switch.queues.parking import (
    DEQ_DEPTH,
    ENQ_DEPTH,
    ENQUEUED_US,
    FRAME_BYTES,
    FREE,
    HELD,
    PLACES,
    POOL_WORDS,
    PORT,
    BufferPool,
)

from .conftest import PROGRAMS
from .test_programs_queueing import PORT as PROGRAM_PORT
from .test_programs_queueing import REPORT

WIDE_BYTES = 32


@pytest.fixture(params=["interpreter", "native"])
def pipeline(request: pytest.FixtureRequest) -> Pipeline:
    engine: EngineName = request.param
    pipeline = Pipeline.load((PROGRAMS / "queueing.json").read_bytes(), engine=engine)
    pipeline.state.queues.hold(PROGRAM_PORT, True)
    return pipeline


def test_a_packet_is_told_how_it_waited(pipeline: Pipeline) -> None:
    assert pipeline.process(1, bytes(REPORT.size) + b"payload", now_us=1000) == []
    [waiting] = pipeline.parked()
    assert (waiting.port, waiting.queue, waiting.bytes, waiting.enqueued_us) == (3, 0, REPORT.size + 7, 1000)
    waiting.enq_depth, waiting.deq_depth = 5, 2
    [(port, frame)] = pipeline.egress(waiting, now_us=1300)
    assert (port, frame[REPORT.size :]) == (3, b"payload")
    fields = [int.from_bytes(x, "big") if isinstance(x, bytes) else x for x in REPORT.unpack(frame[: REPORT.size])]
    assert fields[1:] == [5, 2, 1000, 300, 1000, 1300]
    assert pipeline.parked() == []


def test_a_port_that_is_no_longer_held_sends_at_once(pipeline: Pipeline) -> None:
    pipeline.process(1, bytes(REPORT.size))
    pipeline.state.queues.hold(PROGRAM_PORT, False)
    assert len(pipeline.process(1, bytes(REPORT.size))) == 1
    [waiting] = pipeline.parked()
    assert len(pipeline.egress(waiting, 9)) == 1


def test_a_batch_goes_on_where_places_ran_short(pipeline: Pipeline) -> None:
    frames, output = 1000, Output()
    memory = np.zeros(REPORT.size, np.uint8)
    addresses = np.full(frames, address_of(memory), np.uint64)
    lengths, ports = np.full(frames, len(memory), np.uint32), np.zeros(frames, np.uint32)
    done = waiting = 0
    while done < frames:
        done += pipeline.process_batch(addresses[done:], lengths[done:], ports[done:], frames - done, output)
        assert output.count == 0
        waiting += len(pipeline.parked())
    assert waiting == frames


def test_long_frames_and_short_ones_wait_together(pipeline: Pipeline) -> None:
    sizes = [0, 9_000, 60_000, 30, 65_500, 1]
    frames = [bytes(REPORT.size) + bytes([number]) * size for number, size in enumerate(sizes)]
    for frame in frames:
        assert pipeline.process(1, frame) == []
    waiting = pipeline.parked()
    assert [packet.bytes for packet in waiting] == [*map(len, frames)]
    for packet, frame in reversed(list(zip(waiting, frames, strict=True))):
        [(_, left)] = pipeline.egress(packet, 0)
        assert left[REPORT.size :] == frame[REPORT.size :]


def test_wide_fields_keep_their_values_while_registers_change() -> None:
    """Egress sends what a register was when the packet left ingress, although the next packet has written it."""
    draft = Draft()
    given, shown = draft.header("given", [8 * WIDE_BYTES]), draft.header("shown", [8 * WIDE_BYTES])
    register, zero = draft.register(1, 8 * WIDE_BYTES), ir.Const(1, 0)
    slot, copy = draft.headers[given].slots[0], draft.headers[shown].slots[0]
    program = draft.program(
        parser=straight([ir.Extract(given)]),
        ingress=straight(
            [
                ir.WriteRegister(register, zero, draft.field(slot)),
                ir.SetValid(shown),
                ir.ReadRegister(copy, register, zero),
                ir.Assign(draft.intrinsics.egress_spec, ir.Const(9, 1)),
            ]
        ),
        deparser=[shown, given],
    )
    pair = Pair(program)
    pair.hold(1)
    frames = [bytes([number]) * WIDE_BYTES for number in range(3)]
    for frame in frames:
        pair.process(0, frame)
    for packets, frame in zip(pair.parked(), frames, strict=True):
        assert pair.egress(packets, (0, 0), 0) == [(1, 2 * frame)]


def test_a_kernel_keeps_a_lot_of_its_own() -> None:
    pipeline = Pipeline.load((PROGRAMS / "queueing.json").read_bytes())
    frame, output, places = np.zeros(REPORT.size, np.uint8), Output(8, 4096), 2
    stride = pipeline.place_bytes(len(frame))
    memory, held = np.zeros(places * stride + 64, np.uint8), np.zeros(512, np.uint8)
    free = address_of(memory) + -address_of(memory) % 64 + stride * np.arange(places)
    pool = np.zeros(POOL_WORDS, np.int64)
    pool[[PLACES, FREE, FRAME_BYTES, HELD]] = address_of(free), places, len(frame), address_of(held)
    held[PROGRAM_PORT] = 1
    columns: list[np.ndarray] = [
        np.array([address_of(frame)] * 3, np.int64),
        np.full(3, len(frame), np.uint32),
        np.ones(3, np.uint32),
    ]
    with pipeline.lock:
        pipeline.park_in(address_of(pool))
        entry = pipeline.entry(output)
        assert entry is not None
        addresses, lengths, ports = (address_of(column) for column in columns)
        assert call_program(entry.arguments, addresses, lengths, ports, 3, 50) == 2  # the third finds no place
        assert (pool[FREE], entry.result[0]) == (0, 0)
        for place in free.tolist():
            words = np.frombuffer(memory, np.int64, 8, place - address_of(memory))
            assert (words[PORT], words[ENQUEUED_US]) == (PROGRAM_PORT, 50)
            words[[ENQ_DEPTH, DEQ_DEPTH]] = 7, 6
        assert call_egress(entry.arguments, address_of(free), 0, 80) == 0
        pool[FREE] = places
        assert call_egress(entry.arguments, address_of(free), 2, 80) == 2
        output.count = int(entry.result[0])
    for port, made in output.frames():
        assert (port, REPORT.unpack(made)[1:5]) == (PROGRAM_PORT, (b"\0\0\7", b"\0\0\6", 50, 30))
    assert output.count == 2


def test_a_lot_makes_larger_places_when_it_needs_them() -> None:
    pool = BufferPool(100, np.zeros(512, np.uint8))
    pool.reserve(3, 500)
    first = pool.free_places
    assert (first >= 3, pool.words[FRAME_BYTES]) == (True, 500)
    pool.words[FREE] -= 2  # as native code does
    small = pool.taken(first)
    assert len({*small}) == 2
    pool.reserve(1, 2000)
    larger = pool.free_places
    pool.give_back(small)
    assert pool.free_places == larger  # places of 500 bytes are not used again
    pool.words[FREE] -= 1
    [place] = pool.taken(larger)
    assert place not in small
    pool.give_back([place])
    assert pool.free_places == larger


def test_a_packet_that_waits_does_not_enter_ingress_more_often() -> None:
    """Each pass of a packet that recirculates for ever is by way of a queue: it ends all the same."""
    draft = Draft()
    given = draft.header("given", [8])
    names, field = draft.intrinsics, draft.field(draft.headers[draft.header("metadata", [8], metadata=True)].slots[0])
    counter = draft.register(1, 8)
    count: list[ir.Statement] = [
        ir.ReadRegister(field.slot, counter, ir.Const(1, 0)),
        ir.WriteRegister(counter, ir.Const(1, 0), ir.Binary(8, ir.Op.ADD, field, ir.Const(8, 1))),
        ir.Assign(names.egress_spec, ir.Const(9, 1)),
    ]
    program = replace(
        draft.program(
            parser=straight([ir.Extract(given)]),
            ingress=straight(count),
            egress=straight([ir.Assign(names.recirculate, ir.Const(draft.fields[names.recirculate].width, 1))]),
            deparser=[given],
            field_lists=((), ()),
        ),
        passes=5,
    )
    pair = Pair(program)
    pair.hold(1)
    pair.process(0, b"x")
    turns = 0
    while waiting := pair.parked():
        turns += 1
        for packets in waiting:
            pair.egress(packets, (0, 0), turns)
    pair.check_state()
    assert (turns, pair.state.registers["register0"].read(0)) == (5, 5)


@pytest.mark.parametrize("name", sorted(path.stem for path in PROGRAMS.glob("*.json")))
def test_every_program_makes_the_same_frames_of_packets_that_waited(name: str) -> None:
    text, draw = (PROGRAMS / f"{name}.json").read_bytes(), random.Random(3)
    at_once, waiting = (Pipeline.load(text) for _ in range(2))
    for port in range(511):
        waiting.state.queues.hold(port, True)
    for pipeline in (at_once, waiting):
        for number in range(1, 6):
            pipeline.multicast.set(number, [(port, port) for port in range(1, 4)])
            pipeline.clones.set(number, [(7, 1)])
    for _ in range(30):
        size = draw.choice((20, 60, 120))
        frame = bytes(draw.choice((*range(9), draw.randrange(256))) for _ in range(size))
        made = waiting.process(1, frame, 77)
        while packets := waiting.parked():
            for packet in packets:
                made += waiting.egress(packet, 77)
        assert sorted(made) == sorted(at_once.process(1, frame, 77))


def test_more_packets_of_one_frame_wait_than_it_has_copies() -> None:
    """One copy of each pass waits, the other enters ingress again: nobody can say beforehand how many there will be."""
    draft = Draft()
    given, names = draft.header("given", [8]), draft.intrinsics
    again = ir.Select(
        draft.fields[names.recirculate].width,
        ir.Compare(ir.Relation.EQ, draft.field(names.egress_port), ir.Const(9, 2)),
        ir.Const(draft.fields[names.recirculate].width, 1),
        ir.Const(draft.fields[names.recirculate].width, 0),
    )
    program = replace(
        draft.program(
            parser=straight([ir.Extract(given)]),
            ingress=straight([ir.Assign(names.mcast_grp, ir.Const(draft.fields[names.mcast_grp].width, 7))]),
            egress=straight([ir.Assign(names.recirculate, again)]),
            deparser=[given],
            field_lists=((), ()),
        ),
        passes=100,
    )
    pair = Pair(program)
    for state in (pair.state, pair.expected_state):
        state.multicast.set(7, [(1, 1), (2, 2)])
    pair.hold(1)
    pair.process(0, b"x")
    assert len(pair.parked()) == program.passes

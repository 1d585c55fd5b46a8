"""A program on several cores does what it does on one."""

from __future__ import annotations

import gc
import threading
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchsum import p4src
from switchsum.protocol.frame import Kind
from switchsum.protocol.p4runtime import Code, v1
from switchsum.protocol.wire import parse_frame
from switchsum.switch.batch import Output
from switchsum.switch.codegen.engine import BatchFunction
from switchsum.switch.codegen.sharded import Sharded
from switchsum.switch.errors import ProgramError
from switchsum.switch.p4runtime import Device, Refused
from switchsum.switch.passes.provenance import Sharding
from switchsum.switch.pipeline import Pipeline
from switchsum.switch.shards import ENTRY, MIN_PART_FRAMES, TURN
from switchsum.testing.embedded import Embedded
from switchsum.testing.rig import FIRST_SLOT, FLOOD_GROUP, FORWARDING, SWITCH, Rig, worker

from .conftest import PROGRAMS
from .traffic import WORKERS, Traffic

LANES = 128


def sharding(shards: int) -> Sharding | None:
    return None if shards == 1 else Sharding(field="agg.slot", shards=shards)


def embedded(shards: int) -> Embedded:
    return Embedded(LANES, "native", sharding=sharding(shards))


def set_up(engine: Embedded) -> Rig:
    stations = f"{FORWARDING}.stations"
    engine.insert(stations, (worker(1).mac,), f"{FORWARDING}.forward", (2,))
    engine.insert(stations, (worker(2).mac,), f"{FORWARDING}.flood", (FLOOD_GROUP,))
    return Rig(engine, workers=WORKERS, lanes=LANES)


def run(pipeline: Pipeline, frames: list[tuple[int, bytes]], output: Output) -> list[tuple[int, bytes]]:
    """Run frames in as few batches as there is room for."""
    memory = [np.frombuffer(frame or b"\0", np.uint8) for _, frame in frames]
    addresses = np.array([frame.ctypes.data for frame in memory], np.uint64)
    lengths = np.array([len(frame) for _, frame in frames], np.uint32)
    ports = np.array([port for port, _ in frames], np.uint32)
    made, first = [], 0
    while first < len(frames):
        columns = addresses[first:], lengths[first:], ports[first:]
        first += pipeline.process_batch(*columns, len(frames) - first, output)
        made += output.frames()
    assert first == len(frames)
    return made


def by_slot(frames: list[tuple[int, bytes]]) -> dict[int, list[tuple[int, bytes]]]:
    """Group the switch's answers to workers by their slot; other traffic has no order between shards."""
    made: dict[int, list[tuple[int, bytes]]] = {}
    for port, frame in frames:
        packet = parse_frame(frame)
        if (
            packet is not None
            and packet.source == SWITCH
            and packet.header.kind in (Kind.RESULT, Kind.HELD, Kind.REJECT)
        ):
            made.setdefault(packet.header.slot, []).append((port, frame))
    return made


def check_state(got: Pipeline, expected: Pipeline) -> None:
    for name, register in expected.registers.items():
        np.testing.assert_array_equal(got.registers[name].memory, register.memory, name)
    for name, counter in expected.counters.items():
        np.testing.assert_array_equal(got.counters[name].counts, counter.counts, name)


class Ready:
    """A switch that is set up."""

    def __init__(self, engine: Embedded) -> None:
        self.pipeline = engine.pipeline
        self.rig = set_up(engine)


@pytest.fixture(scope="module")
def engines() -> list[Ready]:
    """Return the interpreter, and native code on 1, 2 and 4 cores."""
    return [Ready(engine) for engine in (Embedded(LANES, "interpreter"), embedded(1), embedded(2), embedded(4))]


@settings(deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 1 << 32),
    sizes=st.lists(st.sampled_from([1, 7, 30, 100, 300]), min_size=1, max_size=3),
    rows=st.sampled_from([16, 150, 4096]),
)
def test_any_number_of_cores_does_the_same(engines: list[Ready], seed: int, sizes: list[int], rows: int) -> None:
    traffic = Traffic(engines[0].rig, seed)
    reference, *others = (engine.pipeline for engine in engines)
    for size in sizes:
        frames = [traffic.frame() for _ in range(size)]
        expected = run(reference, frames, Output(rows, 1 << 20))
        for pipeline in others:
            got = run(pipeline, frames, Output(rows, 1 << 20))
            assert Counter(got) == Counter(expected)
            assert by_slot(got) == by_slot(expected)
            check_state(pipeline, reference)


def test_a_part_is_run_by_a_helper_if_it_is_worth_it(engines: list[Ready]) -> None:
    engine = engines[2].pipeline._engine
    assert isinstance(engine, Sharded)
    rig, turns = engines[0].rig, []
    for even, odd in (
        (2 * MIN_PART_FRAMES, MIN_PART_FRAMES),
        (2 * MIN_PART_FRAMES, MIN_PART_FRAMES - 1),
        (MIN_PART_FRAMES, MIN_PART_FRAMES - 1),
    ):
        slots = [FIRST_SLOT] * even + [FIRST_SLOT + 1] * odd
        run(engines[2].pipeline, [(1, rig.contribution(0, 1, slot=slot)) for slot in slots], Output())
        turns.append(int(engine.lines[1, TURN]))
    assert turns[0] > 0
    assert turns == [turns[0]] * 3
    for engine_before in engines[:2] + engines[3:]:  # so that all have seen the same
        for even, odd in (
            (2 * MIN_PART_FRAMES, MIN_PART_FRAMES),
            (2 * MIN_PART_FRAMES, MIN_PART_FRAMES - 1),
            (MIN_PART_FRAMES, MIN_PART_FRAMES - 1),
        ):
            slots = [FIRST_SLOT] * even + [FIRST_SLOT + 1] * odd
            run(engine_before.pipeline, [(1, rig.contribution(0, 1, slot=slot)) for slot in slots], Output())


def test_a_frame_that_its_sender_changes_meanwhile_is_dropped() -> None:
    switch = embedded(2)
    rig = set_up(switch)
    engine = switch.pipeline._engine
    assert isinstance(engine, Sharded)
    engine.entry(Output())
    code = BatchFunction(int(engine.lines[0, ENTRY]))
    output, result = Output(), np.zeros(2, np.uint64)
    runs = ((0, FIRST_SLOT, 1), (1, FIRST_SLOT, 1), (0, FIRST_SLOT + 1, 1), (1, FIRST_SLOT + 1, 2))
    for shard, slot, counted in runs:
        frame = np.frombuffer(rig.contribution(0, 1, slot=slot), np.uint8)
        place, one = np.array([frame.ctypes.data], np.uint64), np.ones(1, np.uint32)
        columns: list[np.ndarray] = [place, one * np.uint32(len(frame)), one]
        made = output.ports, output.addresses, output.lengths, output.heads, output.bodies
        ran = code(
            *(int(engine.lines[shard, ENTRY + 1]), *(column.ctypes.data for column in columns), 1, 0),
            *(output.arena.ctypes.data, len(output.arena), *(column.ctypes.data for column in made), len(output.ports)),
            result.ctypes.data,
        )
        assert ran == 1
        events = switch.pipeline.counters["SwitchIngress.reply.events"].counts[:, 0]
        assert events.sum() == counted


def test_threads_end_with_the_pipeline() -> None:
    before = set(threading.enumerate())
    pipeline = embedded(4).pipeline
    helpers = set(threading.enumerate()) - before
    assert len(helpers) == 3
    del pipeline
    gc.collect()
    assert not any(helper.is_alive() for helper in helpers)


def test_a_program_that_is_not_proven_is_refused_and_the_old_one_goes_on() -> None:
    device = Device(lambda data: Pipeline.load(data, sharding=sharding(2)))
    action = v1.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT

    def load(data: bytes) -> None:
        config = v1.ForwardingPipelineConfig(p4_device_config=data)
        device.apply(action, config, device.prepare(action, config))

    load(p4src.load(LANES).device_config)
    running = device.pipeline
    with pytest.raises(Refused, match=r"shards: the program has no header field agg\.slot") as refusal:
        load((PROGRAMS / "stateful.json").read_bytes())
    assert refusal.value.code is Code.INVALID_ARGUMENT
    assert device.pipeline is running


def test_the_interpreter_has_one_core() -> None:
    with pytest.raises(ProgramError, match="shards are for the native engine"):
        Embedded(LANES, "interpreter", sharding=sharding(2))

"""Packets that live more than once: clones, resubmit, recirculate."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import pytest

from switchsum_switch.execution.pipeline import EngineName, Pipeline
from switchsum_switch.messages.p4runtime import Code, Outcome, parse_p4info, v1
from switchsum_switch.p4runtime.entities import Entities
from switchsum_switch.program.v1model import (
    EGRESS_CLONE,
    INGRESS_CLONE,
    MAX_CLONE_DEPTH,
    NORMAL,
    QUEUE_SHIFT,
    REPLICATION,
)
from switchsum_switch.queues.batch import Output
from switchsum_switch.queues.queues import Queues

from .conftest import PROGRAMS, Load

TRACE = struct.Struct("!BBHBBHI32s")


@dataclass(frozen=True, slots=True)
class Trace:
    """What egress wrote in front of a frame, and the command behind it."""

    type: int
    kept: int
    lost: int
    port: int
    turns: int
    instance: int = 0
    wide: int = 0
    length: int = 7


def traces(pipeline: Pipeline, operation: int, session: int, turns: int) -> list[Trace]:
    made = []
    for port, frame in pipeline.process(3, bytes([operation, session, turns]) + b"rest"):
        where, kind, instance, kept, lost, seen, length, wide = TRACE.unpack(frame[: TRACE.size])
        assert (where, seen) == (2, port)
        assert frame[TRACE.size : TRACE.size + 2] == bytes([operation, session])
        assert frame[TRACE.size + 3 :] == b"rest"
        left = frame[TRACE.size + 2]
        made.append(Trace(kind, kept, lost, port, left, instance, int.from_bytes(wide, "big"), length))
    return made


def wide(turns: int) -> int:
    return turns << 200


def test_clone_in_ingress(load: Load) -> None:
    pipeline = load("lives")
    original = Trace(NORMAL, 5, 9, 1, 0xFF, wide=wide(5))
    assert traces(pipeline, 1, 7, 5) == [original]  # there is no such session
    pipeline.clones.set(7, [(2, 21), (4, 22)])
    clones = [Trace(INGRESS_CLONE, 5, 0, port, 5, instance) for port, instance in ((2, 21), (4, 22))]
    assert traces(pipeline, 1, 7, 5) == [*clones, original]
    pipeline.clones.set(7, [(2, 1)], length_limit=TRACE.size)
    [(_, cut), (_, whole)] = pipeline.process(3, bytes([1, 7, 5]) + b"rest")
    assert (len(cut), len(whole)) == (TRACE.size, TRACE.size + 7)
    pipeline.clones.delete(7)
    assert traces(pipeline, 1, 7, 5) == [original]


def test_session_0_is_a_session_as_any_other(load: Load) -> None:
    """Tests of p4testgen use it, and BMv2 has it; a packet that is not cloned has no session."""
    pipeline = load("lives")
    original = Trace(NORMAL, 5, 9, 1, 0xFF, wide=wide(5))
    assert traces(pipeline, 1, 0, 5) == [original]
    pipeline.clones.set(0, [(2, 21)])
    assert traces(pipeline, 1, 0, 5) == [Trace(INGRESS_CLONE, 5, 0, 2, 5, 21), original]
    assert len(traces(pipeline, 0, 0, 5)) == 1
    pipeline.clones.delete(0)
    assert traces(pipeline, 1, 0, 5) == [original]


@pytest.mark.parametrize("engine", ["interpreter", "native"])
@pytest.mark.parametrize("operation", [1, 6])
def test_clones_wait_in_the_queue_of_their_class(engine: EngineName, operation: int) -> None:
    pipeline = Pipeline.load((PROGRAMS / "lives.json").read_bytes(), engine=engine, queues=Queues(4))
    info = parse_p4info((PROGRAMS / "lives.p4info.txtpb").read_text())
    client = Entities(v1.ForwardingPipelineConfig(p4info=info), pipeline.state)
    entry = v1.PacketReplicationEngineEntry()
    entry.clone_session_entry.session_id, entry.clone_session_entry.class_of_service = 7, 3
    entry.clone_session_entry.replicas.add(port=b"\2", instance=1)
    update = v1.Update(type=v1.Update.INSERT, entity=v1.Entity(packet_replication_engine_entry=entry))
    assert client.write([update], v1.WriteRequest.CONTINUE_ON_ERROR) == [Outcome()]
    assert client.read(update.entity) == [update.entity]
    sent = dict(pipeline.process(0, bytes([operation, 7, 1])))
    assert sent.keys() == {1, 2 | 3 << QUEUE_SHIFT}
    assert pipeline.sees_waiting  # so that packets have queues in virtual time, too
    entry.clone_session_entry.class_of_service = 4
    update = v1.Update(type=v1.Update.MODIFY, entity=v1.Entity(packet_replication_engine_entry=entry))
    assert client.write([update], v1.WriteRequest.CONTINUE_ON_ERROR)[0].code is Code.INVALID_ARGUMENT
    pipeline.clones.set(7, [(2, 1)], class_of_service=4)  # in Python: a class without a queue is dropped
    assert [port for port, _ in pipeline.process(0, bytes([operation, 7, 1]))] == [1]


def test_a_trace_tells_what_a_new_life_keeps_and_which_copies_go_nowhere() -> None:
    pipeline = Pipeline.load((PROGRAMS / "lives.json").read_bytes(), engine="interpreter")
    frame = bytes([1, 7, 5]) + b"rest"
    [nowhere] = pipeline.trace(3, frame)[1].find("clone")
    assert nowhere.text == "clone to session 7, which has no replicas"
    pipeline.clones.set(7, [2])
    [clone] = pipeline.trace(3, frame)[1].find("clone")
    assert clone.text.startswith("clone from ingress to session 7, which keeps ")
    assert "kept=5" in clone.text
    [again] = pipeline.trace(3, bytes([5, 0, 1]) + b"rest")[1].find("recirculate")
    assert "and keeps " in again.text
    [group] = pipeline.trace(3, bytes([4, 1, 4]) + b"rest")[1].find("copy")
    assert group.text == "multicast group 1: no replicas, so that nothing leaves"


def test_clone_of_what_is_dropped_keeps_nothing(load: Load) -> None:
    pipeline = load("lives")
    pipeline.clones.set(1, [(2, 3)])
    assert traces(pipeline, 3, 1, 5) == [Trace(INGRESS_CLONE, 0, 0, 2, 5, 3)]


def test_clone_and_multicast(load: Load) -> None:
    pipeline = load("lives")
    pipeline.clones.set(1, [(2, 3)])
    pipeline.multicast.set(1, [(5, 6), (7, 8)])
    replicas = [Trace(REPLICATION, 4, 9, port, 4, instance, wide(4)) for port, instance in ((5, 6), (7, 8))]
    assert traces(pipeline, 4, 1, 4) == [Trace(INGRESS_CLONE, 4, 0, 2, 4, 3, wide(4)), *replicas]


def test_resubmit(load: Load) -> None:
    pipeline = load("lives")
    assert traces(pipeline, 2, 0, 0) == [Trace(NORMAL, 0, 9, 1, 0)]
    assert traces(pipeline, 2, 0, 1) == [Trace(NORMAL, 0, 0, 1, 1, wide=wide(1) + 1)]
    assert traces(pipeline, 2, 0, 63) == [Trace(NORMAL, 0, 0, 1, 63, wide=wide(63) + 63)]


def test_recirculate(load: Load) -> None:
    pipeline = load("lives")
    assert traces(pipeline, 5, 0, 3) == [Trace(NORMAL, 0, 0, 1, 0, wide=wide(3))]


@pytest.mark.parametrize("engine", ["interpreter", "native"])
def test_ingress_runs_as_often_as_one_wants(engine: EngineName) -> None:
    whole = Pipeline.load((PROGRAMS / "lives.json").read_bytes(), engine=engine)
    few = Pipeline.load((PROGRAMS / "lives.json").read_bytes(), engine=engine, passes=64)
    for operation in (2, 5):
        for turns in (63, 64, 255):
            assert len(traces(whole, operation, 0, turns)) == 1
            assert len(traces(few, operation, 0, turns)) == (turns < 64)
    assert len(traces(Pipeline.load((PROGRAMS / "lives.json").read_bytes(), engine=engine, passes=1), 2, 0, 0)) == 1


def test_clone_in_egress(load: Load) -> None:
    pipeline = load("lives")
    pipeline.clones.set(9, [(2, 11)])
    expected = [Trace(NORMAL, 3, 9, 1, 2, wide=wide(3) + 1)]
    expected += [Trace(EGRESS_CLONE, 3, 0, 2, left, 11, wide(3) + more) for left, more in ((1, 2), (0, 3))]
    expected += [Trace(EGRESS_CLONE, 3, 0, 2, 0, 11, wide(3) + 3)]
    sizes = [7, TRACE.size + 7, TRACE.size + 7, TRACE.size + 7]  # a clone has the headers that its packet had
    assert traces(pipeline, 6, 9, 3) == [
        Trace(t.type, t.kept, t.lost, t.port, t.turns, t.instance, t.wide, size)
        for t, size in zip(expected, sizes, strict=True)
    ]
    assert len(traces(pipeline, 6, 9, 200)) == 1 + MAX_CLONE_DEPTH
    pipeline.clones.set(9, [(2, 11), (4, 12)])
    assert len(traces(pipeline, 6, 9, 4)) == 1 + 2 + 4 + 8 + 16
    assert [trace.port for trace in traces(pipeline, 7, 9, 1)] == [2, 4]


def test_wide_metadata_is_kept_that_only_the_graph_reads_which_wrote_it(load: Load) -> None:
    """Native code drops what nobody reads later; the packet's next life is later, too."""
    pipeline = load("lives")
    pipeline.clones.set(9, [(2, 11)])
    assert [trace.wide for trace in traces(pipeline, 8, 0, 5)] == [wide(5) + 1]
    assert [trace.wide for trace in traces(pipeline, 9, 0, 5)] == [wide(5) + 2]
    assert [trace.wide for trace in traces(pipeline, 10, 9, 5)] == [0, wide(5) + 3]


def test_more_frames_than_find_room_are_dropped_and_counted(load: Load) -> None:
    pipeline = load("lives")
    pipeline.clones.set(9, [(2, 11), (4, 12)])
    frame = np.frombuffer(bytes([6, 9, 4]), np.uint8)
    rows, size = pipeline.room(len(frame))
    assert rows < 31
    output = Output(rows, size)
    columns = (np.array([frame.ctypes.data], np.uint64), np.array([3], np.uint32), np.array([1], np.uint32))
    assert pipeline.process_batch(*columns, 1, output) == 1
    assert (output.count, output.dropped) == (rows, 31 - rows)

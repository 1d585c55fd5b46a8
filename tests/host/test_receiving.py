"""What a worker makes of its link's state, and of answers of the switch: call by call, on a virtual clock."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pytest

from switchsum.testing.cluster import Cluster, ClusterConfig
from switchsum.testing.network import LinkConditions
from switchsum_host.engine.engine import Failed, Finished
from switchsum_host.engine.loop import RETRY_S
from switchsum_host.engine.state import Count, Failure
from switchsum_host.links.base import Received
from switchsum_protocol.frame import FRAME_BYTES, NO_BLOCK, Flag, Kind, Reason
from switchsum_switch.kernels.loading import address_of
from switchsum_switch.wires.rows import LEAD_BYTES

from .alone import Alone, one_slot, read

TIMEOUT_S = ClusterConfig().engine(0).probe_initial_s
LANES = ClusterConfig().lanes_per_frame


@pytest.mark.parametrize(
    ("slots", "is_full", "reading_s", "sleeps_s"),
    [
        (1, False, 0.0, TIMEOUT_S),
        (1, True, 0.0, RETRY_S),
        (4, True, 0.0, RETRY_S),
        (1, False, 1.0, RETRY_S),
        (4, False, 1.0, RETRY_S),
    ],
    ids=["all is sent", "one queues", "four queue", "one waits for its row", "four wait for their rows"],
)
def test_a_loop_looks_again_soon_where_its_link_holds_something_up(
    slots: int, is_full: bool, reading_s: float, sleeps_s: float
) -> None:
    cluster = Cluster(ClusterConfig(workers=1, window_slots=slots, reading_s=reading_s))
    [worker] = cluster.workers
    blocks = 3 * slots if reading_s else slots  # two go into the two rows of a slot
    if not reading_s:
        cluster.network.connect(worker.port, LinkConditions(), lambda _: None)
    cluster.submit(0, np.ones(blocks * LANES, np.int32))
    if is_full:
        with patch.object(worker._transport, "send", lambda rows, lengths: 0):
            worker.run()
    else:
        blocked = slots if reading_s else 0
        cluster.run(lambda: worker.engine.counts[Count.BLOCKED] == blocked)
    assert worker._transport.sleeps_until - cluster.clock.now_s == pytest.approx(sleeps_s)


SLOTS = 4


class Batches:
    """A worker whose results come in batches of one of each slot."""

    def __init__(self) -> None:
        self.cluster = Cluster(ClusterConfig(workers=1, window_slots=SLOTS))
        [self.worker] = self.cluster.workers
        self.came: list[bytes] = []
        self.cluster.network.connect(self.worker.port, LinkConditions(), self.came.append)

    def add(self, values: npt.NDArray[np.int32]) -> int:
        """Reduce an array whose blocks are rounds of all slots; return how many frames came, and their bytes."""
        serial = self.cluster.submit(0, values)
        taken = size = 0
        while serial not in self.worker.finished:
            self.cluster.run(lambda: len(self.came) == SLOTS)
            taken += SLOTS
            size += sum(map(len, self.came))
            for frame in self.came:
                self.worker.take(frame)
            self.came.clear()
            self.worker.run()
        counts = self.worker.engine.counts
        assert (counts[Count.FRAMES_RECEIVED], counts[Count.BYTES_RECEIVED]) == (taken, size)
        return taken


def test_frames_of_a_batch_are_taken_and_counted() -> None:
    job, values = Batches(), np.arange(3 * SLOTS * LANES, dtype=np.int32)
    assert job.add(values) == 3 * SLOTS == job.worker.engine.counts[Count.ROUNDS]
    assert values.tolist() == list(range(len(values)))


def test_lanes_may_lie_elsewhere_than_their_headers() -> None:
    job, values = Batches(), np.arange(3 * SLOTS * LANES, dtype=np.int32)
    transport, record = job.worker._transport, job.worker._driver._functions.record
    receive, elsewhere = transport.receive, np.zeros((SLOTS, 4 * LANES), np.uint8)
    bodies = np.zeros(SLOTS, np.int64)
    record["bodies"] = address_of(bodies)

    def take_apart() -> Received:
        received = receive()
        lanes = received.frames[:, LEAD_BYTES + FRAME_BYTES :]
        for row in received.rows.tolist()[::2]:  # others are whole
            elsewhere[row, :] = lanes[row, : 4 * LANES]
            lanes[row, :] = 0xEE
            bodies[row] = address_of(elsewhere[row])
        return received

    with patch.object(transport, "receive", take_apart):
        job.add(values)
    assert values.tolist() == list(range(len(values)))
    assert np.count_nonzero(bodies) == SLOTS / 2


def two_rounds(*, workers: int = 1, dtype: type[np.generic] = np.int32, **facts: Any) -> tuple[Alone, bytes]:
    """Return a worker with one slot that waits for the result of the first of two blocks, and its contribution."""
    job = Alone(ClusterConfig(workers=workers, window_slots=1))
    job.submit(np.ones(16, dtype), **facts)
    [frame] = job.frames()
    return job, frame


def test_after_a_failure_nothing_is_taken() -> None:
    job, frame = two_rounds()
    assert job.feed(job.result(frame, flags=Flag.MISMATCH)) == Count.ROUNDS
    number = int(job.slot["number"])
    assert job.feed(job.result(frame)) == Count.UNEXPECTED
    assert (job.slot["number"], job.core["progress"]["failure"], job.core["progress"]["reason"]) == (
        number,
        Failure.MISMATCH,
        0,
    )


def test_an_error_names_the_operation_and_the_reason() -> None:
    job = one_slot()
    job.add(np.ones(8, np.int32))
    job.submit(np.ones(8, np.int32))
    [frame] = job.frames()
    job.feed(job.result(frame, flags=Flag.MISMATCH))
    job.engine.note(0.0)
    [failed] = job.engine.events()
    assert isinstance(failed, Failed)
    assert "(call 2 of its communicator)" in str(failed.error)
    job, frame = two_rounds()
    job.feed(job.result(frame, kind=Kind.REJECT, flags=0, reason=Reason.SLOT))
    job.engine.note(0.0)
    [failed] = job.engine.events()
    assert isinstance(failed, Failed)
    assert str(failed.error).endswith("contributions of rank 0: slot")


def test_rounds_that_come_slowly_are_progress() -> None:
    job = Alone(ClusterConfig(workers=1, window_slots=1, timeout_s=1.0))
    job.submit(np.ones(8 * 8, np.int32))
    for turn in range(8):
        [frame, *_] = job.frames()
        job.feed(job.result(frame), 0.4 * turn)
        job.engine.poll(0.4 * turn)
        assert not any(isinstance(event, Failed) for event in job.engine.events())


@pytest.mark.parametrize(
    ("next_block", "counted"),
    [(0, Count.UNEXPECTED), (1, Count.UNEXPECTED), (2, Count.ROUNDS), (3, Count.UNEXPECTED), (4, Count.UNEXPECTED)],
)
def test_the_next_block_is_one_of_the_column_that_is_yet_to_come(next_block: int, counted: Count) -> None:
    job = Alone(ClusterConfig(workers=2, window_slots=2))
    job.submit(np.array([1] * 16 + [0] * 16, np.int32))  # four blocks; of the last two this worker has nothing
    first, _ = job.frames()
    assert read(first).header.next_block == NO_BLOCK
    assert job.feed(job.result(first, next_block=next_block)) == counted


@pytest.mark.parametrize(("own", "block"), [([1, 1], 0), ([0, 0], 1), ([1, 0], 1)])
def test_lanes_come_for_what_somebody_has_named_or_contributed(own: list[int], block: int) -> None:
    job = Alone(ClusterConfig(workers=2, window_slots=1))
    job.submit(np.repeat(own, 8).astype(np.int32))
    [frame] = job.frames()
    if block:
        lanes = read(frame).header.flags & Flag.PAYLOAD
        job.feed(job.result(frame, next_block=1, flags=lanes))  # another rank has named it
        [frame] = job.frames()
    assert job.feed(job.result(frame, flags=0)) == Count.UNEXPECTED
    assert job.feed(job.result(frame, flags=Flag.PAYLOAD)) == Count.ROUNDS


def test_a_block_that_nobody_had_lanes_for_stays_zero() -> None:
    job, values = one_slot(), np.zeros(8, np.int32)
    job.add(np.full(8, 7, np.int32))
    job.add(values)
    assert not values.any()


def test_what_is_for_another_rank_is_not_written() -> None:
    job = Alone(ClusterConfig(workers=2, window_slots=1), rank=1)
    values = np.ones(16, np.int32)
    job.submit(values, part=8)
    for _ in range(2):
        [frame] = job.frames()
        lanes = np.full(8, 9, ">i4").tobytes()
        assert job.feed(job.result(frame)[:FRAME_BYTES] + lanes) == Count.ROUNDS
        assert values[:8].tolist() == [1] * 8  # rank 0's part
    assert values[8:].tolist() == [9] * 8


@pytest.mark.parametrize("lanes", ["int32", "int16"])
def test_sums_of_floats_take_the_place_of_the_values(lanes: str) -> None:
    job, values = one_slot(), np.full(8, 1.0, np.float32)
    job.submit(values, lanes=lanes)
    while frames := job.frames():
        if read(frames[0]).header.flags & Flag.PAYLOAD:
            values[:] = 5.0
        for answer in job.answers(frames[0]):
            job.feed(answer)
    assert values == pytest.approx(np.ones(8), rel=1e-3)


def test_a_block_that_is_not_finite_becomes_nan() -> None:
    job, values = one_slot(), np.array([1.0] * 7 + [np.inf] + [1.0] * 8, np.float32)
    job.add(values)
    assert np.isnan(values[:8]).all()
    assert values[8:].tolist() == [1.0] * 8


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.int32])
def test_blocks_whose_sums_do_not_fit_are_named(dtype: type[np.integer[Any]]) -> None:
    cluster = Cluster(ClusterConfig(workers=2, window_slots=1, lanes_per_frame=2))
    per_block, most = 8 // np.dtype(dtype).itemsize, np.iinfo(dtype).max
    arrays = [np.array([1] * per_block + [most] * per_block, dtype) for _ in range(2)]
    finished = cluster.allreduce(arrays)
    assert [event.overflowed for event in finished] == [(1,), (1,)]
    for array in arrays:
        assert array.tolist() == [2] * per_block + [most] * per_block


def test_few_floats_take_the_place_of_the_values() -> None:
    job, values = one_slot(lanes_per_frame=36), np.array([1e30, -1.0, 1e-30], np.float32)
    expected = values.tolist()
    job.submit(values, exact=True)
    [frame] = job.frames()
    values[:] = 5.0
    for answer in job.answers(frame):
        job.feed(answer)
    assert values.tolist() == expected


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_each_part_of_a_block_has_lanes(dtype: type[np.integer[Any]]) -> None:
    job = Alone(ClusterConfig(workers=2, window_slots=1))
    job.submit(np.zeros(8, dtype))  # another rank's sum in this block has overflowed
    [frame] = job.frames()
    assert job.feed(job.result(frame, flags=Flag.PAYLOAD | Flag.OVERFLOW)) == Count.ROUNDS
    assert job.engine.counts[Count.OVERFLOWS] == (dtype is np.int32)  # integers without sign have parts from the start
    [frame] = job.frames()
    assert job.feed(job.result(frame, flags=0)) == Count.UNEXPECTED
    assert job.feed(job.result(frame, flags=Flag.PAYLOAD)) == Count.ROUNDS


def test_slots_keep_their_low_halves_apart() -> None:
    job = Alone(ClusterConfig(workers=1, window_slots=2))
    job.submit(np.repeat(np.array([3, 4], np.uint32), 8))
    for frame in job.frames():
        for answer in job.answers(frame):
            job.feed(answer)
    assert (job.engine.state.kept != 0).all(axis=1).tolist() == [True, True]
    assert (job.engine.state.kept[0] != job.engine.state.kept[1]).any()


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_sums_that_overflow_on_the_way_are_exact(dtype: type[np.integer[Any]]) -> None:
    most = int(np.iinfo(dtype).max)
    cluster = Cluster(ClusterConfig(workers=3, window_slots=2))
    arrays = [np.full(40, value, dtype) for value in (most, 5, -100)]
    finished = cluster.allreduce(arrays)
    assert [event.overflowed for event in finished] == [()] * 3
    for array in arrays:
        assert set(array.tolist()) == {most + 5 - 100}


def test_operations_finish_one_by_one() -> None:
    job = Alone(ClusterConfig(workers=1, window_slots=2))
    for _ in range(2):
        job.submit(np.ones(8, np.int32))
    for serial, frame in reversed(list(enumerate(job.frames()))):
        job.feed(job.result(frame))
        events = job.engine.events()
        assert [event.operation for event in events if isinstance(event, Finished)] == [serial]
        events.clear()
        assert job.engine.progress == (2, 0 if serial else 2), "the oldest that is not complete"

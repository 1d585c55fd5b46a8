"""Rings against a model, and against a peer that breaks the rules."""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchsum_protocol.frame import FRAME_BYTES
from switchsum_switch.wires import outbox, ring
from switchsum_switch.wires.outbox import LINK_FIELDS, OutboxLayout, fill_link, next_power_of_two
from switchsum_switch.wires.rows import CACHE_LINE, LEAD_BYTES, allocate_rows, row_stride

FRAME = 100
LAYOUT = OutboxLayout(rows=5, capacity=8, frame_bytes=FRAME)
Bytes = npt.NDArray[np.uint8]


class Side:
    """One side's view of a pair of outboxes."""

    def __init__(self, own: Bytes, peer: Bytes) -> None:
        self.link = np.zeros(LINK_FIELDS, np.int64)
        fill_link(self.link, LAYOUT, own.ctypes.data, LAYOUT, peer.ctypes.data)
        self.memory = own
        self.words = own[: LAYOUT.frames_offset].view(np.int64)
        self._kept = own, peer  # the link has only their addresses
        self.rows, self.lengths = np.zeros(16, np.int32), np.zeros(16, np.int32)

    def push(self, *frames: tuple[int, int]) -> int:
        rows, lengths = np.array(frames, np.int32).reshape(-1, 2).T.copy()
        return ring.push(self.link, rows, lengths)[0]

    def take(self) -> list[tuple[int, int]]:
        count = ring.take(self.link, self.rows, self.lengths, np.zeros(len(self.rows), np.int64))
        return list(zip(self.rows[:count].tolist(), self.lengths[:count].tolist(), strict=True))


def outboxes(layout: OutboxLayout) -> tuple[Bytes, Bytes]:
    first, second = (allocate_rows(1, layout.total_bytes)[0, : layout.total_bytes] for _ in range(2))
    return first, second


@pytest.fixture
def sides() -> tuple[Side, Side]:
    first, second = outboxes(LAYOUT)
    return Side(first, second), Side(second, first)


def descriptor(row: int, length: int) -> int:
    return row | length << 32


def test_lanes_start_on_a_cache_line() -> None:
    assert (LEAD_BYTES + FRAME_BYTES) % CACHE_LINE == 0
    for frame_bytes in (FRAME_BYTES, FRAME_BYTES + 512, FRAME_BYTES + 8192, 9216):
        stride = row_stride(frame_bytes)
        assert stride % CACHE_LINE == 0
        assert LEAD_BYTES + frame_bytes <= stride < LEAD_BYTES + frame_bytes + CACHE_LINE
        rows = allocate_rows(3, frame_bytes)
        assert rows.shape == (3, stride)
        assert rows.ctypes.data % CACHE_LINE == 0


@pytest.mark.parametrize(("value", "power"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (1024, 1024), (1025, 2048)])
def test_next_power_of_two(value: int, power: int) -> None:
    assert next_power_of_two(value) == power


def test_parts_of_an_outbox_do_not_overlap() -> None:
    assert outbox.DESCRIPTORS + LAYOUT.capacity * outbox.WORD_BYTES <= LAYOUT.frames_offset
    assert LAYOUT.frames_offset % outbox.PAGE_BYTES == 0
    assert LAYOUT.total_bytes == LAYOUT.frames_offset + LAYOUT.rows * LAYOUT.stride
    words = (outbox.HEAD_WORD, outbox.TAIL_WORD, outbox.SLEEPING_WORD)
    assert len({word // CACHE_LINE for word in words}) == len(words)


# What a producer and a consumer do: push so many frames (any rows), take so many, release.
ACTIONS = st.one_of(
    st.lists(st.tuples(st.integers(0, LAYOUT.rows - 1), st.integers(1, FRAME)), max_size=12),
    st.integers(0, 12),
    st.just("release"),
)


@given(st.lists(ACTIONS, max_size=60))
def test_descriptors_are_a_bounded_queue(actions: list[list[tuple[int, int]] | int | str]) -> None:
    first, second = outboxes(LAYOUT)
    producer, consumer = Side(first, second), Side(second, first)
    queue: deque[tuple[int, int]] = deque()
    pushed = taken = released = 0
    for action in actions:
        if isinstance(action, list):
            count = producer.push(*action)
            assert count == min(len(action), LAYOUT.capacity - (pushed - released))
            queue.extend(action[:count])
            pushed += count
        elif isinstance(action, int):
            consumer.rows = np.zeros(action, np.int32)
            consumer.lengths = np.zeros(action, np.int32)
            count = min(action, len(queue))
            assert consumer.take() == [queue.popleft() for _ in range(count)]
            taken += count
        else:
            ring.release(consumer.link)
            released = taken
        assert ring.waiting(consumer.link) == len(queue)
        assert ring.consumed(producer.link) == released
    assert not producer.link[outbox.BROKEN]
    assert not consumer.link[outbox.BROKEN]


class Lender:
    """An outbox into which frames are copied, and the side that reads them."""

    layout = OutboxLayout(rows=8, capacity=8, frame_bytes=FRAME)

    def __init__(self) -> None:
        self._memories = first, second = outboxes(self.layout)
        self.link, self.peer = np.zeros((2, LINK_FIELDS), np.int64)
        fill_link(self.link, self.layout, first.ctypes.data, self.layout, second.ctypes.data)
        fill_link(self.peer, self.layout, second.ctypes.data, self.layout, first.ctypes.data)
        ring.lend_rows(self.link)
        self.stored = first[self.layout.frames_offset :].reshape(8, self.layout.stride)[:, LEAD_BYTES:]
        self.used: set[int] = set()

    def put(self, number: int, length: int = 7) -> bool:
        return ring.put_copy(self.link, np.full(FRAME, number, np.uint8).ctypes.data, length)

    def take(self, limit: int) -> list[int]:
        """Return the numbers of the frames that have come, at most `limit`."""
        rows, lengths = np.zeros((2, limit), np.int32)
        count = ring.take(self.peer, rows, lengths, np.zeros(limit, np.int64))
        self.used |= set(rows[:count].tolist())
        for row, length in zip(rows[:count], lengths[:count], strict=True):
            assert (self.stored[row, :length] == self.stored[row, 0]).all()
        return [int(self.stored[row, 0]) for row in rows[:count]]


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.booleans()), max_size=40))
def test_copies_are_a_bounded_queue(turns: list[tuple[int, int, bool]]) -> None:
    lender = Lender()
    queue: deque[int] = deque()
    put = taken = released = 0
    for wanted, limit, give_back in turns:
        for _ in range(wanted):
            fits = put - released < lender.layout.capacity
            assert lender.put(put % 256) == fits
            if fits:
                queue.append(put % 256)
                put += 1
        assert ring.waiting(lender.peer) <= len(queue)  # what is not published is not seen
        ring.publish(lender.link)
        count = min(limit, len(queue))
        assert lender.take(limit) == [queue.popleft() for _ in range(count)]
        taken += count
        if give_back:
            ring.release(lender.peer)
            released = taken
    assert not lender.link[outbox.BROKEN]


def test_where_few_frames_wait_few_rows_are_used() -> None:
    lender = Lender()
    for number in range(50):
        ring.reclaim_rows(lender.link)
        assert lender.put(number)
        assert lender.put(number + 100)
        ring.publish(lender.link)
        assert lender.take(8) == [number, number + 100]
        ring.release(lender.peer)
    assert len(lender.used) == 2


def test_a_frame_that_is_too_long_is_not_copied() -> None:
    lender = Lender()
    assert not lender.put(1, FRAME + 1)
    assert [lender.put(number, FRAME) for number in range(9)] == [True] * 8 + [False]
    ring.publish(lender.link)
    assert lender.take(9) == list(range(8))


@pytest.mark.parametrize(
    "word",
    [
        descriptor(LAYOUT.rows, 10),
        descriptor(0xFFFF_FFFF, 10),
        descriptor(0, 0),
        descriptor(0, FRAME + 1),
        descriptor(0, 0x7FFF_FFFF),
        descriptor(0, FRAME) | 1 << 16,
        -1,
        -(1 << 63),
    ],
)
def test_a_malformed_descriptor_is_skipped_and_counted(word: int, sides: tuple[Side, Side]) -> None:
    first, second = sides
    first.push((1, 10), (2, 20), (3, 30))
    first.words[outbox.DESCRIPTORS // 8 + 1] = word
    assert second.take() == [(1, 10), (3, 30)]
    assert second.link[outbox.MALFORMED] == 1
    assert ring.waiting(second.link) == 0
    ring.release(second.link)
    assert ring.consumed(first.link) == 3


@pytest.mark.parametrize("head", [LAYOUT.capacity + 1, -1, 1 << 62, -(1 << 63)])
def test_a_head_that_cannot_be_breaks_the_link(head: int, sides: tuple[Side, Side]) -> None:
    first, second = sides
    first.words[outbox.HEAD_WORD // 8] = head
    assert second.take() == []
    assert second.link[outbox.BROKEN]


@pytest.mark.parametrize("tail", [4, -1, 1 << 62])
def test_a_tail_that_cannot_be_breaks_the_link_and_frees_nothing(tail: int, sides: tuple[Side, Side]) -> None:
    first, second = sides
    first.push((0, 1), (1, 1), (2, 1))
    second.words[outbox.TAIL_WORD // 8] = tail
    assert ring.consumed(first.link) == 0
    assert first.link[outbox.BROKEN]
    assert ring.free_rows(first.link, LAYOUT.capacity) == LAYOUT.capacity - 3


def test_a_tail_that_goes_back_breaks_the_link(sides: tuple[Side, Side]) -> None:
    first, second = sides
    first.push((0, 1), (1, 1))
    second.take()
    ring.release(second.link)
    assert ring.consumed(first.link) == 2
    second.words[outbox.TAIL_WORD // 8] = 1
    assert ring.consumed(first.link) == 2
    assert first.link[outbox.BROKEN]


def test_a_sleeper_is_rung_and_one_awake_is_not(sides: tuple[Side, Side]) -> None:
    first, second = sides
    assert ring.push(first.link, np.zeros(1, np.int32), np.ones(1, np.int32)) == (1, False)
    assert not ring.fall_asleep(second.link)  # something has come
    second.take()
    assert ring.fall_asleep(second.link)
    assert ring.push(first.link, np.zeros(1, np.int32), np.ones(1, np.int32)) == (1, True)
    ring.set_sleeping(second.link, 0)
    assert ring.push(first.link, np.zeros(1, np.int32), np.ones(1, np.int32)) == (1, False)
    assert not ring.fall_asleep(second.link)


def test_nothing_is_pushed_into_a_full_ring_and_nobody_is_rung(sides: tuple[Side, Side]) -> None:
    first, second = sides
    assert ring.fall_asleep(second.link)
    full = np.zeros(LAYOUT.capacity, np.int32)
    assert ring.push(first.link, full, full + 1) == (LAYOUT.capacity, True)
    assert ring.push(first.link, full, full + 1) == (0, False)

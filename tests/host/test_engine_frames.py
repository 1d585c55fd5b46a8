"""Answers that the worker's engine does not believe: dropped, each counted under its reason."""

from __future__ import annotations

import numpy as np
import pytest

from switchsum.testing.cluster import Cluster, ClusterConfig
from switchsum.testing.network import LinkConditions
from switchsum_host.engine.state import Count
from switchsum_protocol.frame import FRAME_BYTES, Flag, Header, Kind
from switchsum_switch.wires.headers import LOWER_BYTES
from switchsum_switch.wires.rows import LEAD_BYTES, allocate_rows

RNG = np.random.default_rng(11)
FIRST = ClusterConfig().first_slot
COOKIE = ClusterConfig().cookie(0)


class Fed:
    """One engine of two that waits for a result, and a way to hand it any frame."""

    def __init__(self, dtype: type[np.generic] = np.float32) -> None:
        self.cluster = Cluster(ClusterConfig(workers=2, window_slots=2))
        self.engine = self.cluster.workers[0].engine
        self.values = np.arange(1, 9).astype(dtype)
        answers: list[bytes] = []
        self.cluster.network.connect(1, LinkConditions(), answers.append)
        for rank in range(2):
            self.cluster.submit(rank, self.values if rank == 0 else self.values.copy())
        try:
            self.cluster.run(lambda: bool(answers), limit_s=1e-3)
        finally:
            self.result = answers[0]
        self.rows = allocate_rows(1, FRAME_BYTES + 32)

    def feed(self, frame: bytes) -> Count:
        """Hand the engine a frame; return how it was counted."""
        before = self.engine.counts.copy()
        self.rows[0, LEAD_BYTES : LEAD_BYTES + len(frame)] = np.frombuffer(frame, np.uint8)
        row, length = np.zeros(1, np.int32), np.full(1, len(frame), np.int32)
        self.engine.receive(self.rows, row, length, self.cluster.clock.now_s)
        changed = [Count(i) for i in np.flatnonzero(self.engine.counts[:9] != before[:9]).tolist()]
        assert len(changed) == 1
        assert self.engine.counts[Count.BYTES_RECEIVED] - before[Count.BYTES_RECEIVED] == len(frame)
        return changed[0]


def patch(frame: bytes, field: str, value: int) -> bytes:
    """Set a field of the aggregation header."""
    header = Header.unpack(frame[42:])
    assert header is not None
    setattr_values = {name: getattr(header, name) for name in Header.__dataclass_fields__} | {field: value}
    return frame[:LOWER_BYTES] + Header(**setattr_values).pack() + frame[FRAME_BYTES:]


@pytest.mark.parametrize(
    ("field", "value", "count"),
    [
        ("version", 1, Count.BROKEN),
        ("kind", Kind.CONTRIBUTION, Count.BROKEN),
        ("kind", 77, Count.BROKEN),
        ("flags", Flag.PAYLOAD, Count.BROKEN),
        ("job", 8, Count.FOREIGN),
        ("epoch", 2, Count.FOREIGN),
        ("rank", 1, Count.FOREIGN),
        ("tree", 1, Count.FOREIGN),
        ("cookie", 0, Count.FORGED),
        ("cookie", COOKIE ^ 1, Count.FORGED),
        ("cookie", COOKIE ^ 1 << 31, Count.FORGED),
        ("cookie", COOKIE ^ 1 << 32, Count.FORGED),
        ("cookie", COOKIE ^ 1 << 63, Count.FORGED),
        ("cookie", ClusterConfig().cookie(1), Count.FORGED),
        ("slot", FIRST + 2, Count.FOREIGN),
        ("slot", FIRST - 1, Count.FOREIGN),
        ("slot", 0, Count.FOREIGN),
        ("slot", 0xFFFF_FFFF, Count.FOREIGN),
        ("slot", FIRST + 1, Count.FOREIGN),
        ("number", 2, Count.FOREIGN),
        ("number", 0, Count.DUPLICATE),
        ("number", 0xFFFF_FFFF, Count.STALE),
        ("operator", 2, Count.UNEXPECTED),
        ("format", 2, Count.UNEXPECTED),
        ("exponent", 9, Count.UNEXPECTED),
        ("block", 0, Count.UNEXPECTED),
        ("digest", 0, Count.UNEXPECTED),
        ("next_block", 1, Count.UNEXPECTED),
        ("next_block", 0xFFFF_FFFF, Count.UNEXPECTED),
        ("next_exponent", 0, Count.UNEXPECTED),
        ("bitmap", 0, Count.ROUNDS),
        ("next_exponent", 254, Count.ROUNDS),
    ],
)
def test_results_that_do_not_fit_are_dropped_under_their_reason(field: str, value: int, count: Count) -> None:
    fed = Fed()
    before = fed.values.copy()
    assert fed.feed(patch(fed.result, field, value)) == count
    np.testing.assert_array_equal(fed.values, before)
    if count != Count.ROUNDS:
        assert fed.feed(fed.result) == Count.ROUNDS


@pytest.mark.parametrize("exponent", [1, 254, 255])
@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_no_exponent_is_believed_of_integers(dtype: type[np.generic], exponent: int) -> None:
    """A peer that calls integers not finite made a worker write NaN, for which integers have none: it aborted."""
    fed = Fed(dtype)
    assert fed.feed(patch(fed.result, "next_exponent", exponent)) == Count.UNEXPECTED
    assert fed.feed(fed.result) == Count.ROUNDS


@pytest.mark.parametrize("kind", [Kind.RESULT, Kind.HELD, Kind.REJECT])
def test_no_answer_of_any_kind_passes_without_the_cookie(kind: Kind) -> None:
    fed = Fed()
    answer = patch(fed.result, "kind", kind)
    assert fed.feed(patch(answer, "cookie", COOKIE + 1)) == Count.FORGED
    assert not fed.engine.events()
    assert fed.feed(answer) == {Kind.RESULT: Count.ROUNDS, Kind.HELD: Count.HELD, Kind.REJECT: Count.REJECTED}[kind]


@pytest.mark.parametrize("at", [6, 7, 8, 9, 10, 11, 12, 14, 20, 23, 26, 29, 30, 33, 34, 36, 38])
def test_frames_from_elsewhere_are_dropped(at: int) -> None:
    fed = Fed()
    frame = bytearray(fed.result)
    frame[at] ^= 0x11
    assert fed.feed(bytes(frame)) in (Count.FOREIGN, Count.BROKEN)
    assert fed.feed(fed.result) == Count.ROUNDS


def test_a_result_cut_at_any_byte_or_with_more_behind_it_is_dropped() -> None:
    fed = Fed()
    for length in range(len(fed.result)):
        assert fed.feed(fed.result[:length]) == Count.BROKEN
    assert fed.feed(fed.result + b"\0") == Count.BROKEN
    assert fed.feed(fed.result) == Count.ROUNDS


def test_lanes_in_a_round_that_has_none_are_not_believed() -> None:
    fed = Fed()
    frame = bytearray(patch(fed.result, "flags", Flag.PAYLOAD) + bytes(32))
    frame[38:40] = (len(frame) - 34).to_bytes(2)  # UDP's length
    assert fed.feed(bytes(frame)) == Count.UNEXPECTED
    assert fed.feed(fed.result) == Count.ROUNDS


def test_random_frames_change_nothing() -> None:
    fed = Fed()
    before = fed.values.copy()
    for _ in range(3000):
        frame = bytearray(fed.result)
        for _ in range(int(RNG.integers(1, 6))):
            frame[int(RNG.integers(len(frame)))] = int(RNG.integers(256))
        header = Header.unpack(bytes(frame[42:]))
        assert header is not None
        if header.flags & Flag.MISMATCH or header.kind == Kind.REJECT:
            continue
        if fed.feed(bytes(frame)) == Count.ROUNDS:
            break
        np.testing.assert_array_equal(fed.values, before)
    else:
        assert fed.feed(fed.result) == Count.ROUNDS

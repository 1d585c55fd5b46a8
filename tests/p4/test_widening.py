"""Contributions of half of each lane, 8 bits or 4, which the switch widens before it adds them."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from switchsum.testing.rig import FLOOD_GROUP, FORWARDING, LIMITED_GROWTH, SWITCH, Rig, cookie, worker
from switchsum_protocol import wire
from switchsum_protocol.frame import (
    FRAME_BYTES,
    WIDENED_FORMATS,
    Flag,
    Header,
    Kind,
    LaneFormat,
    Operator,
    Reason,
    may_be_narrow,
    narrow_bytes,
)
from switchsum_protocol.lanes import widened
from switchsum_protocol.slot_rules import COMBINATIONS

RNG = np.random.default_rng(8)
Lanes = npt.NDArray[np.int64]


def narrow(rig: Rig) -> bytes:
    """Return a payload with all bytes there are, in any order."""
    size = narrow_bytes(rig.lanes_per_frame)
    return RNG.permutation(np.resize(np.arange(256, dtype=np.uint8), size)).tobytes()


WIDTHS = {one: one.dtype for one in WIDENED_FORMATS}
FORMATS = pytest.mark.parametrize("lane_format", WIDTHS, ids=[one.name for one in WIDTHS])


def lanes(payload: bytes, lane_format: LaneFormat) -> Lanes:
    return np.frombuffer(payload, WIDTHS[lane_format]).astype(np.int64)


def send(rig: Rig, rank: int, number: int, payload: bytes, **fields: int) -> dict[int, list[wire.Packet]]:
    """Contribute a payload, with a checksum over all of it."""
    header: dict[str, Any] = {"format": LaneFormat.WIDENED, "flags": Flag.PAYLOAD, "cookie": cookie(rank), **fields}
    made = wire.parse_frame(rig.contribution(rank, number, **header))
    assert made is not None
    return rig.send(rank, wire.build_frame(worker(rank), SWITCH, made.header, payload, checksum=True))


@FORMATS
def test_values_add_up_in_lanes_twice_as_wide(rig: Rig, lane_format: LaneFormat) -> None:
    if not may_be_narrow(rig.lanes_per_frame, LIMITED_GROWTH):
        pytest.skip("frames of this build may grow as far on the embedded switch alone: the next test")
    for number, operator in enumerate((Operator.SUM, *Operator), 1):
        payloads = [narrow(rig) for _ in range(rig.workers)]
        wide = [lanes(widened(payload, lane_format).tobytes(), lane_format) for payload in payloads]
        if number == 2:  # a switch below, or a worker whose frames may not grow, has whole lanes
            limit = 1 << (lane_format.bits - 2)
            wide[1] = RNG.integers(-limit, limit, wide[0].size)
            payloads[1] = wide[1].astype(WIDTHS[lane_format]).tobytes()
        for rank in range(rig.workers - 1):
            assert send(rig, rank, number, payloads[rank], format=lane_format, operator=operator) == {}
        answers = send(rig, rig.workers - 1, number, payloads[-1], format=lane_format, operator=operator)
        assert sorted(answers) == [rank + 1 for rank in range(rig.workers)]
        expected = reduce(COMBINATIONS[operator], wide)
        for [packet] in answers.values():
            assert (packet.header.kind, packet.header.format) == (Kind.RESULT, lane_format)
            assert packet.header.flags == Flag.PAYLOAD
            np.testing.assert_array_equal(lanes(packet.payload, lane_format), expected)
        [again] = send(rig, 1, number, payloads[1], format=lane_format, operator=operator)[2]
        np.testing.assert_array_equal(lanes(again.payload, lane_format), expected)
    assert rig.events(Reason.OVERFLOW) == 0


def test_what_is_answered_otherwise_has_no_payload(rig: Rig) -> None:
    if not may_be_narrow(rig.lanes_per_frame, LIMITED_GROWTH):
        pytest.skip("the next test")
    assert send(rig, 0, 1, narrow(rig)) == {}
    [held] = send(rig, 0, 1, narrow(rig))[1]
    [reject] = send(rig, 0, 1, narrow(rig), slot=0)[1]
    assert (held.header.kind, held.payload) == (Kind.HELD, b"")
    assert (reject.header.reason, reject.payload) == (Reason.SLOT, b"")
    for rank in range(1, rig.workers):
        answers = send(rig, rank, 1, narrow(rig), digest=5)
    assert all(packet.header.flags == Flag.MISMATCH | Flag.PAYLOAD for [packet] in answers.values())


@FORMATS
def test_it_is_refused_where_the_result_would_grow_too_far(limited_rig: Rig, lane_format: LaneFormat) -> None:
    rig, payload = limited_rig, narrow(limited_rig)
    answers = [send(rig, rank, 1, payload, format=lane_format) for rank in range(rig.workers)]
    if may_be_narrow(rig.lanes_per_frame, LIMITED_GROWTH):
        assert len(answers[-1]) == rig.workers
    else:
        for rank in range(rig.workers):
            [reject] = answers[rank][rank + 1]
            assert (reject.header.kind, reject.header.reason) == (Kind.REJECT, Reason.PADDING)
        payload = widened(payload, lane_format).tobytes()
        answers = [send(rig, rank, 1, payload, format=lane_format) for rank in range(rig.workers)]
        sums = rig.workers * lanes(payload, lane_format)
        np.testing.assert_array_equal(lanes(answers[-1][1][0].payload, lane_format), sums)


@pytest.mark.parametrize(
    "fields",
    [
        {"format": LaneFormat.INT16},
        {"format": LaneFormat.INT8},
        {"format": 5},
        {"kind": Kind.RESULT},
        {"kind": Kind.HELLO},
    ],
)
def test_no_other_frame_may_be_as_short(rig: Rig, fields: dict[str, int]) -> None:
    assert send(rig, 0, 1, narrow(rig), **fields) == {}
    assert rig.events(Reason.LENGTH) == 1


@pytest.mark.parametrize("wrong", [0, 100, -1])
def test_the_checksum_covers_it(rig: Rig, wrong: int) -> None:
    made = wire.parse_frame(rig.contribution(0, 1, format=LaneFormat.WIDENED, flags=Flag.PAYLOAD))
    assert made is not None
    frame = bytearray(wire.build_frame(worker(0), SWITCH, made.header, narrow(rig), checksum=True))
    frame[FRAME_BYTES + wrong % narrow_bytes(rig.lanes_per_frame)] ^= 1
    assert rig.send(0, bytes(frame)) == {}
    assert rig.events(Reason.CHECKSUM) == 1


def test_to_others_it_is_ordinary_traffic(rig: Rig) -> None:
    rig.engine.set_default(f"{FORWARDING}.stations", f"{FORWARDING}.flood", (FLOOD_GROUP,))
    header = Header(kind=Kind.CONTRIBUTION, format=LaneFormat.WIDENED, flags=Flag.PAYLOAD)
    frame = wire.build_frame(worker(0), worker(1), header, narrow(rig))
    frame = frame[:36] + SWITCH.port.to_bytes(2) + frame[38:]  # the service's port, at another address
    out = dict(rig.engine.process(1, frame))
    assert out[2] == frame

"""Frames that find a long queue are marked (ECN): results, and ordinary traffic whose sender obeys marks."""

from __future__ import annotations

import time
from functools import partial

import numpy as np
import pytest

from support.timing import eventually, patience
from switchsum.testing.bmv2 import Bmv2
from switchsum.testing.embedded import Embedded
from switchsum.testing.rig import FORWARDING, LIMITED_GROWTH, Rig, worker
from switchsum_protocol.frame import Reason
from switchsum_switch.wires import headers
from switchsum_switch.wires.headers import ECN_CAPABLE, ETHERNET_BYTES, IPV4_BYTES

from .conftest import BMV2, EMBEDDED, WORKERS, make_rig
from .rounds import run_round, some_lanes

MARK_FRAMES = 16
"""Of p4src/config.p4."""
MOST_ROUNDS = 60
"""A queue of BMv2 holds 64 packets."""
MARKED = 3
NO_ECT, ECT_1 = 0, 1


def ecn(frame: bytes) -> int:
    return frame[ETHERNET_BYTES + 1] & 3


def lengthen(rig: Rig, port: int, frames: int) -> None:
    """Let so many frames wait for a port."""
    assert isinstance(rig.engine, Embedded)
    rig.engine.pipeline.state.queues.cells[port, 0] = (frames, 0)


def has_completed(rig: Rig, rounds: int) -> bool:
    return rig.events(Reason.COMPLETED) == rounds


def complete(rig: Rig, number: int) -> dict[int, int]:
    """Run a round; return what the result of each port says of congestion."""
    for rank in range(rig.workers - 1):
        rig.contribute(rank, number, some_lanes(rig))
    frame = rig.contribution(rig.workers - 1, number, some_lanes(rig))
    found = {}
    for port, answer in rig.engine.process(rig.workers, frame):
        assert headers.internet_checksum(answer[ETHERNET_BYTES : ETHERNET_BYTES + IPV4_BYTES]) == 0
        found[port] = ecn(answer)
    return found


@pytest.fixture(params=EMBEDDED)
def embedded(request: pytest.FixtureRequest) -> Rig:
    return make_rig(request, growth_bytes=65535)


def test_a_result_that_finds_a_long_queue_is_marked(embedded: Rig) -> None:
    lengthen(embedded, 2, MARK_FRAMES)
    lengthen(embedded, 3, MARK_FRAMES - 1)
    assert complete(embedded, 1) == {1: ECN_CAPABLE, 2: MARKED, 3: ECN_CAPABLE, 4: ECN_CAPABLE}
    lengthen(embedded, 2, 0)
    assert set(complete(embedded, 2).values()) == {ECN_CAPABLE}


def test_sums_are_the_same_whatever_is_marked(embedded: Rig) -> None:
    for port in range(1, WORKERS + 1):
        lengthen(embedded, port, 40)
    run_round(embedded, 1)


@pytest.mark.parametrize(
    ("sent", "found"), [(NO_ECT, NO_ECT), (ECT_1, MARKED), (ECN_CAPABLE, MARKED), (MARKED, MARKED)]
)
def test_ordinary_traffic_is_marked_if_its_sender_obeys_marks(embedded: Rig, sent: int, found: int) -> None:
    embedded.engine.insert(f"{FORWARDING}.stations", (worker(1).mac,), f"{FORWARDING}.forward", (2,))
    frame = bytearray(headers.lower_headers(worker(0), worker(1), 100) + bytes(100))
    frame[ETHERNET_BYTES + 1] = sent
    ip = slice(ETHERNET_BYTES, ETHERNET_BYTES + IPV4_BYTES)
    frame[ETHERNET_BYTES + 10 : ETHERNET_BYTES + 12] = bytes(2)
    frame[ETHERNET_BYTES + 10 : ETHERNET_BYTES + 12] = headers.internet_checksum(bytes(frame[ip])).to_bytes(2)
    assert embedded.engine.process(1, bytes(frame)) == [(2, bytes(frame))]
    lengthen(embedded, 2, MARK_FRAMES)
    [(_, passed)] = embedded.engine.process(1, bytes(frame))
    assert (ecn(passed), headers.internet_checksum(passed[ip])) == (found, 0)
    assert passed[: ip.start + 1] + passed[ip.stop :] == bytes(frame[: ip.start + 1] + frame[ip.stop :])


def test_headers_with_options_are_left_alone(embedded: Rig) -> None:
    """Their checksum counts words that the parser does not take."""
    embedded.engine.insert(f"{FORWARDING}.stations", (worker(1).mac,), f"{FORWARDING}.forward", (2,))
    frame = bytearray(headers.lower_headers(worker(0), worker(1), 100) + bytes(100))
    frame[ETHERNET_BYTES] = 0x46
    lengthen(embedded, 2, MARK_FRAMES)
    assert embedded.engine.process(1, bytes(frame)) == [(2, bytes(frame))]


def test_a_frame_that_is_no_ipv4_is_left_alone(embedded: Rig) -> None:
    embedded.engine.insert(f"{FORWARDING}.stations", (worker(1).mac,), f"{FORWARDING}.forward", (2,))
    frame = worker(1).mac.to_bytes(6) + worker(0).mac.to_bytes(6) + b"\x88\xb5" + bytes(50)
    lengthen(embedded, 2, 60)
    assert embedded.engine.process(1, frame) == [(2, frame)]


@pytest.mark.parametrize("bmv2", BMV2, indirect=True)
def test_bmv2_marks_results_that_find_sixteen_in_its_queue(bmv2: Rig) -> None:
    """Its queues send slower than it adds, until more wait than are needed for a mark."""
    engine = bmv2.engine
    assert isinstance(engine, Bmv2)
    lanes = np.ones(bmv2.lanes_per_frame, np.int32)
    came: list[tuple[int, bytes]] = []
    rounds, pace_s = 0, 40e-3
    engine.pace_queues(round(1 / pace_s))
    try:
        while rounds < MOST_ROUNDS and rounds - len(came) // WORKERS < MARK_FRAMES + 4:
            began = time.monotonic()
            rounds += 1
            for rank in range(WORKERS):
                engine.send(rank + 1, bmv2.contribution(rank, rounds, lanes, slot=16 + rounds % 8))
            assert eventually(partial(has_completed, bmv2, rounds))
            came += engine.collect(bool, 1e-3)
            took_s = time.monotonic() - began
            if 4 * took_s > pace_s:  # BMv2 shares its cores with other work
                pace_s = 4 * took_s
                engine.pace_queues(max(1, round(1 / pace_s)))
        engine.pace_queues(1_000_000)
        came += engine.collect(lambda frames: len(came) + len(frames) == WORKERS * rounds, patience(60))
    finally:
        engine.pace_queues(1_000_000)
    for port in range(1, WORKERS + 1):
        marks = [ecn(frame) for at, frame in came if at == port]
        assert len(marks) == rounds
        # One is being sent, and some leave while others come.
        first = marks.index(MARKED)
        assert first > MARK_FRAMES
        assert set(marks[:first]) == {ECN_CAPABLE}
        assert marks[-1] == MARKED


@pytest.fixture
def bmv2(request: pytest.FixtureRequest) -> Rig:
    return make_rig(request, growth_bytes=LIMITED_GROWTH)

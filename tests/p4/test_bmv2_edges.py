"""Where BMv2 is sharp, shown on the real thing, and that we stay clear of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal

import numpy as np
import pytest

from support.timing import patience
from switchsum.testing.bmv2 import Bmv2
from switchsum.testing.rig import FLOOD_GROUP, GROUP, LIMITED_GROWTH, SWITCH, Rig
from switchsum_protocol.frame import Kind, Reason

pytestmark = [
    pytest.mark.bmv2,
    pytest.mark.root,
    pytest.mark.skipif(
        shutil.which("simple_switch_grpc") is None or os.geteuid() != 0,
        reason="needs simple_switch_grpc on PATH, and root",
    ),
]
WORKERS = 4
BURST = 80


def complete_without_payload(rig: Rig) -> dict[int, list[object]]:
    """Complete a round in which only the first rank has lanes; return the answers to the last one."""
    answers: dict[int, list[object]] = {}
    for rank in range(rig.workers):
        lanes = np.full(rig.lanes_per_frame, 7, dtype=np.int32) if rank == 0 else None
        answers = {port: list(packets) for port, packets in rig.contribute(rank, 1, lanes).items()}
    return answers


def test_a_frame_that_grows_too_far_stops_bmv2() -> None:
    with Bmv2(256) as bmv2:
        rig = Rig(bmv2, workers=WORKERS, lanes_per_frame=256, growth_bytes=65535)  # as if growth were unlimited
        with contextlib.suppress(ChildProcessError):  # it may be seen to have ended while we wait for an answer
            complete_without_payload(rig)
        assert bmv2.child.process.wait(timeout=patience(10)) == -signal.SIGABRT


def test_the_program_refuses_what_would_grow_too_far() -> None:
    with Bmv2(256) as bmv2:
        rig = Rig(bmv2, workers=WORKERS, lanes_per_frame=256, growth_bytes=LIMITED_GROWTH)
        rig.padding = b""
        answers = rig.contribute(0, 1)
        assert answers[1][0].header.reason == Reason.PADDING
        assert bmv2.child.process.poll() is None


def burst_survivors(bmv2: Bmv2, burst: int = BURST) -> int:
    """Send a burst while BMv2 is stopped; return how many frames it then answers."""
    rig = Rig(bmv2, workers=WORKERS, lanes_per_frame=bmv2.lanes_per_frame, growth_bytes=LIMITED_GROWTH)
    rig.contribute(0, 1)
    pid = bmv2.child.process.pid
    os.kill(pid, signal.SIGSTOP)
    for _ in range(burst):
        bmv2.send(1, rig.contribution(0, 1))  # repeats: each is answered `held`
    os.kill(pid, signal.SIGCONT)
    return len(bmv2.collect(lambda frames: len(frames) >= burst, patience_s=2.0))


def test_the_receive_ring_holds_more_without_offloads() -> None:
    with Bmv2(128, offloads=True) as bmv2:
        bmv2.lengthen_queues(BURST)  # a queue of 64 frames is full where its thread waits for a core
        with_offloads = burst_survivors(bmv2)
    with Bmv2(128) as bmv2:
        bmv2.lengthen_queues(BURST)
        without = burst_survivors(bmv2)
    assert 30 <= with_offloads < BURST  # the rest is lost, and nothing says so
    assert without == BURST


def test_a_burst_that_fills_the_ring_survives_where_egress_queues_are_as_long() -> None:
    with Bmv2(128) as bmv2:
        ring_frames = bmv2.ring_frames()
        assert ring_frames > 2 * BURST
        bmv2.lengthen_queues(1)
        with_short_queues = burst_survivors(bmv2, ring_frames)
        bmv2.reset()
        bmv2.lengthen_queues(ring_frames)
        with_long_queues = burst_survivors(bmv2, ring_frames)
    assert with_short_queues < ring_frames
    assert with_long_queues == ring_frames


def results_after_reload(bmv2: Bmv2, *, delete: bool) -> int:
    """Load the program a second time; return how many results rank 0 gets of one round."""
    Rig(bmv2, workers=WORKERS, lanes_per_frame=bmv2.lanes_per_frame, growth_bytes=LIMITED_GROWTH)
    if delete:
        bmv2.delete_group(GROUP)
        bmv2.delete_group(FLOOD_GROUP)
    bmv2.load()
    rig = Rig(bmv2, workers=WORKERS, lanes_per_frame=bmv2.lanes_per_frame, growth_bytes=LIMITED_GROWTH)
    results = complete_without_payload(rig)[1]
    assert all(packet.header.kind == Kind.RESULT and packet.source == SWITCH for packet in results)  # type: ignore[attr-defined]
    return len(results)


def test_replicas_survive_a_reload_unless_their_groups_are_deleted_first() -> None:
    with Bmv2(256) as bmv2:
        assert results_after_reload(bmv2, delete=False) == 2
    with Bmv2(256) as bmv2:
        assert results_after_reload(bmv2, delete=True) == 1


def test_a_group_whose_deletion_was_answered_too_late_does_not_stop_what_follows() -> None:
    with Bmv2(256) as bmv2:
        bmv2.set_group(GROUP, [(1, 0)])
        bmv2.delete_group(GROUP)
        bmv2._groups.add(GROUP)  # as where the answer came after the deadline
        bmv2.reset()
        bmv2.set_group(GROUP, [(1, 0)])

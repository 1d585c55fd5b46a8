"""Each way in which two processes wait for or talk to each other through memory, with a second process."""

from __future__ import annotations

import time

import numpy as np

from switchsum_switch.kernels.atomics import copy_bytes
from switchsum_switch.kernels.decorators import kernel

from .atomics_peer import RECORD, ROUNDS, Peer, meet, store, take_over


@kernel
def copy(target: int, source: int, count: int) -> None:
    copy_bytes(target, source, count)


def test_a_spin_sees_what_another_process_stores() -> None:
    with Peer("spin") as peer:
        time.sleep(0.2)  # it spins by now; if not, it finds the value at once, which is right as well
        store(peer.address, 7)  # its exit code says whether it saw this


def test_data_stored_before_a_release_is_there_after_the_acquire() -> None:
    with Peer("hand over") as peer:
        assert take_over(peer.address, ROUNDS) == 0


def test_of_two_that_look_after_a_fence_one_sees_the_other() -> None:
    with Peer("meet") as peer:
        seen = np.zeros(ROUNDS, np.uint8)
        assert meet(peer.address, 0, seen)
        peer.output.read()  # until it has ended
        assert (seen | peer.memory[RECORD:])[1:].all()


def test_copy_bytes_copies_just_these_bytes() -> None:
    source, target = np.arange(100, dtype=np.uint8), np.zeros(100, np.uint8)
    copy(target.ctypes.data + 3, source.ctypes.data + 10, 37)
    assert target[3:40].tolist() == list(range(10, 47))
    assert not target[:3].any()
    assert not target[40:].any()

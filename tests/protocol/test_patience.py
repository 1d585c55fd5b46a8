"""Who looks for frames before it sleeps, and for how long."""

from __future__ import annotations

import os

from switchsum.protocol.patience import LONGEST_S, note_wait, patience, share_cores

CORES = len(os.sched_getaffinity(0))


def test_short_waits_let_one_look_and_long_ones_do_not() -> None:
    left = patience()
    share_cores(left, CORES)
    assert left[0] == 0  # it has yet to see that waits are short
    note_wait(left, LONGEST_S / 2)
    assert left[0] == LONGEST_S
    for _ in range(10):
        note_wait(left, 1.0)
    assert left[0] == 0
    note_wait(left, LONGEST_S)
    assert left[0] == LONGEST_S


def test_where_cores_are_shared_nobody_looks() -> None:
    left = patience()
    share_cores(left, CORES)
    note_wait(left, 0.0)
    share_cores(left, CORES + 1)
    assert left[0] == 0
    note_wait(left, LONGEST_S)
    assert left[0] == 0

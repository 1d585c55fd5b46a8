"""A tree over which nothing comes, while results come over another: its first contributions are repeated."""

from __future__ import annotations

import math

import numpy as np

from switchsum.testing.cluster import ClusterConfig
from switchsum_protocol.frame import AT, Flag

from .alone import Alone, read

SLOTS = 16
CONFIG = ClusterConfig(workers=1, window_slots=SLOTS)
BLOCKS = 100 * SLOTS
_TREE = AT.tree + 1
"""The lower byte of two."""


def begun() -> tuple[Alone, list[bytes]]:
    """Begin a sum over two trees; return the first contributions, which have no lanes."""
    alone = Alone(CONFIG, trees=(SLOTS // 2, SLOTS // 2))
    alone.submit(np.ones(BLOCKS * CONFIG.lanes_per_frame, np.float32))
    frames = alone.frames()
    assert [read(frame).header.tree for frame in frames] == [0] * (SLOTS // 2) + [1] * (SLOTS // 2)
    assert not any(read(frame).payload for frame in frames)
    return alone, frames


def answers(alone: Alone, frame: bytes) -> list[bytes]:
    """Have the one switch of the test answer for both trees."""
    tree = read(frame).header.tree
    changed = bytearray(frame)
    changed[_TREE] = 0
    found = [bytearray(answer) for answer in alone.answers(bytes(changed))]
    for answer in found:
        answer[_TREE] = tree
    return [bytes(answer) for answer in found]


def play(alone: Alone, frames: list[bytes], until: float, lost_until: float) -> list[tuple[float, int, bool]]:
    """Answer each contribution over tree 0 after 1 ms, and over tree 1 from a time on; return what was sent when."""
    sent: list[tuple[float, int, bool]] = []
    now, queue = 0.0, list(frames)
    while now < until:
        coming, queue = queue, []
        now += 1e-3
        for frame in coming:
            if read(frame).header.tree == 0 or now >= lost_until:
                for answer in answers(alone, frame):
                    alone.feed(answer, now)
        alone.engine.poll(now)
        queue = alone.frames()
        sent += [(now, read(one).header.tree, bool(read(one).header.flags & Flag.REPEAT)) for one in queue]
        if not queue:
            alone.engine.note(now)
            if alone.engine.events():
                break
            now = max(now, alone.engine.wake_at - 1e-3)
    return sent


def look_at(alone: Alone) -> float:
    return float(np.asarray(alone.engine.state.core)[0]["recovery"]["look_at"])


def test_a_tree_that_is_silent_has_its_first_contributions_repeated_while_the_other_one_goes_on() -> None:
    alone, frames = begun()
    sent = play(alone, frames, until=0.15, lost_until=0.05)
    over = [at for at, tree, is_repeat in sent if tree == 1 and is_repeat]
    assert over[0] < 0.05, "its own time-out ends while results come over the other tree"
    assert not any(is_repeat for _, tree, is_repeat in sent if tree == 0)
    assert len(over) < 4 * SLOTS, "pauses grow"
    assert any(tree == 1 and not is_repeat for _, tree, is_repeat in sent), "then it goes on"
    assert look_at(alone) == math.inf


def test_trees_that_both_bring_lanes_are_not_looked_at_any_more() -> None:
    alone, frames = begun()
    assert look_at(alone) == 0.0
    sent = play(alone, frames, until=0.05, lost_until=0.0)
    assert not any(is_repeat for _, _, is_repeat in sent)
    assert {tree for _, tree, _ in sent} == {0, 1}
    assert look_at(alone) == math.inf

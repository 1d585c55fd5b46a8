"""Events come in the order of their times, and those at one time in the order in which they were added."""

from __future__ import annotations

import heapq
import random

import numpy as np
import pytest

from switchsum_lab.simulation import events
from switchsum_lab.simulation.records import WORLD, Happens, WorldRecord
from switchsum_lab.simulation.world import World
from switchsum_switch.kernels.intrinsics import carray, pointer
from switchsum_switch.kernels.loading import address_of
from switchsum_switch.kernels.memory import integers_at
from switchsum_switch.kernels.outlined import Outlined

TAKE = -1


@Outlined
def play(address: int, steps: int, count: int, taken: int) -> int:
    """Add an event at each step's time, or take the first one, and write which step added it; return how many."""
    world: WorldRecord = carray(pointer(address), (1,), WORLD)[0]
    found = 0
    for step in range(count):
        at = integers_at(steps, count)[step]
        if at >= 0:
            events.push(world, at, Happens.WAKE, step)
        else:
            integers_at(taken, count)[found] = events.index_of(events.take_first(world))
            found += 1
    return found


@pytest.mark.parametrize("after", [(0, 1, 2), (5,), (0, 1, 256, 512, 7), range(1000)], ids=str)
def test_order(after: tuple[int, ...] | range) -> None:
    rng, now, waiting = random.Random(repr(after)), 0, list[tuple[int, int]]()
    steps, expected = np.zeros(4000, np.int64), list[int]()
    for step in range(len(steps)):
        if waiting and rng.random() < (0.3 if step < 1500 else 0.6):
            steps[step] = TAKE
            now, added = heapq.heappop(waiting)
            expected.append(added)
        else:
            steps[step] = now + rng.choice(after)
            heapq.heappush(waiting, (int(steps[step]), step))
    world, taken = World(), np.zeros(len(steps), np.int64)
    count = play(address_of(world._record.view(np.int64)), address_of(steps), len(steps), address_of(taken))
    assert taken[:count].tolist() == expected

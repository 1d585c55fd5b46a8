"""The queue of events: the next few in their order, and behind them a heap of all others.

The loop looks at the next few events and fetches memory for them before their turn comes.  As long as the heap has
an event, `NEAR` events are in that order.  In the heap each event has four below it, which share a cache line.

Nothing is allocated: `WorldRecord.spare` events are free before each event is handled.
"""

from __future__ import annotations

from typing import Any, Final

import numpy.typing as npt

from switchsum.native.kernels.decorators import inner
from switchsum.native.kernels.memory import Scalar, integers_at

from .records import NEAR, WorldRecord

_KIND_BITS: Final = 3
_INDEX_BITS: Final = 22
_RING: Final = NEAR - 1
MOST_INDICES: Final = 1 << _INDEX_BITS
"""Numbers of frames, links and nodes are below this."""


@inner
def push(world: WorldRecord, at: int, kind: int, index: int) -> None:
    """Add an event at a time."""
    world.pushed += 1
    key = (world.pushed << _INDEX_BITS | index) << _KIND_BITS | kind
    count = world.near_count
    if count < NEAR:
        world.near_count = count + 1
    elif at < world.near_at[(world.near_first + count - 1) & _RING]:
        count -= 1
        last = (world.near_first + count) & _RING
        _put_aside(world, world.near_at[last], world.near_key[last])
    else:
        _put_aside(world, at, key)
        return
    # Among events at the same time this one is the last: the others were added before.
    place = (world.near_first + count) & _RING
    while count > 0:
        before = (place - 1) & _RING
        if world.near_at[before] <= at:
            break
        world.near_at[place] = world.near_at[before]
        world.near_key[place] = world.near_key[before]
        place = before
        count -= 1
    world.near_at[place] = at
    world.near_key[place] = key


@inner
def _put_aside(world: WorldRecord, at: int, key: int) -> None:
    """Put an event into the heap."""
    events = integers_at(world.events, 2 * world.event_room)
    place = world.event_count
    world.event_count = place + 1
    _lift(events, place, at, key)


@inner
def kind_of(key: int) -> Scalar:
    """Return the kind of an event, a `Happens`, from its key."""
    return key & ((1 << _KIND_BITS) - 1)


@inner
def index_of(key: int) -> Scalar:
    """Return the index of an event's link, node or frame from its key."""
    return (key >> _KIND_BITS) & (MOST_INDICES - 1)


@inner
def first_at(world: WorldRecord) -> Scalar:
    """Return when the first event happens."""
    return world.near_at[world.near_first]


@inner
def key_near(world: WorldRecord, place: int) -> Scalar:
    """Return the key of an event that is near: 0 is the next one."""
    return world.near_key[(world.near_first + place) & _RING]


@inner
def take_first(world: WorldRecord) -> Scalar:
    """Take the first event out, and return its key."""
    first = world.near_first
    key = world.near_key[first]
    world.near_first = (first + 1) & _RING
    count = world.event_count
    if count == 0:
        world.near_count -= 1
        return key
    # The first event of the heap takes a place among the near ones, behind all others.
    events = integers_at(world.events, 2 * world.event_room)
    world.near_at[first] = events[0]
    world.near_key[first] = events[1]
    count -= 1
    world.event_count = count
    if count > 0:
        _sink(events, count, events[2 * count], events[2 * count + 1])
    return key


@inner
def _lift(events: npt.NDArray[Any], place: int, at: int, key: int) -> None:
    """Put an event at its place, from the end."""
    while place > 0:
        above = (place - 1) >> 2
        if events[2 * above] < at or (events[2 * above] == at and events[2 * above + 1] < key):
            break
        events[2 * place] = events[2 * above]
        events[2 * place + 1] = events[2 * above + 1]
        place = above
    events[2 * place] = at
    events[2 * place + 1] = key


@inner
def _sink(events: npt.NDArray[Any], count: int, at: int, key: int) -> None:
    """Put an event at its place, from the top."""
    place = 0
    while True:
        least = 4 * place + 1
        if least >= count:
            break
        for other in range(least + 1, min(least + 4, count)):
            if events[2 * other] < events[2 * least] or (
                events[2 * other] == events[2 * least] and events[2 * other + 1] < events[2 * least + 1]
            ):
                least = other
        if events[2 * least] > at or (events[2 * least] == at and events[2 * least + 1] > key):
            break
        events[2 * place] = events[2 * least]
        events[2 * place + 1] = events[2 * least + 1]
        place = least
    events[2 * place] = at
    events[2 * place + 1] = key

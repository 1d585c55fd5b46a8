"""The queue of events: the next few in their order, and behind them a heap of all others.

The loop looks at the next few events and fetches memory for them before their turn comes.  As long as the heap has
an event, `NEAR` events are in that order.  In the heap each event has four below it, which share a cache line.

Nothing is allocated: `WorldRecord.spare` events are free before each event is handled.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum.native.kernels.decorators import inner
from switchsum.native.kernels.memory import Scalar, integers_at

from .records import NEAR, WorldRecord

_KIND_BITS: Final = 3
_INDEX_BITS: Final = 22
_RING: Final = NEAR - 1
_EVENT_BYTES: Final = 16
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
    place = world.event_count
    world.event_count = place + 1
    _lift(world.events, place, at, key)


@inner
def _event(events: int, place: int) -> npt.NDArray[np.int64]:
    """View time and key of an event of the heap."""
    return integers_at(events + place * _EVENT_BYTES, 2)


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
    least = _event(world.events, 0)
    world.near_at[first] = least[0]
    world.near_key[first] = least[1]
    count -= 1
    world.event_count = count
    if count > 0:
        last = _event(world.events, count)
        _sink(world.events, count, last[0], last[1])
    return key


@inner
def _lift(events: int, place: int, at: int, key: int) -> None:
    """Put an event at its place, from the end."""
    while place > 0:
        above = (place - 1) >> 2
        former = _event(events, above)
        if former[0] < at or (former[0] == at and former[1] < key):
            break
        _write(events, place, former[0], former[1])
        place = above
    _write(events, place, at, key)


@inner
def _sink(events: int, count: int, at: int, key: int) -> None:
    """Put an event at its place, from the top."""
    place = 0
    while True:
        child = 4 * place + 1
        if child >= count:
            break
        least, event = child, _event(events, child)
        least_at, least_key = event[0], event[1]
        for other in range(child + 1, min(child + 4, count)):
            event = _event(events, other)
            if event[0] < least_at or (event[0] == least_at and event[1] < least_key):
                least, least_at, least_key = other, event[0], event[1]
        if least_at > at or (least_at == at and least_key > key):
            break
        _write(events, place, least_at, least_key)
        place = least
    _write(events, place, at, key)


@inner
def _write(events: int, place: int, at: int, key: int) -> None:
    """Write time and key of an event of the heap."""
    event = _event(events, place)
    event[0] = at
    event[1] = key

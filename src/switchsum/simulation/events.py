"""The queue of events: a heap in which each event has four below it, which share a cache line.

Nothing is allocated: `WorldRecord.spare` events are free before each event is handled.
"""

from __future__ import annotations

from typing import Any, Final

import numpy.typing as npt

from switchsum.native.kernels.decorators import inner
from switchsum.native.kernels.memory import Scalar, integers_at

from .records import WorldRecord

_KIND_BITS: Final = 3
_INDEX_BITS: Final = 22
MOST_INDICES: Final = 1 << _INDEX_BITS
"""Frames, links and nodes are numbered below it."""


@inner
def push(world: WorldRecord, at: int, kind: int, index: int) -> None:
    """Let something happen at a time."""
    world.pushed += 1
    key = (world.pushed << _INDEX_BITS | index) << _KIND_BITS | kind
    events = integers_at(world.events, 2 * world.event_room)
    place = world.event_count
    world.event_count = place + 1
    _lift(events, place, at, key)


@inner
def kind_of(key: int) -> Scalar:
    """Return what happens."""
    return key & ((1 << _KIND_BITS) - 1)


@inner
def index_of(key: int) -> Scalar:
    """Return to what."""
    return (key >> _KIND_BITS) & (MOST_INDICES - 1)


@inner
def drop_first(world: WorldRecord) -> None:
    """Take the first event out."""
    events = integers_at(world.events, 2 * world.event_room)
    count = world.event_count - 1
    world.event_count = count
    if count > 0:
        _sink(events, count, events[2 * count], events[2 * count + 1])


@inner
def put_off_first(world: WorldRecord, at: int) -> None:
    """Let the first event happen again at a later time."""
    events = integers_at(world.events, 2 * world.event_room)
    world.pushed += 1
    rest = events[1] & ((1 << (_INDEX_BITS + _KIND_BITS)) - 1)
    _sink(events, world.event_count, at, world.pushed << (_INDEX_BITS + _KIND_BITS) | rest)


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

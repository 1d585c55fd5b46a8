"""The queue of events: the next few in their order, and behind them a heap of the times of all others.

The loop looks at the next few events and fetches memory for them before their turn comes.  As long as the heap has
a time, `NEAR` events are in that order.  In the heap each time has four below it, which share a cache line.

A thousand workers that do the same have thousands of events at few times.  So events at one time are a chain, in the
order in which they were added; `tails` finds the last one of most chains.  Where it does not, a time has several
chains.  Of these, the one whose first event was added first comes first, and nothing is added to it any more.

Nothing is allocated: `WorldRecord.spare` events are free before each event is handled.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.memory import Scalar, integers_at

from .records import NEAR, NONE, WorldRecord

_KIND_BITS: Final = 3
_INDEX_BITS: Final = 22
_RING: Final = NEAR - 1
_PAIR_BYTES: Final = 16
_PLACE_BITS: Final = 26
TAILS: Final = 256
"""Entries of the table `tails`."""
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
        _begin_chain(world, world.near_at[last], _set_aside(world, world.near_key[last]))
    else:
        _put_behind(world, at, _set_aside(world, key))
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
def _set_aside(world: WorldRecord, key: int) -> Scalar:
    """Give an event a place among those that are in chains; return the place."""
    place = world.free_event
    event = _pair(world.events, place)
    world.free_event = event[1]
    world.event_count += 1
    event[0] = key
    event[1] = NONE
    return place


@inner
def _put_behind(world: WorldRecord, at: int, place: int) -> None:
    """Put an event behind all others at its time."""
    tail = _tail(world, at)
    if tail[0] == at:
        _pair(world.events, tail[1])[1] = place
        tail[1] = place
        return
    tail[0] = at
    tail[1] = place
    _begin_chain(world, at, place)


@inner
def _begin_chain(world: WorldRecord, at: int, place: int) -> None:
    """Begin a chain with an event. One that is before all others at its time is not in `tails`."""
    world.chains += 1
    _lift(world.heap, world.chains - 1, at, _chain_of(world, place))


@inner
def _chain_of(world: WorldRecord, place: int) -> Scalar:
    """Return what the heap has of the chain that begins with an event: when that was added, and its place."""
    return _pair(world.events, place)[0] >> (_INDEX_BITS + _KIND_BITS) << _PLACE_BITS | place


@inner
def _pair(pairs: int, place: int) -> npt.NDArray[np.int64]:
    """View a pair: a time and a chain of the heap, or the key of an event and the place of the one behind it."""
    return integers_at(pairs + place * _PAIR_BYTES, 2)


@inner
def _tail(world: WorldRecord, at: int) -> npt.NDArray[np.int64]:
    """View the pair in `tails` that is for a time: a time, and the last event of its chain."""
    return _pair(world.tails, (at ^ at >> 8 ^ at >> 16) & (TAILS - 1))


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
    if world.event_count == 0:
        world.near_count -= 1
        return key
    # The first event of the first chain takes a place among the near ones, behind all others.
    least = _pair(world.heap, 0)
    at = least[0]
    place = least[1] & ((1 << _PLACE_BITS) - 1)
    event = _pair(world.events, place)
    world.near_at[first] = at
    world.near_key[first] = event[0]
    behind = event[1]
    event[1] = world.free_event
    world.free_event = place
    world.event_count -= 1
    if behind != NONE:
        least[1] = _chain_of(world, behind)
        return key
    tail = _tail(world, at)
    if tail[0] == at and tail[1] == place:
        tail[0] = NONE
    world.chains -= 1
    if world.chains > 0:
        last = _pair(world.heap, world.chains)
        _sink(world.heap, world.chains, last[0], last[1])
    return key


@inner
def _lift(heap: int, place: int, at: int, chain: int) -> None:
    """Put a time with its chain at its place, from the end."""
    while place > 0:
        above = (place - 1) >> 2
        former = _pair(heap, above)
        if former[0] < at or (former[0] == at and former[1] < chain):
            break
        _write(heap, place, former[0], former[1])
        place = above
    _write(heap, place, at, chain)


@inner
def _sink(heap: int, count: int, at: int, chain: int) -> None:
    """Put a time with its chain at its place, from the top."""
    place = 0
    while True:
        child = 4 * place + 1
        if child >= count:
            break
        least, pair = child, _pair(heap, child)
        least_at, least_chain = pair[0], pair[1]
        for other in range(child + 1, min(child + 4, count)):
            pair = _pair(heap, other)
            if pair[0] < least_at or (pair[0] == least_at and pair[1] < least_chain):
                least, least_at, least_chain = other, pair[0], pair[1]
        if least_at > at or (least_at == at and least_chain > chain):
            break
        _write(heap, place, least_at, least_chain)
        place = least
    _write(heap, place, at, chain)


@inner
def _write(heap: int, place: int, at: int, chain: int) -> None:
    """Write a time and its chain."""
    pair = _pair(heap, place)
    pair[0] = at
    pair[1] = chain

"""The event loop: in the order of virtual time, frames arrive at switches and hosts, which then send others.

It is one kernel.  It calls the native code of programs, engines and peers by address, so that it is compiled once for
all of them.  It returns to Python when there is something that only Python can do: give it more memory, read the log,
or look at what has finished.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from switchsum_host.engine.fetching import fetch_much
from switchsum_switch.kernels.atomics import copy_bytes
from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.intrinsics import carray, pointer
from switchsum_switch.kernels.memory import Scalar, bytes_at, call, integers_at, prefetch, words_at
from switchsum_switch.kernels.outlined import Outlined

from . import events
from .cables import catch_up, fetch_ends, fetch_link, fetch_second, first_off, next_departure, note, send
from .frames import body_at, frame_at, give_back, head_at, link_at, new_frame, node_at, row_at, start_at, take_row
from .records import (
    FRAME_BYTES,
    NEAR,
    NEVER,
    NODE_BYTES,
    NONE,
    PICOSECONDS,
    WORLD,
    Fate,
    Happens,
    Kind,
    NodeRecord,
    Stop,
    WorldRecord,
)
from .switching import enqueue, forward, serve, tick

_SECONDS: Final = 1.0 / PICOSECONDS
_WORD_BYTES: Final = 8
_PAIR_BYTES: Final = 16
_LINE_BYTES: Final = 64
_MUCH_OF_A_NODE_BYTES: Final = 320
_MIX: Final = 0x2545_F491_4F6C_DD1D


@Outlined
def run(address: int, until: int, most: int) -> int:
    """Handle events until a time is reached or a number of events is handled; return a `Stop`."""
    world: WorldRecord = carray(pointer(address), (1,), WORLD)[0]
    for _ in range(most):
        if world.near_count == 0:
            return Stop.IDLE
        if world.free_frames < world.spare or world.event_capacity - world.event_count < world.spare:
            return Stop.FULL
        if world.free_places < world.place_spare:
            return Stop.FULL
        if world.log_capacity - world.log_used < world.log_spare:
            return Stop.LOG
        at = events.first_at(world)
        if at > until:
            world.now = until
            return Stop.OVER
        world.now = at
        world.handled += 1
        key = events.take_first(world)
        _look_ahead(world)
        _handle(world, key)
        if world.failed != NONE:
            return Stop.FAILED
        if world.waiting == 0:
            return Stop.FINISHED
    return Stop.OVER


@Outlined
def wake(address: int, host: int, at: int) -> int:
    """Wake a host, or a switch with a timer, at a time: it then looks whether it has something to do."""
    world: WorldRecord = carray(pointer(address), (1,), WORLD)[0]
    node = node_at(world, host)
    if at < node.wakes_at:
        node.wakes_at = at
        events.push(world, at, Happens.WAKE, host)
    return 0


@Outlined
def bring_up_to_date(address: int, link: int) -> int:
    """Take the frames that have left out of a link's queue."""
    world: WorldRecord = carray(pointer(address), (1,), WORLD)[0]
    catch_up(world, link_at(world, link))
    return 0


@Outlined
def schedule(address: int, link: int, at: int, data: int, length: int) -> int:
    """Add the event that puts a frame on a link at a time."""
    world: WorldRecord = carray(pointer(address), (1,), WORLD)[0]
    row = take_row(world)
    copy_bytes(row_at(world, row), data, length)
    index = new_frame(world, length, row)
    frame_at(world, index).link = link
    events.push(world, at, Happens.SENT, index)
    return 0


@inner
def _handle(world: WorldRecord, key: Scalar) -> None:
    """Handle an event."""
    kind, index = events.kind_of(key), events.index_of(key)
    if kind == Happens.ARRIVAL:
        frame = first_off(world, index)
        if frame != NONE:
            _arrive(world, index, frame)
    elif kind == Happens.WAKE:
        node = node_at(world, index)
        if node.wakes_at == world.now:  # else the waking was put off, and another event will come for it
            node.wakes_at = NEVER
            then = _after_pause(node, world.now)
            if then > world.now:
                node.wakes_at = then
                events.push(world, then, Happens.WAKE, index)
            elif node.kind == Kind.SWITCH:
                tick(world, index)
            else:
                _turn(world, index, NONE, True)
    elif kind == Happens.LATE:
        _arrive(world, frame_at(world, index).link, index)
    elif kind == Happens.TAKEN:
        _take(world, index)
    elif kind == Happens.SENT:
        send(world, frame_at(world, index).link, index, world.now)
    elif kind == Happens.QUEUED:
        enqueue(world, index)
    else:
        serve(world, index)


@inner
def _look_ahead(world: WorldRecord) -> None:
    """Fetch the memory that the next events need while this one is handled: with many hosts no cache has it.

    Another record holds the address of that memory; that record is fetched while earlier events are handled.
    """
    if world.looks_ahead == 0 or world.event_count == 0:
        return  # with so few hosts, or events, everything is in the cache
    for step in range(1, NEAR):
        key = events.key_near(world, NEAR - step)
        if events.kind_of(key) == Happens.ARRIVAL:
            _fetch(world, events.index_of(key), step)


@inner
def _fetch(world: WorldRecord, number: Scalar, step: int) -> None:
    """Fetch the record that is `step` references behind a link: the link, its first frame, the node, and so on."""
    if step == 1:
        fetch_link(world, number)
        return
    link = link_at(world, number)
    node = node_at(world, link.to)
    if step == 2:
        prefetch(world.frames + link.first * FRAME_BYTES)
        _fetch_lines(head_at(world, link.first), 2 * _LINE_BYTES)
        _fetch_lines(world.nodes + link.to * NODE_BYTES, _MUCH_OF_A_NODE_BYTES)
        return
    frame = frame_at(world, link.first)
    start = start_at(world, link.first)
    body = body_at(world, link.first) if frame.head > 0 else start + node.head
    if step == 3:
        fetch_ends(world, number)
        prefetch(world.frames + frame.next * FRAME_BYTES)
        if node.kind == Kind.SWITCH:
            fetch_much(body, frame.length - frame.head)
        else:
            fetch_link(world, node.link)
            _fetch_lines(node.own, 2 * _LINE_BYTES)
        return
    if step == 4:
        fetch_second(world, number)
        prefetch(world.holders + frame.row * _WORD_BYTES)
    if node.kind == Kind.ENGINE and node.fetch != 0:
        if step == 4:
            fetch_ends(world, node.link)
        elif step == 5:
            fetch_second(world, node.link)
        call(node.fetch, node.own, start, body, step - 4)


@inner
def _fetch_lines(address: Scalar, size: Scalar) -> None:
    """Fetch some bytes at an address into the cache."""
    for offset in range(0, size, _LINE_BYTES):
        prefetch(address + offset)


@inner
def _arrive(world: WorldRecord, number: Scalar, index: Scalar) -> None:
    """Give a frame to the node at the far end of its link."""
    link = link_at(world, number)
    node = node_at(world, link.to)
    node.frames += 1
    length = frame_at(world, index).length
    world.digest = (world.digest ^ (world.now << 20 ^ number << 40 ^ length)) * _MIX
    if node.kind == Kind.LISTENER:
        world.host_turns += 1
        note(world, -1 - link.to, index, world.now, world.now, Fate.ARRIVES, True)
        give_back(world, index)
    elif node.is_slow > 0:
        if node.inbox >= node.inbox_capacity:
            node.refused += 1
            give_back(world, index)
            return
        node.inbox += 1
        node.busy = _after_pause(node, max(node.busy, world.now) + node.frame_cost + length * node.byte_cost)
        at = node.busy
        if node.batch > 0:
            if node.batch_at < world.now:
                node.batch_at = world.now + node.batch
            at = _after_pause(node, max(at, node.batch_at))
        events.push(world, at, Happens.TAKEN, index)
    elif node.kind == Kind.SWITCH:
        forward(world, link.to, link.to_port, index)
    else:
        _turn(world, link.to, index, True)


@inner
def _after_pause(node: NodeRecord, at: Scalar) -> Scalar:
    """Return a time, or the end of the node's pause if it lies in one."""
    then: Scalar = np.int64(at)
    if node.pauses != 0:
        address = node.pauses
        while integers_at(address, 2)[0] <= then:
            then = max(then, integers_at(address, 2)[1])
            address += _PAIR_BYTES
    return then


@inner
def _take(world: WorldRecord, index: Scalar) -> None:
    """Give a frame to its node, after the node's processor has spent its time on it."""
    link = link_at(world, frame_at(world, index).link)
    node = node_at(world, link.to)
    node.inbox -= 1
    if node.kind == Kind.SWITCH:
        forward(world, link.to, link.to_port, index)
    else:
        # Frames that cost nothing, and wait for the end of a pause or for a batch, are taken together.
        has_more = node.frame_cost + node.byte_cost == 0 and node.inbox % _BATCH_FRAMES > 0
        _turn(world, link.to, index, not has_more)


@inner
def _turn(world: WorldRecord, index: Scalar, frame: Scalar, acts: bool) -> None:
    """Let a host take a frame, if there is one, and if it acts do everything that it can do now."""
    node = node_at(world, index)
    world.host_turns += 1
    number = node.link
    link = link_at(world, number)
    catch_up(world, link)
    integers_at(node.consumed, 1)[0] = link.entered - link.queued + (link.settled if link.special > 0 else 0)
    clock = world.now if node.jumps == 0 else world.now + _jumped(node, world.now)
    now = clock * _SECONDS
    scratch = world.scratch
    if frame != NONE:
        words = words_at(scratch + 8, 2)
        words[0] = 0
        words[1] = frame_at(world, frame).length
        integers_at(scratch, 1)[0] = body_at(world, frame) if frame_at(world, frame).head > 0 else 0
        start = start_at(world, frame) - node.lead
        call(node.receive, node.own, start, 0, scratch + 8, scratch + 12, scratch, 1, now)
        give_back(world, frame)
        if not acts:
            return
    call(node.poll, node.own, now)
    queued = integers_at(node.queue_count, 1)[0]
    if queued > 0:
        _send_all(world, node, number, queued)
        call(node.sent, node.own, queued)
    if node.is_waited_for == 1 and integers_at(node.finished, 1)[0] > 0:
        node.is_waited_for = 0
        node.finished_at = world.now
        world.waiting -= 1
    if integers_at(node.failure, 1)[0] != 0:
        world.failed = index
    call(node.wake, node.own, scratch + 16)
    at = carray(pointer(scratch + 16), (1,), np.float64)[0]
    then: Scalar = NEVER
    if at <= _LATEST_S:
        then = max(np.int64(at * PICOSECONDS) + 1 - (clock - world.now), world.now + 1)
    if node.jumps != 0:
        then = min(then, _next_jump(node, world.now))
    if integers_at(node.blocked, 1)[0] > 0:
        then = min(then, max(next_departure(world, link), world.now + 1))
    if then < node.wakes_at:
        node.wakes_at = then
        events.push(world, then, Happens.WAKE, index)


@inner
def _jumped(node: NodeRecord, now: Scalar) -> Scalar:
    """Return how far a host's clock is ahead of the time, of all its jumps so far."""
    total: Scalar = np.int64(0)
    address = node.jumps
    while integers_at(address, 2)[0] <= now:
        total += integers_at(address, 2)[1]
        address += _PAIR_BYTES
    return total


@inner
def _next_jump(node: NodeRecord, now: Scalar) -> Scalar:
    """Return when a host's clock jumps next."""
    address = node.jumps
    while integers_at(address, 2)[0] <= now:
        address += _PAIR_BYTES
    return np.int64(integers_at(address, 2)[0])


_LATEST_S: Final = 9e6
_BATCH_FRAMES: Final = 64
"""Most frames that a host takes before it sends, as the workers' loop does."""


@inner
def _send_all(world: WorldRecord, node: NodeRecord, number: Scalar, queued: Scalar) -> None:
    """Put what a host has queued on its link, or its links."""
    rows, lengths = words_at(node.queue_rows, queued), words_at(node.queue_lengths, queued)
    routes = integers_at(node.routes, queued)
    for place in range(queued):
        length: Scalar = np.int64(lengths[place])
        start: Scalar = node.store + np.int64(rows[place]) * node.stride + node.lead
        if node.head == 0 or length <= node.head or bytes_at(start, length)[node.flags_at] & node.repeated != 0:
            row = take_row(world)
            copy_bytes(row_at(world, row), start, length)
            index = new_frame(world, length, row)
        else:
            index = new_frame(world, length, NONE)
            frame = frame_at(world, index)
            frame.head = node.head
            frame.body = node.body if node.body != 0 else start + node.head
            copy_bytes(head_at(world, index), start, node.head)
        ready: Scalar = world.now
        if node.is_slow > 0:
            node.busy = max(node.busy, world.now) + node.frame_cost + length * node.byte_cost
            ready = node.busy
        send(world, routes[place] if node.routes != 0 else number, index, ready)

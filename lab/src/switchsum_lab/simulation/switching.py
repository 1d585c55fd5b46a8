"""What a switch does with a frame: ingress, queues, egress, and what comes out on the links behind its ports.

A program that cannot tell when its packets wait runs through ingress and egress at once, when the frame arrives, and
what comes out waits on the link (`links.py`).  A port whose packets wait between the two has queues of its own, one for
each priority: native code parks them in places (`queues/parking.py`), and egress runs when the link behind the port is
free.  Both ways a frame leaves at the same time, unless egress changes its length or queues have rates or priorities.

Places lie on one stack for all switches, so that each call of a program is told how many there are.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum_switch.execution.entry import ENTRY_WORDS, call_egress, call_program
from switchsum_switch.kernels.atomics import copy_bytes
from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.intrinsics import carray, pointer
from switchsum_switch.kernels.memory import Scalar, integers_at, longs_at, words_at
from switchsum_switch.kernels.records import Table
from switchsum_switch.queues.batch import OUTPUT, OutputRecord
from switchsum_switch.queues.parking import (
    BYTES,
    DEQ_DEPTH,
    ENQ_DEPTH,
    ENQUEUED_US,
    FREE,
    PLACE_WORDS,
    POOL_WORDS,
    PORT,
    TAG,
)
from switchsum_switch.queues.parking import QUEUE as PRIORITY

from . import events
from .cables import catch_up, fetch_ends, fetch_link, fetch_second, note_length, put_on, send
from .frames import (
    frame_at,
    give_back,
    head_at,
    hold_row,
    let_row_go,
    link_at,
    new_frame,
    node_at,
    row_at,
    take_row,
    whole_at,
)
from .records import (
    HEAD_BYTES,
    NEVER,
    NONE,
    PICOSECONDS,
    PLACE,
    QUEUE,
    Fate,
    Happens,
    LinkRecord,
    NodeRecord,
    PlaceRecord,
    QueueRecord,
    WorldRecord,
)

_PORTS: Final = 0xFFFF
"""Bits of an output's port that are the port's number; those above name its queue."""
_LEAD: Final = 26
_AHEAD: Final = 3
"""A copy's link is fetched three times so many copies ahead, then the frames that it names, and then one more."""
_MICROSECOND: Final = 1_000_000


@inner
def forward(world: WorldRecord, number: Scalar, port: Scalar, index: Scalar) -> None:
    """Run a switch's program on a frame that has come, and put what comes out on its links or into its queues."""
    node = node_at(world, number)
    scratch = world.scratch
    integers_at(scratch, 1)[0] = whole_at(world, index)
    words_at(scratch + 8, 2)[0] = frame_at(world, index).length
    words_at(scratch + 8, 2)[1] = port
    free = world.free_places
    if node.pool != 0:
        integers_at(node.pool, POOL_WORDS)[FREE] = free
    entry = integers_at(node.entry, ENTRY_WORDS)
    call_program(entry, scratch, scratch + 8, scratch + 12, 1, world.now // _MICROSECOND)
    give_back(world, index)
    _put_out(world, node, NONE, world.now, np.int64(0))
    if node.pool != 0:
        parked = _list_parked(world, node, free)
        _queue_parked(world, node, parked)
    _set_timer(world, node, number)


@inner
def tick(world: WorldRecord, number: Scalar) -> None:
    """Call a switch without a frame, because the time has come for which it has asked; put out what it sends."""
    node = node_at(world, number)
    scratch = world.scratch
    entry = integers_at(node.entry, ENTRY_WORDS)
    call_program(entry, scratch, scratch + 8, scratch + 12, 0, world.now // _MICROSECOND)
    _put_out(world, node, NONE, world.now, np.int64(0))
    _set_timer(world, node, number)


@inner
def _set_timer(world: WorldRecord, node: NodeRecord, number: Scalar) -> None:
    """Let a switch be called at the time for which it asks, if it has a timer."""
    if node.own == 0:
        return
    at = integers_at(node.own, 1)[0]
    if at < node.wakes_at:  # later times are looked at when it is called at the earlier one
        node.wakes_at = max(at, world.now)
        events.push(world, node.wakes_at, Happens.WAKE, number)


@inner
def enqueue(world: WorldRecord, number: Scalar) -> None:
    """Put the packet in a place into the queue of its port, or drop it."""
    place = places_of(world)[number]
    link = link_at(world, place.link)
    words = integers_at(place.address, PLACE_WORDS)
    queue = queues_of(link)[words[PRIORITY]]
    size = words[BYTES]
    catch_up(world, link)
    is_full = queue.count + link.queued >= link.queue_frames or queue.count >= queue.most_frames
    is_full = is_full or queue.bytes + link.queued_bytes + size > link.queue_bytes
    if is_full or queue.bytes + size > queue.most_bytes:
        link.dropped += 1
        queue.dropped += 1
        if link.logged > 0:
            note_length(world, place.link, size, world.now, world.now, np.int64(Fate.DROPPED))
        _free_place(world, number)
        return
    place.marked = 1 if link.queued_bytes + link.waiting_bytes > link.mark_bytes else 0
    place.at = world.now
    place.next = NONE
    words[ENQ_DEPTH] = queue.count
    if queue.count == 0:
        queue.first = number
    else:
        places_of(world)[queue.last].next = number
    queue.last = number
    queue.count += 1
    queue.bytes += size
    link.waiting += 1
    link.waiting_bytes += size
    link.most_queued = max(link.most_queued, link.queued + link.waiting)
    link.most_queued_bytes = max(link.most_queued_bytes, link.queued_bytes + link.waiting_bytes)
    _look_again(world, link, place.link)


@inner
def serve(world: WorldRecord, number: Scalar) -> None:
    """Let the next packet before a link go through egress, if it may."""
    link = link_at(world, number)
    if link.serves_at != world.now:  # the time was changed: another event will come for it, or has come
        return
    link.serves_at = NEVER
    choice = _next_queue(world, link)
    if choice == NONE:
        return
    queue = queues_of(link)[choice]
    if _due(world, link, queue) > world.now:
        _look_again(world, link, number)
        return
    catch_up(world, link)
    first = queue.first
    place = places_of(world)[first]
    words = integers_at(place.address, PLACE_WORDS)
    size = words[BYTES]
    queue.first = place.next
    queue.count -= 1
    queue.bytes -= size
    link.waiting -= 1
    link.waiting_bytes -= size
    words[DEQ_DEPTH] = queue.count
    link.paced_until = world.now + _lasts(link.pace, link.pace_bits_per_s, size)
    queue.paced_until = world.now + _lasts(queue.pace, queue.pace_bits_per_s, size)
    node = node_at(world, link.tail)
    free = world.free_places
    integers_at(node.pool, POOL_WORDS)[FREE] = free
    integers_at(world.scratch, 1)[0] = place.address
    call_egress(integers_at(node.entry, ENTRY_WORDS), world.scratch, 1, world.now // _MICROSECOND)
    _put_out(world, node, number, place.at, place.marked)
    parked = _list_parked(world, node, free)
    _free_place(world, first)
    _queue_parked(world, node, parked)
    _look_again(world, link, number)


@inner
def places_of(world: WorldRecord) -> Table[PlaceRecord]:
    """View the records of the places."""
    return carray(pointer(world.parked), (world.place_count,), PLACE)  # type: ignore[no-any-return]


@inner
def queues_of(link: LinkRecord) -> Table[QueueRecord]:
    """View the queues before a link."""
    return carray(pointer(link.queues), (link.queue_count,), QUEUE)  # type: ignore[no-any-return]


@inner
def _next_queue(world: WorldRecord, link: LinkRecord) -> Scalar:
    """Return the queue whose first packet may go first; if several may, the highest number; NONE: all are empty."""
    queues = queues_of(link)
    best, choice = np.int64(NEVER), np.int64(NONE)
    for number in range(link.queue_count):
        queue = queues[number]
        if queue.count > 0 and _due(world, link, queue) <= best:
            best, choice = _due(world, link, queue), np.int64(number)
    return choice


@inner
def _due(world: WorldRecord, link: LinkRecord, queue: QueueRecord) -> Scalar:
    """Return when the first packet of a queue may go."""
    return max(world.now, link.busy, link.paced_until, queue.paced_until)


@inner
def _look_again(world: WorldRecord, link: LinkRecord, number: Scalar) -> None:
    """Let a link look into its queues when the next packet may go."""
    choice = _next_queue(world, link)
    if choice == NONE:
        return
    due = _due(world, link, queues_of(link)[choice])
    if due < link.serves_at:
        link.serves_at = due
        events.push(world, due, Happens.SERVED, number)


@inner
def _lasts(pace: Scalar, bits_per_s: Scalar, size: Scalar) -> Scalar:
    """Return how long a link sends no other packet after this one."""
    return max(pace, size * 8 * PICOSECONDS // bits_per_s) if bits_per_s > 0 else pace


@inner
def _list_parked(world: WorldRecord, node: NodeRecord, free: Scalar) -> Scalar:
    """Return the first of the places that a call has taken, since `free` of them were free; each leads to the next.

    The stack names these places only until a place is given back.
    """
    world.free_places = integers_at(node.pool, POOL_WORDS)[FREE]
    addresses, places = integers_at(world.places, world.place_count), places_of(world)
    first: Scalar = np.int64(NONE)
    for at in range(world.free_places, free):
        number = integers_at(addresses[at], PLACE_WORDS)[TAG]
        places[number].next = first
        first = number
    return first


@inner
def _queue_parked(world: WorldRecord, node: NodeRecord, number: Scalar) -> None:
    """Bring packets that ingress has parked to their queues, now or when the switch has processed them."""
    while number != NONE:
        place = places_of(world)[number]
        following = place.next
        words = integers_at(place.address, PLACE_WORDS)
        place.link = _link_behind(node, words[PORT])
        words[ENQUEUED_US] = (world.now + node.processing) // _MICROSECOND
        if node.processing > 0:
            events.push(world, world.now + node.processing, Happens.QUEUED, number)
        else:
            enqueue(world, number)
        number = following


@inner
def _free_place(world: WorldRecord, number: Scalar) -> None:
    """Put a place back on the stack."""
    if number >= world.least_place:
        integers_at(world.places, world.place_count)[world.free_places] = places_of(world)[number].address
        world.free_places += 1


@inner
def _put_out(world: WorldRecord, node: NodeRecord, served: Scalar, since: Scalar, marked: Scalar) -> None:
    """Put the frames of a program on their links; a frame for the link `served` has waited since the time `since`."""
    made: Scalar = np.int64(longs_at(node.result, 2)[0])
    lost: Scalar = np.int64(longs_at(node.result, 2)[1])
    node.overflowed += lost
    if made == 0:
        return
    output: OutputRecord = carray(pointer(node.output), (1,), OUTPUT)[0]
    ports, lengths, heads = words_at(output.ports, made), words_at(output.lengths, made), words_at(output.heads, made)
    addresses, bodies = longs_at(output.addresses, made), longs_at(output.bodies, made)
    whole: Scalar = np.int64(0)  # the last whole frame of the output, and its row
    kept: Scalar = np.int64(NONE)
    for place in range(made):
        _look_ahead(world, node, ports, place)
        length: Scalar = np.int64(lengths[place])
        address: Scalar = np.int64(addresses[place])
        body: Scalar = np.int64(bodies[place])
        if body == 0:
            if kept != NONE:
                let_row_go(world, kept)
            whole, kept = address, np.int64(NONE)
            if length <= world.frame_bytes:
                kept = take_row(world)
                copy_bytes(row_at(world, kept), address, length)
        if kept == NONE or length > world.frame_bytes:
            node.overflowed += 1
            continue
        out = _link_behind(node, np.int64(ports[place]) & _PORTS)
        if out == NONE:
            node.astray += 1
            node.astray_port = int(ports[place]) & _PORTS
            continue
        hold_row(world, kept)
        copy = new_frame(world, length, kept)
        if body != 0:
            _make_copy(world, copy, address, np.int64(heads[place]), body - whole)
        if out == served:
            put_on(world, out, copy, world.now, since, marked)
        elif served == NONE and node.processing > 0:
            frame_at(world, copy).link = out
            events.push(world, world.now + node.processing, Happens.SENT, copy)
        else:
            send(world, out, copy, world.now)
    if kept != NONE:
        let_row_go(world, kept)


@inner
def _look_ahead(world: WorldRecord, node: NodeRecord, ports: npt.NDArray[np.uint32], place: int) -> None:
    """Fetch the records that the next copies of a multicast need into the cache."""
    if place + 3 * _AHEAD < len(ports):
        link = _link_behind(node, np.int64(ports[place + 3 * _AHEAD]) & _PORTS)
        if link != NONE:
            fetch_link(world, link)
    if place + 2 * _AHEAD < len(ports):
        link = _link_behind(node, np.int64(ports[place + 2 * _AHEAD]) & _PORTS)
        if link != NONE:
            fetch_ends(world, link)
    if place + _AHEAD < len(ports):
        link = _link_behind(node, np.int64(ports[place + _AHEAD]) & _PORTS)
        if link != NONE:
            fetch_second(world, link)


@inner
def _link_behind(node: NodeRecord, port: Scalar) -> Scalar:
    """Return the link behind a port."""
    if port >= node.port_count:
        return NONE
    return integers_at(node.ports, node.port_count)[port]


@inner
def _make_copy(world: WorldRecord, index: Scalar, address: Scalar, head: Scalar, offset: Scalar) -> None:
    """Make a frame of the head at an address, and of the bytes from `offset` on in the frame in its row."""
    frame = frame_at(world, index)
    if head + _LEAD <= HEAD_BYTES and head > 0:
        frame.head = head
        frame.body = offset
        copy_bytes(head_at(world, index), address, head)
        return
    row = take_row(world)
    start = row_at(world, row)
    copy_bytes(start, address, head)
    copy_bytes(start + head, row_at(world, frame.row) + offset, frame.length - head)
    let_row_go(world, frame.row)
    frame.row = row

"""What a link does to a frame: queue or drop it, mark it, send it, lose it, send it twice, or let others overtake it.

A link keeps its frames in one list, in the order in which they arrive: those in the queue, of which the first is being
sent, behind those that are on the cable.  Service is in order, so that a frame's time of departure is known when it
arrives.  `departing` is the first frame that has not left; `catch_up` brings it up to date before each use.

Packets that wait between ingress and egress (`switching.py`) are not on the link yet; they count in its longest queue.

Chance is drawn by counting: what happens to the n-th frame of a link depends on the link's seed and n alone.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from switchsum_switch.kernels.atomics import copy_bytes
from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.intrinsics import carray, pointer
from switchsum_switch.kernels.memory import Scalar, integers_at, prefetch
from switchsum_switch.kernels.mixing import drawn_at

from . import events
from .frames import copy_to, frame_at, give_back, head_at, hold_row, link_at, mark, new_frame
from .records import (
    BEHIND,
    FRAME_BYTES,
    LINK_BYTES,
    LOG,
    LOG_BYTES,
    NEVER,
    NONE,
    PICOSECONDS,
    Fate,
    Happens,
    LinkRecord,
    LogRecord,
    WorldRecord,
)

_DRAWS: Final = 4
"""Random numbers for each frame."""
_LOSS, _BURST, _LATE, _LATE_BY = range(_DRAWS)
_ONE: Final = 1.0 / (1 << 32)
_TWICE, _TWICE_BY = range(2)
_OTHERWISE: Final = 0x9E37_79B9
"""Makes another seed of a link's, for draws that most links do without."""
_LINE_BYTES: Final = 64
_MUCH_OF_A_LINK_BYTES: Final = 192


@inner
def send(world: WorldRecord, number: Scalar, index: Scalar, ready: Scalar) -> None:
    """Put a frame on a link, which sends it at the time `ready` at the earliest; or drop it."""
    link = link_at(world, number)
    length = frame_at(world, index).length
    catch_up(world, link)
    if link.queued >= link.queue_frames or link.queued_bytes + length > link.queue_bytes:
        link.dropped += 1
        if link.special > 0:
            if link.departing == NONE:
                link.settled += 1
            else:
                frame_at(world, link.last).fate += BEHIND
        if link.logged > 0:
            note(world, number, index, ready, ready, Fate.DROPPED, link.logged > 1)
        give_back(world, index)
        return
    put_on(world, number, index, ready, ready, link.queued_bytes > link.mark_bytes)


@inner
def put_on(
    world: WorldRecord, number: Scalar, index: Scalar, ready: Scalar, since: Scalar, marks: Scalar | bool
) -> None:
    """Put a frame, which has waited since a time, on a link whose queue is up to date and has room; mark it or not."""
    link = link_at(world, number)
    if marks and mark(world, index):
        link.marked += 1
    frame = frame_at(world, index)
    link.entered += 1
    link.bytes += frame.length
    link.queued += 1
    link.queued_bytes += frame.length
    link.most_queued = max(link.most_queued, link.queued + link.waiting)
    link.most_queued_bytes = max(link.most_queued_bytes, link.queued_bytes + link.waiting_bytes)
    start = max(ready, link.busy)
    link.waited += start - since
    frame.link = number
    frame.next = NONE
    if link.special == 0:
        link.busy = start + (frame.length + link.overhead) * 8 * PICOSECONDS // link.bits_per_s
        frame.fate = Fate.ARRIVES
    else:
        link.busy = _departure(link, frame.length, start)
        frame.fate = _fate(link)
    frame.departs = link.busy
    if link.logged > 0:
        note(world, number, index, since, frame.departs, frame.fate, link.logged > 1)
    if link.departing == NONE:
        link.departing = index
    if link.first == NONE:
        link.first = index
        events.push(world, frame.departs + link.delay, Happens.ARRIVAL, number)
    else:
        frame_at(world, link.last).next = index
    link.last = index


@inner
def _departure(link: LinkRecord, length: Scalar, start: Scalar) -> Scalar:
    """Return when the last bit of a frame has left a link that begins to send it at `start`."""
    bits = (length + link.overhead) * 8
    lasts = bits * PICOSECONDS // (link.bits_per_s if link.steps == 0 else _rate_at(link, start))
    if link.bucket == 0:
        return start + lasts
    # A token bucket: the link may be ahead of its rate by so much, and sends at a higher rate as long as it is.
    start = max(start, link.allowed - link.bucket)
    link.allowed = max(link.allowed, start) + lasts
    return start + bits * PICOSECONDS // link.burst_bits_per_s


@inner
def _rate_at(link: LinkRecord, at: Scalar) -> Scalar:
    """Return the bits a second of a link at a time, if its rate changes."""
    steps, rate = integers_at(link.steps, 2 * link.step_count), link.bits_per_s
    for place in range(link.step_count):
        if steps[2 * place] <= at:
            rate = steps[2 * place + 1]
    return rate


@inner
def _fate(link: LinkRecord) -> Scalar:
    """Draw at random what becomes of the frame that has just entered the queue."""
    number = link.entered - 1
    if link.chosen_next < link.chosen_count and integers_at(link.chosen, link.chosen_count)[link.chosen_next] == number:
        link.chosen_next += 1
        return np.int64(Fate.LOST)
    if link.burst_begins > 0:
        turns = link.burst_ends if link.in_burst else link.burst_begins
        if draw(link, number, _BURST) < turns:
            link.in_burst = 1 - link.in_burst
        if link.in_burst:
            return np.int64(Fate.LOST)
    if link.loss > 0 and draw(link, number, _LOSS) < link.loss:
        return np.int64(Fate.LOST)
    if link.late > 0 and draw(link, number, _LATE) < link.late:
        return np.int64(Fate.LATE)
    return np.int64(Fate.ARRIVES)


@inner
def draw(link: LinkRecord, number: Scalar, what: Scalar) -> float:
    """Return a random number from 0 to below 1, which belongs to a frame and a `draw`."""
    return np.int64(drawn_at(np.uint32(link.seed), np.uint32(number * _DRAWS + what))) * _ONE


@inner
def _draw_otherwise(link: LinkRecord, number: Scalar, what: Scalar) -> float:
    """Return another such number: links that need none of these draw the others as they always did."""
    return np.int64(drawn_at(np.uint32(link.seed ^ _OTHERWISE), np.uint32(number * _DRAWS + what))) * _ONE


@inner
def fetch_link(world: WorldRecord, number: Scalar) -> None:
    """Fetch the part of a link's record that each frame needs into the cache."""
    at = world.links + number * LINK_BYTES
    for offset in range(0, _MUCH_OF_A_LINK_BYTES, _LINE_BYTES):
        prefetch(at + offset)


@inner
def fetch_ends(world: WorldRecord, number: Scalar) -> None:
    """Fetch the last frame of a link, behind which the next one will lie, and the first one that may have left."""
    link = link_at(world, number)
    prefetch(world.frames + link.last * FRAME_BYTES)
    prefetch(world.frames + link.departing * FRAME_BYTES)


@inner
def fetch_second(world: WorldRecord, number: Scalar) -> None:
    """Fetch the frame behind the first one that may have left: its time of departure is looked at, too."""
    link = link_at(world, number)
    if link.departing != NONE:
        prefetch(world.frames + frame_at(world, link.departing).next * FRAME_BYTES)


@inner
def catch_up(world: WorldRecord, link: LinkRecord) -> None:
    """Take frames that have left the link out of its queue."""
    while link.departing != NONE:
        frame = frame_at(world, link.departing)
        if frame.departs > world.now:
            break
        link.queued -= 1
        link.queued_bytes -= frame.length
        link.departing = frame.next
        if link.special > 0:
            link.settled += frame.fate // BEHIND


@inner
def first_off(world: WorldRecord, number: Scalar) -> Scalar:
    """Take the first frame, which arrives now, off its link; return its index, or NONE if it was lost.

    The event of the arrival has been taken out before.
    """
    link = link_at(world, number)
    catch_up(world, link)
    index = link.first
    frame = frame_at(world, index)
    link.first = frame.next
    if frame.next == NONE:
        link.last = NONE
    else:
        events.push(world, frame_at(world, frame.next).departs + link.delay, Happens.ARRIVAL, number)
    if link.special == 0:
        return index
    fate = frame.fate % BEHIND
    if fate == Fate.LOST or (link.outage_count > 0 and _was_down(link, frame.departs, world.now)):
        link.lost += 1
        give_back(world, index)
        return np.int64(NONE)
    if link.twice > 0:
        _arrive_twice(world, link, index)
    if fate == Fate.LATE:
        late: Scalar = np.int64(draw(link, frame.departs & 0x3FFF_FFFF, _LATE_BY) * link.late_by)
        events.push(world, world.now + 1 + late, Happens.LATE, index)
        return np.int64(NONE)
    return index


@inner
def _arrive_twice(world: WorldRecord, link: LinkRecord, index: Scalar) -> None:
    """Draw whether a frame that arrives now comes a second time, and when; the second one shares its bytes."""
    frame = frame_at(world, index)
    number = frame.departs & 0x3FFF_FFFF
    if _draw_otherwise(link, number, _TWICE) >= link.twice:
        return
    again = new_frame(world, frame.length, frame.row)
    second = frame_at(world, again)
    second.link = frame.link
    if frame.row != NONE:
        hold_row(world, frame.row)
    if frame.head > 0:
        second.head = frame.head
        second.body = frame.body
        copy_bytes(head_at(world, again), head_at(world, index), frame.head)
    later: Scalar = np.int64(_draw_otherwise(link, number, _TWICE_BY) * link.late_by)
    events.push(world, world.now + 1 + later, Happens.LATE, again)


@inner
def _was_down(link: LinkRecord, departed: Scalar, arrived: Scalar) -> bool:
    """Tell whether a link was down at any time while a frame was on it."""
    outages = integers_at(link.outages, 2 * link.outage_count)
    for place in range(link.outage_count):
        if outages[2 * place] <= arrived and departed < outages[2 * place + 1]:
            return True
    return False


@inner
def next_departure(world: WorldRecord, link: LinkRecord) -> Scalar:
    """Return when the next frame leaves the queue."""
    return np.int64(NEVER) if link.departing == NONE else frame_at(world, link.departing).departs


@inner
def note(
    world: WorldRecord, index: Scalar, frame: Scalar, at: Scalar, departs: Scalar, fate: Scalar, with_bytes: bool
) -> None:
    """Write a frame into the log; `index` as in `LogRecord`."""
    length = frame_at(world, frame).length
    note_length(world, index, length, at, departs, fate)
    if with_bytes:
        entry: LogRecord = carray(pointer(world.log + world.log_used - LOG_BYTES), (1,), LOG)[0]
        entry.stored = length
        copy_to(world, frame, world.log + world.log_used)
        world.log_used += (length + 7) // 8 * 8


@inner
def note_length(world: WorldRecord, index: Scalar, length: Scalar, at: Scalar, departs: Scalar, fate: Scalar) -> None:
    """Write a packet that is no frame yet into the log, as far as it is known."""
    entry: LogRecord = carray(pointer(world.log + world.log_used), (1,), LOG)[0]
    entry.at = at
    entry.departs = departs
    entry.length = length
    entry.index = index
    entry.fate = fate
    entry.stored = 0
    world.log_used += LOG_BYTES

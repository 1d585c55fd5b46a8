"""The operations of a shared-memory link, for the engine's loop: frames stay where they are, nothing is copied.

Waking up is what small messages cost.  So a wait looks for frames for a short while, as long as that has paid lately
(native/patience.py), and asks to be rung only then.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from switchsum.native import ring
from switchsum.native.kernels import Outlined, carray, inner
from switchsum.native.memory import integers_at, pointer
from switchsum.native.patience import FIELDS, Patience, give_way, look_until, note_wait
from switchsum.native.records import Int64, Record, dtype_of
from switchsum.native.system import READY, monotonic, poll, ring_bell, silence_bell

from ..engine.loop import LINK, LinkRecord, Stop
from .native import nanoseconds, tell_time

TURN_BYTES: Final = 64 << 10
"""Results that are taken before the contributions that follow them are handed over: meanwhile the switch adds those."""


class Own(Record):
    """What only the operations of such a link know."""

    ring: Int64
    """Address of the words of the two outboxes (native/ring.py)."""
    most: Int64
    """Frames that are taken at a time, for as many rows, lengths and bodies there is room."""
    watched: Int64
    """Address: the own bell, and the connection, which hangs up when the switch does."""
    switch_bell: Int64


OWN: Final = dtype_of(Own)


@Outlined
def _take(link: int) -> int:
    here: LinkRecord = carray(pointer(link), (1,), LINK)[0]
    own: Own = carray(pointer(here.own), (1,), OWN)[0]
    rows = carray(pointer(here.rows), (own.most,), np.int32)
    lengths = carray(pointer(here.lengths), (own.most,), np.int32)
    return int(ring.take(integers_at(own.ring, ring.LINK_FIELDS), rows, lengths, integers_at(here.bodies, own.most)))


@Outlined
def _release(link: int) -> int:
    here: LinkRecord = carray(pointer(link), (1,), LINK)[0]
    own: Own = carray(pointer(here.own), (1,), OWN)[0]
    ring.release(integers_at(own.ring, ring.LINK_FIELDS))
    return 0


@Outlined
def _send(link: int) -> int:
    here: LinkRecord = carray(pointer(link), (1,), LINK)[0]
    own: Own = carray(pointer(here.own), (1,), OWN)[0]
    words = integers_at(own.ring, ring.LINK_FIELDS)
    rows = carray(pointer(here.queue_rows), (here.queued,), np.int32)
    lengths = carray(pointer(here.queue_lengths), (here.queued,), np.int32)
    _, asleep = ring.push(words, rows, lengths)
    if asleep:
        ring_bell(own.switch_bell)
    here.pushed = words[ring.HEAD]
    return 0


@Outlined
def _consumed(link: int) -> int:
    here: LinkRecord = carray(pointer(link), (1,), LINK)[0]
    own: Own = carray(pointer(here.own), (1,), OWN)[0]
    words = integers_at(own.ring, ring.LINK_FIELDS)
    count = ring.consumed(words)
    if words[ring.BROKEN] != 0:
        here.stop = Stop.BROKEN
    return int(count)


@Outlined
def _wait(link: int) -> int:
    here: LinkRecord = carray(pointer(link), (1,), LINK)[0]
    own: Own = carray(pointer(here.own), (1,), OWN)[0]
    words = integers_at(own.ring, ring.LINK_FIELDS)
    watched = carray(pointer(own.watched), (2, 2), np.int32)
    patience = carray(pointer(here.patience), (FIELDS,), np.float64)
    began = monotonic()
    if _look(words, patience, began, here.until) or not ring.fall_asleep(words):
        note_wait(patience, True, monotonic() - began)
        return 1
    ready = poll(own.watched, 2, nanoseconds(here.until - monotonic()))
    ring.set_sleeping(words, 0)
    note_wait(patience, False, monotonic() - began)
    if ready > 0:
        if watched[1, 1] & READY:
            here.stop = Stop.HUNG_UP
            return 0
        silence_bell(watched[0, 0])
    came = ring.waiting(words) > 0
    if words[ring.BROKEN] != 0:
        here.stop = Stop.BROKEN
    return int(came)


@inner
def _look(words: ring.RingPair, patience: Patience, now: float, until: float) -> bool:
    """Look for frames for as long as patience allows, and the clock; True when frames have come."""
    until = min(until, look_until(patience, now))
    while ring.waiting(words) <= 0:
        if now >= until:
            return False
        now = give_way(patience, now)
    return True


SHM_OPERATIONS: Final = {
    "take": _take,
    "release": _release,
    "send": _send,
    "consumed": _consumed,
    "wait": _wait,
    "now": tell_time,
}

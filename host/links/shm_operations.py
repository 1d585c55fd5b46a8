"""The operations of a shared-memory link, for the engine's loop: frames stay where they are, nothing is copied.

Waking up is what small messages cost.  So a wait looks for frames for a short while, as long as that has paid lately
(native/process/patience.py), and asks to be rung only then.
"""

from __future__ import annotations

import numpy as np

from switchsum.native.kernels.decorators import inner
from switchsum.native.kernels.intrinsics import carray, pointer
from switchsum.native.kernels.memory import integers_at
from switchsum.native.kernels.outlined import Outlined
from switchsum.native.process.patience import FIELDS, Patience, give_way, look_until, note_wait
from switchsum.native.process.system import READY, monotonic, poll, ring_bell, silence_bell
from switchsum.native.wires import outbox, ring

from ..engine.link import LINK, LinkRecord, Stop
from .common_operations import nanoseconds
from .shm import OWN, Own


@Outlined
def take(link: int) -> int:
    """Take frames from the switch's outbox."""
    here: LinkRecord = carray(pointer(link), (1,), LINK)[0]
    own: Own = carray(pointer(here.own), (1,), OWN)[0]
    rows = carray(pointer(here.rows), (own.most,), np.int32)
    lengths = carray(pointer(here.lengths), (own.most,), np.int32)
    return int(ring.take(integers_at(own.ring, outbox.LINK_FIELDS), rows, lengths, integers_at(here.bodies, own.most)))


@Outlined
def release(link: int) -> int:
    """Let the switch have their rows."""
    here: LinkRecord = carray(pointer(link), (1,), LINK)[0]
    own: Own = carray(pointer(here.own), (1,), OWN)[0]
    ring.release(integers_at(own.ring, outbox.LINK_FIELDS))
    return 0


@Outlined
def send(link: int) -> int:
    """Name what is queued in the own outbox."""
    here: LinkRecord = carray(pointer(link), (1,), LINK)[0]
    own: Own = carray(pointer(here.own), (1,), OWN)[0]
    words = integers_at(own.ring, outbox.LINK_FIELDS)
    rows = carray(pointer(here.queue_rows), (here.queued,), np.int32)
    lengths = carray(pointer(here.queue_lengths), (here.queued,), np.int32)
    _, asleep = ring.push(words, rows, lengths)
    if asleep:
        ring_bell(own.switch_bell)
    here.pushed = words[outbox.HEAD]
    return 0


@Outlined
def consumed(link: int) -> int:
    """Return how many frames the switch has taken."""
    here: LinkRecord = carray(pointer(link), (1,), LINK)[0]
    own: Own = carray(pointer(here.own), (1,), OWN)[0]
    words = integers_at(own.ring, outbox.LINK_FIELDS)
    count = ring.consumed(words)
    if words[outbox.BROKEN] != 0:
        here.stop = Stop.BROKEN
    return int(count)


@Outlined
def wait(link: int) -> int:
    """Look for frames for a while, then sleep."""
    here: LinkRecord = carray(pointer(link), (1,), LINK)[0]
    own: Own = carray(pointer(here.own), (1,), OWN)[0]
    words = integers_at(own.ring, outbox.LINK_FIELDS)
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
    if words[outbox.BROKEN] != 0:
        here.stop = Stop.BROKEN
    return int(came)


@inner
def _look(words: outbox.RingPair, patience: Patience, now: float, until: float) -> bool:
    """Look for frames for as long as patience allows, and the clock; True when frames have come."""
    until = min(until, look_until(patience, now))
    while ring.waiting(words) <= 0:
        if now >= until:
            return False
        now = give_way(patience, now)
    return True

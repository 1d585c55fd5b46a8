"""Kernels of the shared-memory ports: they do for all links of a switch what ring.py does for one.

Two things are more than a loop over links.  `collect` takes frames from the workers in turns of `_TURN`, so that frames
of the same slot come one after the other: the program then finds the slot's cell in the cache.  `transmit` copies the
body of a multicast once, into memory that all workers share (bodies.py), and for each worker only the head.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from switchsum_switch.kernels.atomics import fence, same_bytes
from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.intrinsics import carray, pointer
from switchsum_switch.kernels.memory import integers_at
from switchsum_switch.kernels.outlined import Outlined
from switchsum_switch.process.patience import FIELDS, give_way, look_until
from switchsum_switch.process.system import monotonic, ring_bell
from switchsum_switch.wires import outbox, ring
from switchsum_switch.wires.bodies import free_if_unread, put_body
from switchsum_switch.wires.headers import HEAD_BYTES

from ..queues.queues import PORTS
from ..queues.replicas import complete
from .base import BATCH, Addresses, BatchRecord, PortCounter, Words
from .operations import GROUP, GroupRecord, Indices, Kind, batch_at, counters_at, output_at

MAX_WORKERS: Final = 256
_SHARED_BYTES: Final = 512
"""Shorter frames are copied whole: to compare their bodies would cost as much."""
_TURN: Final = 8
"""Frames that are taken from one worker before the next one's turn."""


Links = npt.NDArray[np.int64]


class ShmWords(NamedTuple):
    """All shared-memory ports, as kernels see them."""

    links: Links
    """A row for each link, `[MAX_WORKERS, LINK_FIELDS]`."""
    active: Indices
    """The rows of `links` that are in use.  In Python this array is longer: only its first `known` rows are in use."""
    port_of_link: Indices
    link_of_port: Indices
    """The row in `links` for each port number; -1: no link."""
    bells: npt.NDArray[np.int64]
    """The eventfd that wakes the worker of each link."""
    known: npt.NDArray[np.int64]
    """How many links are in use."""


def shm_words() -> ShmWords:
    """Return the words of links none of which is in use."""
    return ShmWords(
        links=np.zeros((MAX_WORKERS, outbox.LINK_FIELDS), np.int64),
        active=np.zeros(MAX_WORKERS, np.int32),
        port_of_link=np.zeros(MAX_WORKERS, np.int32),
        link_of_port=np.full(PORTS, -1, np.int32),
        bells=np.zeros(MAX_WORKERS, np.int64),
        known=np.zeros(1, np.int64),
    )


@inner
def _words_at(address: int) -> ShmWords:
    """Return the words that were `packed` to an address."""
    words = integers_at(address, 6)
    known = integers_at(words[5], 1)
    return ShmWords(
        carray(pointer(words[0]), (MAX_WORKERS, outbox.LINK_FIELDS), np.int64),
        carray(pointer(words[1]), (known[0],), np.int32),
        carray(pointer(words[2]), (MAX_WORKERS,), np.int32),
        carray(pointer(words[3]), (PORTS,), np.int32),
        integers_at(words[4], MAX_WORKERS),
        known,
    )


@Outlined
def collect(group: int, batch: int) -> int:
    """Append frames of all workers, in turns, to a batch; return how many it has now."""
    here: GroupRecord = carray(pointer(group), (1,), GROUP)[0]
    filled: BatchRecord = carray(pointer(batch), (1,), BATCH)[0]
    words, counters, columns = _words_at(here.own), counters_at(here.counters), batch_at(batch)
    rows, row_lengths, bodies = np.empty(_TURN, np.int32), np.empty(_TURN, np.int32), np.empty(_TURN, np.int64)
    count = filled.count
    # Round after round over all workers, until none has a frame left or the batch is full.
    progress = True
    while progress:
        progress = False
        for index in words.active:
            link, port = words.links[index], words.port_of_link[index]
            turn = min(_TURN, len(columns.addresses) - count)
            malformed = link[outbox.MALFORMED]
            taken = ring.take(link, rows[:turn], row_lengths[:turn], bodies)
            counters[port, PortCounter.RX_DROPS] += link[outbox.MALFORMED] - malformed
            counters[port, PortCounter.RX_FRAMES] += taken
            for i in range(taken):
                columns.addresses[count] = link[outbox.PEER_FRAMES] + rows[i] * link[outbox.PEER_STRIDE]
                columns.lengths[count] = row_lengths[i]
                columns.ports[count] = port
                counters[port, PortCounter.RX_BYTES] += row_lengths[i]
                count += 1
            progress |= taken > 0
    return int(count)


@Outlined
def release(group: int) -> int:
    """Give every worker the rows of its collected frames back."""
    here: GroupRecord = carray(pointer(group), (1,), GROUP)[0]
    words = _words_at(here.own)
    for index in words.active:
        ring.release(words.links[index])
    return 0


@Outlined
def transmit(group: int, output: int) -> int:
    """Copy frames to the workers on their ports, and wake the workers that sleep; no frame is left over.

    The body of consecutive frames with equal bodies, as a multicast makes them, is copied once.  Ports must be below
    the length of `link_of_port`; for heads and bodies see `Output`.
    """
    here: GroupRecord = carray(pointer(group), (1,), GROUP)[0]
    words, counters = _words_at(here.own), counters_at(here.counters)
    ports, addresses, lengths, heads, bodies, _ = output_at(output)
    links = words.links
    for index in words.active:
        ring.reclaim_rows(links[index])
    sharing, row = 0, -1
    for i in range(len(ports)):
        port, address, length = ports[i], int(np.int64(addresses[i])), int(np.int64(lengths[i]))
        index = words.link_of_port[port]
        body = _body(addresses, lengths, heads, bodies, i)
        # A run of frames with equal bodies: the first puts the body into shared memory (`row`), the last ends the run.
        goes_on = length >= _SHARED_BYTES and i + 1 < len(ports) and lengths[i + 1] == lengths[i]
        if goes_on:
            following = _body(addresses, lengths, heads, bodies, i + 1)
            goes_on = following == body or same_bytes(following, body, length - HEAD_BYTES)
        if row < 0 and goes_on and index >= 0 and links[index, outbox.SHARING] != 0:
            sharing = int(links[index, outbox.SHARING])
            row = put_body(sharing, body, length - HEAD_BYTES)
        if index < 0:
            is_put = False
        elif row >= 0 and links[index, outbox.SHARING] == sharing:
            is_put = ring.put_shared(links[index], address, length, row)
        else:
            complete(1, addresses[i:], lengths[i:], heads[i:], bodies[i:])
            is_put = ring.put_copy(links[index], address, length)
        if is_put:
            counters[port, PortCounter.TX_FRAMES] += 1
            counters[port, PortCounter.TX_BYTES] += length
        else:
            counters[port, PortCounter.TX_DROPS] += 1
        if row >= 0 and not goes_on:
            free_if_unread(sharing, row)
            row = -1
    _publish_all(words)
    return 0


@inner
def _publish_all(words: ShmWords) -> None:
    """Publish the heads of all outboxes that have new frames, and wake the workers that sleep."""
    for index in words.active:
        link = words.links[index]
        if link[outbox.HEAD] != link[outbox.PUBLISHED]:
            ring.publish(link)
            fence()
            if ring.peer_sleeps(link):
                ring_bell(words.bells[index])


@inner
def _body(addresses: Addresses, lengths: Words, heads: Words, bodies: Addresses, index: int) -> int:
    """Return the address of the bytes behind `HEAD_BYTES`; a frame whose head has another length is made whole."""
    if bodies[index] != 0 and heads[index] != HEAD_BYTES:
        complete(1, addresses[index:], lengths[index:], heads[index:], bodies[index:])
    return int(np.int64(bodies[index])) if bodies[index] != 0 else int(np.int64(addresses[index])) + HEAD_BYTES


@Outlined
def look(group: int, patience: int) -> int:
    """Look for frames for as long as a patience allows; return 1 if some have arrived."""
    here: GroupRecord = carray(pointer(group), (1,), GROUP)[0]
    words, own = _words_at(here.own), carray(pointer(patience), (FIELDS,), np.float64)
    now = monotonic()
    until = look_until(own, now)
    while not _any_waiting(words):
        if now >= until:
            return 0
        now = give_way(own, now)
    return 1


@Outlined
def fall_asleep(group: int) -> int:
    """Ask every worker to ring the bell; return 0 if frames have arrived."""
    here: GroupRecord = carray(pointer(group), (1,), GROUP)[0]
    words = _words_at(here.own)
    # Ask first and look afterwards: a worker that has published before it read the word is seen here.
    _set_all_sleeping(words, 1)
    fence()
    if _any_waiting(words):
        _set_all_sleeping(words, 0)
        return 0
    return 1


@Outlined
def awake(group: int) -> int:
    """Tell every worker that the switch does not sleep."""
    here: GroupRecord = carray(pointer(group), (1,), GROUP)[0]
    _set_all_sleeping(_words_at(here.own), 0)
    return 0


@inner
def _set_all_sleeping(words: ShmWords, sleeping: int) -> None:
    """Tell every worker whether the switch sleeps."""
    for index in words.active:
        ring.set_sleeping(words.links[index], sleeping)


@inner
def _any_waiting(words: ShmWords) -> bool:
    """Return whether a worker has frames for the switch."""
    for index in words.active:  # noqa: SIM110  (numba has no generator expressions)
        if ring.waiting(words.links[index]) > 0:
            return True
    return False


SHM: Final = Kind(
    collect=collect,
    release=release,
    transmit=transmit,
    look=look,
    fall_asleep=fall_asleep,
    awake=awake,
    takes_bodies=True,
)

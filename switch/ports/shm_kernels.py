"""Kernels of the shared-memory ports: they do for all links of a switch what ring.py does for one.

Two things are more than a loop over links.  `collect` takes frames from the workers in turns of `_TURN`, so that frames
of the same slot come one after the other: the program then finds the slot's cell in the cache.  `transmit` copies the
body of a multicast once, into memory that all workers share (bodies.py), and for each worker only the head.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from switchsum.native.kernels.atomics import fence, same_bytes
from switchsum.native.kernels.decorators import inner, kernel
from switchsum.native.process.patience import Patience, give_way, look_until
from switchsum.native.process.system import ring_bell
from switchsum.native.wires import outbox, ring
from switchsum.native.wires.bodies import free_if_unread, put_body
from switchsum.protocol.frame import FRAME_BYTES

from ..queues import PORTS
from ..replicas import complete
from .base import Addresses, PortCounter, PortCounters, Words

_SHARED_BYTES: Final = 512
"""Shorter frames are copied whole: to compare their bodies would cost as much."""
_TURN: Final = 8
"""Frames that are taken from one worker before the next one's turn."""


Links = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]


class ShmWords(NamedTuple):
    """All shared-memory ports, as kernels see them."""

    links: Links
    """`[n, LINK_FIELDS]`."""
    active: Indices
    """The rows of `links` that are in use."""
    port_of_link: Indices
    link_of_port: Indices
    """-1: none."""
    bells: npt.NDArray[np.int64]
    """The eventfd that wakes the worker of each link."""
    owned: npt.NDArray[np.bool_]
    """By port number, whether it is a shared-memory port."""


def shm_words(links: int, owned: npt.NDArray[np.bool_]) -> ShmWords:
    """Return the words of `links` links, none of which is in use."""
    return ShmWords(
        links=np.zeros((links, outbox.LINK_FIELDS), np.int64),
        active=np.zeros(0, np.int32),
        port_of_link=np.zeros(links, np.int32),
        link_of_port=np.full(PORTS, -1, np.int32),
        bells=np.zeros(links, np.int64),
        owned=owned,
    )


@kernel
def collect(
    words: ShmWords, counters: PortCounters, addresses: Addresses, lengths: Words, ports: Words, count: int
) -> int:
    """Append frames of all workers, in turns, to the columns of a batch of `count` frames; return the new count."""
    rows, row_lengths, bodies = np.empty(_TURN, np.int32), np.empty(_TURN, np.int32), np.empty(_TURN, np.int64)
    # Round after round over all workers, until none has a frame left or the batch is full.
    progress = True
    while progress:
        progress = False
        for index in words.active:
            link, port = words.links[index], words.port_of_link[index]
            turn = min(_TURN, len(addresses) - count)
            malformed = link[outbox.MALFORMED]
            taken = ring.take(link, rows[:turn], row_lengths[:turn], bodies)
            counters[port, PortCounter.RX_DROPS] += link[outbox.MALFORMED] - malformed
            counters[port, PortCounter.RX_FRAMES] += taken
            for i in range(taken):
                addresses[count] = link[outbox.PEER_FRAMES] + rows[i] * link[outbox.PEER_STRIDE]
                lengths[count] = row_lengths[i]
                ports[count] = port
                counters[port, PortCounter.RX_BYTES] += row_lengths[i]
                count += 1
            progress |= taken > 0
    return count


@kernel
def release_all(words: ShmWords) -> None:
    """Give every worker the rows of its collected frames back."""
    for index in words.active:
        ring.release(words.links[index])


@kernel
def transmit(
    words: ShmWords,
    counters: PortCounters,
    ports: Words,
    addresses: Addresses,
    lengths: Words,
    heads: Words,
    bodies: Addresses,
) -> None:
    """Copy frames to the workers on their ports, and wake the workers that sleep.

    The body of consecutive frames with equal bodies, as a multicast makes them, is copied once.  Ports must be below
    the length of `link_of_port`; for `heads` and `bodies` see `Output`.
    """
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
            goes_on = following == body or same_bytes(following, body, length - FRAME_BYTES)
        if row < 0 and goes_on and index >= 0 and links[index, outbox.SHARING] != 0:
            sharing = int(links[index, outbox.SHARING])
            row = put_body(sharing, body, length - FRAME_BYTES)
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
    """Return the address of the bytes behind `FRAME_BYTES`; a frame whose head has another length is made whole."""
    if bodies[index] != 0 and heads[index] != FRAME_BYTES:
        complete(1, addresses[index:], lengths[index:], heads[index:], bodies[index:])
    return int(np.int64(bodies[index])) if bodies[index] != 0 else int(np.int64(addresses[index])) + FRAME_BYTES


@kernel
def look(words: ShmWords, patience: Patience, now: float) -> bool:
    """Look for frames for as long as `patience` allows; return whether frames have arrived."""
    until = look_until(patience, now)
    while not any_waiting(words):
        if now >= until:
            return False
        now = give_way(patience, now)
    return True


@kernel
def fall_asleep(words: ShmWords) -> bool:
    """Ask every worker to ring the bell; return False if frames have arrived."""
    # Say it first and look afterwards: a worker that has published before it read the word is seen here.
    set_all_sleeping(words, 1)
    fence()
    if any_waiting(words):
        set_all_sleeping(words, 0)
        return False
    return True


@kernel
def set_all_sleeping(words: ShmWords, sleeping: int) -> None:
    """Tell every worker whether the switch sleeps."""
    for index in words.active:
        ring.set_sleeping(words.links[index], sleeping)


@kernel
def any_waiting(words: ShmWords) -> bool:
    """Return whether a worker has frames for the switch."""
    for index in words.active:  # noqa: SIM110  (numba has no generator expressions)
        if ring.waiting(words.links[index]) > 0:
            return True
    return False

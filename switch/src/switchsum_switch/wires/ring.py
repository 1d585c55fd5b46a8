"""The kernels of rings of frames between two processes; `outbox.py` says how these lie in memory."""

from __future__ import annotations

from typing import Final

from switchsum_switch.wires.headers import HEAD_BYTES

from ..kernels.atomics import copy_bytes, fence, load_acquire, store_release
from ..kernels.decorators import kernel
from .bodies import add_reader, drop_reader
from .outbox import (
    BROKEN,
    DESCRIPTORS,
    FREE,
    HEAD,
    HEAD_WORD,
    MALFORMED,
    MAX_BYTES,
    OWN,
    OWN_FRAMES,
    OWN_MASK,
    OWN_STRIDE,
    PEER,
    PEER_BODIES,
    PEER_BODY_ROWS,
    PEER_BODY_STRIDE,
    PEER_FRAMES,
    PEER_MASK,
    PEER_ROWS,
    PEER_STRIDE,
    PUBLISHED,
    RECLAIMED,
    SEEN,
    SHARING,
    SLEEPING_WORD,
    TAIL,
    TAIL_WORD,
    WORD_BYTES,
    Addresses,
    Indices,
    RingPair,
)

_ROW_MASK: Final = 0xFFFF
_BODY_SHIFT: Final = 16


@kernel
def _descriptor_word(link: RingPair, number: int) -> int:
    return int(link[OWN] + DESCRIPTORS + (number & link[OWN_MASK]) * WORD_BYTES)


@kernel
def _free_word(link: RingPair, index: int) -> int:
    return int(link[OWN] + DESCRIPTORS + (link[OWN_MASK] + 1 + index) * WORD_BYTES)


@kernel
def consumed(link: RingPair) -> int:
    """Return how many frames of the own outbox the peer has taken."""
    tail = load_acquire(link[PEER] + TAIL_WORD)
    # No peer has taken what it cannot see yet: the row and the body of a frame that is being put are not free.
    if link[SEEN] <= tail <= link[PUBLISHED]:
        link[SEEN] = tail
    else:
        link[BROKEN] = 1
    return int(link[SEEN])


@kernel
def free_rows(link: RingPair, wanted: int) -> int:
    """Return how many descriptors are free; `wanted` or more means that looking at the peer's tail can be saved."""
    capacity = link[OWN_MASK] + 1
    free = capacity - (link[HEAD] - link[SEEN])
    if free < wanted:
        free = capacity - (link[HEAD] - consumed(link))
    return int(free)


@kernel
def put_descriptor(link: RingPair, row: int, length: int) -> None:
    """Name a row of the own outbox as the next frame; there must be room."""
    store_release(_descriptor_word(link, link[HEAD]), row | length << 32)
    link[HEAD] += 1


@kernel
def publish(link: RingPair) -> None:
    """Let the peer see the frames that were put into the own outbox."""
    store_release(link[OWN] + HEAD_WORD, link[HEAD])
    link[PUBLISHED] = link[HEAD]


@kernel
def peer_sleeps(link: RingPair) -> bool:
    """Tell, after `publish` and a `fence`, whether the peer must be rung."""
    return load_acquire(link[PEER] + SLEEPING_WORD) != 0


@kernel
def push(link: RingPair, rows: Indices, lengths: Indices) -> tuple[int, bool]:
    """Name rows of the own outbox, as many as there is room for; return how many, and whether to ring the peer."""
    count = min(free_rows(link, len(rows)), len(rows))
    if count == 0:
        return 0, False
    for i in range(count):
        put_descriptor(link, int(rows[i]), int(lengths[i]))
    publish(link)
    fence()
    return count, peer_sleeps(link)


@kernel
def lend_rows(link: RingPair) -> None:
    """Let `put_copy` choose rows from now on; the own outbox has as many of them as descriptors."""
    link[FREE] = link[OWN_MASK] + 1
    for row in range(link[FREE]):
        store_release(_free_word(link, row), row)


@kernel
def reclaim_rows(link: RingPair) -> None:
    """Put the rows that the peer has given back on the stack, the last one on top."""
    for number in range(link[RECLAIMED], consumed(link)):
        word = load_acquire(_descriptor_word(link, number))
        store_release(_free_word(link, link[FREE]), word & _ROW_MASK)
        link[FREE] += 1
        _drop_body(link, word)
    link[RECLAIMED] = link[SEEN]


@kernel
def _drop_body(link: RingPair, word: int) -> None:
    body = (word >> _BODY_SHIFT) & _ROW_MASK
    if body > 0:
        drop_reader(link[SHARING], body - 1)


@kernel
def abandon(link: RingPair) -> None:
    """Give back, in place of a peer that is gone, the bodies of frames that it has not given back."""
    for number in range(link[RECLAIMED], link[HEAD]):
        _drop_body(link, load_acquire(_descriptor_word(link, number)))
    link[RECLAIMED] = link[HEAD]


@kernel
def put_copy(link: RingPair, address: int, length: int) -> bool:
    """Copy a frame into a free row of the own outbox; False when there is none or the frame is too long.

    The row that was given back last is used first: where few frames wait, few rows are used, and stay in the caches.
    """
    row = _free_row(link, length)
    if row < 0:
        return False
    copy_bytes(link[OWN_FRAMES] + row * link[OWN_STRIDE], address, length)
    put_descriptor(link, row, length)
    return True


@kernel
def put_shared(link: RingPair, address: int, length: int, body: int) -> bool:
    """Copy a frame's header into a free row, and name the row of its shared body; False as `put_copy`."""
    row = _free_row(link, length)
    if row < 0:
        return False
    copy_bytes(link[OWN_FRAMES] + row * link[OWN_STRIDE], address, HEAD_BYTES)
    put_descriptor(link, row | (body + 1) << _BODY_SHIFT, length)
    add_reader(link[SHARING], body)
    return True


@kernel
def _free_row(link: RingPair, length: int) -> int:
    """Take a row from the stack; -1 when there is none or a frame of that length does not fit."""
    if link[FREE] == 0:
        reclaim_rows(link)
    if length > link[MAX_BYTES] or link[FREE] == 0:
        return -1
    link[FREE] -= 1
    return int(load_acquire(_free_word(link, link[FREE])))


@kernel
def waiting(link: RingPair) -> int:
    """Return how many frames of the peer's outbox have not been taken yet."""
    count = int(load_acquire(link[PEER] + HEAD_WORD) - link[TAIL])
    if 0 <= count <= link[PEER_MASK] + 1:
        return count
    link[BROKEN] = 1
    return 0


@kernel
def take(link: RingPair, rows: Indices, lengths: Indices, bodies: Addresses) -> int:
    """Take frames from the peer's outbox, as many as the arrays hold, skipping malformed ones; return how many.

    `bodies` gets the address of each frame's body if the body is shared, else 0.
    """
    count = 0
    for _ in range(min(waiting(link), len(rows))):
        word = load_acquire(link[PEER] + DESCRIPTORS + (link[TAIL] & link[PEER_MASK]) * WORD_BYTES)
        link[TAIL] += 1
        row, body, length = word & _ROW_MASK, (word >> _BODY_SHIFT) & _ROW_MASK, word >> 32
        is_whole = body == 0
        has_body = body <= link[PEER_BODY_ROWS] and 0 <= length - HEAD_BYTES <= link[PEER_BODY_STRIDE]
        if row < link[PEER_ROWS] and 0 < length <= link[MAX_BYTES] and (is_whole or has_body):
            rows[count], lengths[count] = row, length
            bodies[count] = 0 if is_whole else link[PEER_BODIES] + (body - 1) * link[PEER_BODY_STRIDE]
            count += 1
        else:
            link[MALFORMED] += 1
    return count


@kernel
def gather(link: RingPair, row: int, length: int, body: int, target: int) -> None:
    """Copy a frame that `take` found, header and shared body, to an address."""
    copy_bytes(target, link[PEER_FRAMES] + row * link[PEER_STRIDE], HEAD_BYTES)
    copy_bytes(target + HEAD_BYTES, body, length - HEAD_BYTES)


@kernel
def release(link: RingPair) -> None:
    """Let the peer have the rows of all frames taken so far."""
    store_release(link[OWN] + TAIL_WORD, link[TAIL])


@kernel
def set_sleeping(link: RingPair, sleeping: int) -> None:
    """Say whether this side must be rung; look at `waiting` once more after a `fence` before going to sleep."""
    store_release(link[OWN] + SLEEPING_WORD, sleeping)


@kernel
def fall_asleep(link: RingPair) -> bool:
    """Ask to be rung; False when frames have come."""
    set_sleeping(link, 1)
    fence()
    if waiting(link) > 0:
        set_sleeping(link, 0)
        return False
    return True

"""Single-producer rings of frames between two processes: memory layout, and the kernels that work on it.

Each side of a link has an *outbox*: memory that it alone writes and the other side only reads::

    byte 0      head: frames that this side has put into its outbox     (one cache line each;
         64     tail: frames that it has taken from the other's outbox    words of 64 bits, counted
        128     sleeping: 1 while it waits for the other to ring          from 0, never wrapping)
       4096     descriptors, one word each: row | (body + 1) << 16 | length << 32
        ...     as many words for this side's own book-keeping: a stack of free rows
        ...     rows of frames, from a page boundary on (rows.py says how a frame lies in its row)

Frame number `n` has the descriptor `n % capacity`.  A side may name any row in any order and name one again (`push`),
so that a frame is repeated without a copy; it must not rewrite a row before the other's tail has passed.  Or it has
frames copied into rows that are free (`lend_rows`, then `put_copy`); an outbox is used in one of the two ways.  A
producer publishes its head, then looks whether the other side sleeps, and rings its bell (an eventfd) if so; a
consumer says that it sleeps, then looks at the head once more; the fences between make sure that at least one of them
sees the other.

A frame whose descriptor names a body has only its header in its row; the body is in memory that the other side shares
with several readers (bodies.py).  Without one those bits are 0, and the frame lies in its row whole.

Nothing that the other side writes is trusted: rows and lengths are checked, and heads and tails that cannot be mark the
link as broken.  Kernels take a *link* (`RingPair`): `LINK_FIELDS` int64 words, private to this side.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum.protocol.frame import FRAME_BYTES

from .atomics import copy_bytes, fence, load_acquire, store_release
from .bodies import add_reader, drop_reader
from .kernels import kernel
from .rows import LEAD_BYTES, row_stride

HEAD_WORD: Final = 0
TAIL_WORD: Final = 64
SLEEPING_WORD: Final = 128
DESCRIPTORS: Final = 4096
PAGE_BYTES: Final = 4096
WORD_BYTES: Final = 8

LAYOUT_DIGEST: Final = hashlib.sha256(
    f"3 {HEAD_WORD} {TAIL_WORD} {SLEEPING_WORD} {DESCRIPTORS} {PAGE_BYTES} {LEAD_BYTES} row|body<<16|len<<32".encode()
).hexdigest()[:8]
"""Names the layout; two sides that differ refuse each other.  The leading number covers what the rest does not show."""

RingPair = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Addresses = npt.NDArray[np.int64]

# The fields of a link.
OWN: Final = 0
"""Address of this side's outbox."""
PEER: Final = 1
"""Address of the other side's."""
OWN_MASK: Final = 2
"""Descriptors in the own outbox less one."""
PEER_MASK: Final = 3
OWN_FRAMES: Final = 4
"""Address of the first frame (behind its lead) in the own outbox."""
PEER_FRAMES: Final = 5
OWN_STRIDE: Final = 6
PEER_STRIDE: Final = 7
PEER_ROWS: Final = 8
MAX_BYTES: Final = 9
"""Longest frame."""
HEAD: Final = 10
"""Frames put into the own outbox, published or not."""
SEEN: Final = 11
"""How many of these the peer was last known to have taken."""
TAIL: Final = 12
"""Frames taken from the peer's outbox, released or not."""
MALFORMED: Final = 13
"""Descriptors of the peer's that were skipped."""
BROKEN: Final = 14
"""1: the peer's head or tail made no sense."""
PUBLISHED: Final = 15
"""How many of the frames in the own outbox the peer can see."""
FREE: Final = 16
"""Rows on the stack of free ones, if `lend_rows` was called."""
RECLAIMED: Final = 17
"""Frames whose rows have been put back on it."""
SHARING: Final = 18
"""Address of the words of the bodies that this side shares (bodies.py); 0: it shares none."""
PEER_BODIES: Final = 19
"""Address of the bodies that the peer shares."""
PEER_BODY_ROWS: Final = 20
"""How many; 0: it shares none."""
PEER_BODY_STRIDE: Final = 21
LINK_FIELDS: Final = 22

_ROW_MASK: Final = 0xFFFF
_BODY_SHIFT: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxLayout:
    """Where things are in one outbox."""

    rows: int
    """Frames that it holds."""
    capacity: int
    """Descriptors, a power of two."""
    frame_bytes: int
    """Longest frame."""

    @property
    def frames_offset(self) -> int:
        """Where the rows start."""
        return -(-(DESCRIPTORS + 2 * self.capacity * WORD_BYTES) // PAGE_BYTES) * PAGE_BYTES

    @property
    def stride(self) -> int:
        """Bytes from one row to the next."""
        return row_stride(self.frame_bytes)

    @property
    def total_bytes(self) -> int:
        """Size of the memory."""
        return self.frames_offset + self.rows * self.stride


def next_power_of_two(value: int) -> int:
    """Return the smallest power of two that is not below `value`."""
    return 1 << max(value - 1, 0).bit_length()


def fill_link(link: RingPair, own: OutboxLayout, own_address: int, peer: OutboxLayout, peer_address: int) -> None:
    """Describe a new link, both of whose outboxes are zeroed; no bodies are shared."""
    link[:] = 0
    link[OWN], link[PEER] = own_address, peer_address
    link[OWN_MASK], link[PEER_MASK] = own.capacity - 1, peer.capacity - 1
    link[OWN_FRAMES] = own_address + own.frames_offset + LEAD_BYTES
    link[PEER_FRAMES] = peer_address + peer.frames_offset + LEAD_BYTES
    link[OWN_STRIDE], link[PEER_STRIDE] = own.stride, peer.stride
    link[PEER_ROWS] = peer.rows
    link[MAX_BYTES] = min(own.frame_bytes, peer.frame_bytes)


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
    if link[SEEN] <= tail <= link[HEAD]:
        link[SEEN] = tail
    else:
        link[BROKEN] = 1
    return int(link[SEEN])


@kernel
def room(link: RingPair, wanted: int) -> int:
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
    count = min(room(link, len(rows)), len(rows))
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

    It is the row given back last: where few frames wait, few rows are used, and they stay in the caches.
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
    copy_bytes(link[OWN_FRAMES] + row * link[OWN_STRIDE], address, FRAME_BYTES)
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

    `bodies` gets the address of each frame's body where that is shared, else 0.
    """
    count = 0
    for _ in range(min(waiting(link), len(rows))):
        word = load_acquire(link[PEER] + DESCRIPTORS + (link[TAIL] & link[PEER_MASK]) * WORD_BYTES)
        link[TAIL] += 1
        row, body, length = word & _ROW_MASK, (word >> _BODY_SHIFT) & _ROW_MASK, word >> 32
        is_whole = body == 0
        has_body = body <= link[PEER_BODY_ROWS] and 0 <= length - FRAME_BYTES <= link[PEER_BODY_STRIDE]
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
    copy_bytes(target, link[PEER_FRAMES] + row * link[PEER_STRIDE], FRAME_BYTES)
    copy_bytes(target + FRAME_BYTES, body, length - FRAME_BYTES)


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

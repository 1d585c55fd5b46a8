"""Single-producer rings of frames between two processes: the memory layout (`ring.py` has the kernels that work on it).

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
"""Address of the other side's outbox."""
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
"""How many descriptors of the peer were malformed, and skipped."""
BROKEN: Final = 14
"""1: the peer's head or tail made no sense."""
PUBLISHED: Final = 15
"""How many of the frames in the own outbox the peer can see."""
FREE: Final = 16
"""Rows on the stack of free ones, if `lend_rows` was called."""
RECLAIMED: Final = 17
"""Frames whose rows have been put back on that stack."""
SHARING: Final = 18
"""Address of the words of the bodies that this side shares (bodies.py); 0: it shares none."""
PEER_BODIES: Final = 19
"""Address of the bodies that the peer shares."""
PEER_BODY_ROWS: Final = 20
"""Number of bodies that the peer shares; 0: it shares none."""
PEER_BODY_STRIDE: Final = 21
LINK_FIELDS: Final = 22


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

"""Sends many datagrams per system call, those that can go together as super-datagrams (batchsocket.py)."""

from __future__ import annotations

import errno
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from .batchsocket import (
    BATCH_DATAGRAMS,
    CONTROL_BYTES_WORD,
    CONTROL_WORDS,
    LONGEST_BYTES,
    MESSAGE_WORDS,
    MMSGHDR,
    MOST_SEGMENTS,
    NAME_WORDS,
    NO_NAMES,
    PIECES_WORD,
    SEGMENT_KIND,
    Addresses,
    Indices,
    addresses_of,
)
from .kernels import inner, kernel
from .memory import carray, integers_at, pointer
from .system import last_error, send_many

_CONTROL_BYTES: Final = 18
"""Of a control message with a number of 16 bits; it takes `CONTROL_WORDS`."""
_EAGAIN: Final = errno.EAGAIN
_EINTR: Final = errno.EINTR
_ENOBUFS: Final = errno.ENOBUFS
_ECONNREFUSED: Final = errno.ECONNREFUSED
_EINVAL: Final = errno.EINVAL
_EIO: Final = errno.EIO
_EMSGSIZE: Final = errno.EMSGSIZE
_EOPNOTSUPP: Final = errno.EOPNOTSUPP

REFUSED: Final = 0
"""Datagrams that the kernel would not have so far (too long, no route, interface down)."""
TOGETHER: Final = 1
"""1: super-datagrams go, as far as anybody knows."""


class SendWords(NamedTuple):
    """What `send_datagrams` works with."""

    headers: npt.NDArray[np.int64]
    """Headers of the messages, `[BATCH_DATAGRAMS, 8]`."""
    address: int
    """Of the first header."""
    pieces: npt.NDArray[np.int64]
    """Address and length of each one's datagrams, `[BATCH_DATAGRAMS, MOST_SEGMENTS, 2]`."""
    controls: npt.NDArray[np.int64]
    """`[BATCH_DATAGRAMS, CONTROL_WORDS]`."""
    names: npt.NDArray[np.int64]
    """Destinations, `[BATCH_DATAGRAMS, NAME_WORDS]`."""
    covered: npt.NDArray[np.int64]
    """How many datagrams are in each."""
    state: npt.NDArray[np.int64]
    """`REFUSED` and `TOGETHER`."""


class BatchSender:
    """Sends datagrams through sockets that do not block."""

    def __init__(self, *, named: bool = False, together: bool = False) -> None:
        """Give every datagram a destination if `named`; if not, the socket has one.

        `together`: make super-datagrams, which is for UDP sockets of a kernel that knows them.
        """
        headers = np.zeros(BATCH_DATAGRAMS, MMSGHDR)
        pieces = np.zeros((BATCH_DATAGRAMS, MOST_SEGMENTS, 2), np.int64)
        controls = np.zeros((BATCH_DATAGRAMS, CONTROL_WORDS), np.int64)
        names = np.zeros((BATCH_DATAGRAMS, NAME_WORDS), np.int64)
        headers["iov"] = addresses_of(pieces)
        headers["control"] = addresses_of(controls)
        controls[:, 0], controls[:, 1] = _CONTROL_BYTES, SEGMENT_KIND
        if named:
            headers["name"], headers["name_bytes"] = addresses_of(names), names.strides[0]
        self.words = SendWords(
            headers=headers.view(np.int64).reshape(BATCH_DATAGRAMS, -1),
            address=headers.ctypes.data,
            pieces=pieces,
            controls=controls,
            names=names,
            covered=np.zeros(BATCH_DATAGRAMS, np.int64),
            state=np.array([0, together], np.int64),
        )

    @property
    def refused(self) -> int:
        """Return how many datagrams the kernel would not have so far; they count as sent."""
        return int(self.words.state[REFUSED])

    def send(self, descriptor: int, addresses: Addresses, lengths: Indices, names: Addresses = NO_NAMES) -> int:
        """Send datagrams in order until the socket is full, to the destinations `names`; return how many went."""
        return send_datagrams(descriptor, self.words, addresses, lengths, names)


@inner
def send_words_at(address: int) -> SendWords:
    """Return the words that were `packed` to an address."""
    words = integers_at(address, 7)
    return SendWords(
        carray(pointer(words[0]), (BATCH_DATAGRAMS, MESSAGE_WORDS), np.int64),
        words[1],
        carray(pointer(words[2]), (BATCH_DATAGRAMS, MOST_SEGMENTS, 2), np.int64),
        carray(pointer(words[3]), (BATCH_DATAGRAMS, CONTROL_WORDS), np.int64),
        carray(pointer(words[4]), (BATCH_DATAGRAMS, NAME_WORDS), np.int64),
        integers_at(words[5], BATCH_DATAGRAMS),
        integers_at(words[6], 2),
    )


@kernel
def send_datagrams(descriptor: int, words: SendWords, addresses: Addresses, lengths: Indices, names: Addresses) -> int:
    """Send datagrams in order until the socket is full; return how many went, with those that the kernel refused.

    `names` are the first words of their destinations, or nothing.  Neighbours of one length and destination go
    together; a kernel or interface that does not have that is not asked again.
    """
    state, covered = words.state, words.covered
    sent = 0
    while sent < len(addresses):
        at, used = sent, 0
        while at < len(addresses) and used < BATCH_DATAGRAMS:
            covered[used] = _fill(words, used, addresses[at:], lengths[at:], names[at:])
            at += covered[used]
            used += 1
        went = send_many(descriptor, words.address, used)
        for i in range(went):
            sent += covered[i]
        if went > 0:
            continue
        error = last_error()
        if error in (_EAGAIN, _ENOBUFS):
            break
        if covered[0] > 1 and error in (_EINVAL, _EIO, _EMSGSIZE, _EOPNOTSUPP):
            state[TOGETHER] = 0  # no checksums in hardware, or datagrams that are to be sent in fragments
        elif error not in (_EINTR, _ECONNREFUSED):  # the latter is about a datagram sent before
            state[REFUSED] += covered[0]
            sent += covered[0]
    return sent


@inner
def _fill(words: SendWords, index: int, addresses: Addresses, lengths: Indices, names: Addresses) -> int:
    """Fill in a message with as many of the datagrams as can go together; return how many these are."""
    pieces, length = words.pieces[index], np.int64(lengths[0])
    count, size = 0, np.int64(0)
    most = MOST_SEGMENTS if words.state[TOGETHER] != 0 and length > 0 else 1
    for i in range(min(most, len(addresses))):
        other = np.int64(lengths[i])
        if i > 0 and (other == 0 or other > length or size + other > LONGEST_BYTES):
            break
        if len(names) > 0 and names[i] != names[0]:
            break
        pieces[i, 0], pieces[i, 1] = addresses[i], other
        size += other
        count += 1
        if other < length:  # only the last one may be shorter
            break
    words.headers[index, PIECES_WORD] = count
    words.headers[index, CONTROL_BYTES_WORD] = 8 * CONTROL_WORDS if count > 1 else 0
    words.controls[index, 2] = length
    if len(names) > 0:
        words.names[index, 0] = names[0]
    return count

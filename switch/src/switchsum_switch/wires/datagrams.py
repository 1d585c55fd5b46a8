"""Datagrams of UDP, many per system call (messages.py); neighbours that can go together are one super-datagram.

A super-datagram is one message, whose control message says how long each of its datagrams is (UDP GSO and GRO).  How
long the pieces are of one that comes is known only when it has come, but they are as long as those before as a rule.
So each message has rows laid out for what has come last, and memory behind them for the rest of it:

    message | row | row | ... | row | whole
            | datagram's bytes each |

Pieces as long as expected are then where they belong.  Any others are put together again and cut into spare rows.

A datagram may be marked on its way (ECN), which another control message says.  It is noted in the row, where the IPv4
header will be (encapsulation.py).
"""

from __future__ import annotations

import socket
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from switchsum_switch.wires.headers import ECN_CAPABLE

from ..kernels.atomics import copy_bytes
from ..kernels.decorators import inner, kernel
from ..kernels.intrinsics import carray, pointer
from ..kernels.memory import integers_at
from ..process.system import receive_many
from .messages import (
    CONTROL_BYTES_WORD,
    LENGTH_WORD,
    MESSAGE_WORDS,
    MMSGHDR,
    MOST_MESSAGES,
    MOST_SEGMENTS,
    NAME_BYTES_WORD,
    NAME_WORDS,
    PIECES_WORD,
    TOGETHER,
    Addresses,
    Indices,
    MessageSender,
    SendWords,
    addresses_of,
    send_filled,
)
from .rows import LEAD_BYTES, MARK_AT, allocate_rows

LONGEST_BYTES: Final = 65_507
"""Payload of a datagram, super or not, over IPv4."""
CONTROL_WORDS: Final = 3
"""Words of a control message with one number: length; level and type; the number."""
_CONTROLS: Final = 2
"""Control messages that come with a datagram at most: how long the pieces of a super-datagram are, and its mark."""
_CONTROL_BYTES: Final = 18
"""Bytes of a control message with a number of 16 bits. It takes `CONTROL_WORDS`."""
SEGMENT_KIND: Final = 103 << 32 | socket.IPPROTO_UDP
"""Level and type of UDP_SEGMENT: how long the datagrams in a sent super-datagram are."""
GRO_KIND: Final = 104 << 32 | socket.IPPROTO_UDP
"""Level and type of UDP_GRO in a received message: the length of the joined datagrams."""
_TOS_KIND: Final = socket.IP_TOS << 32 | socket.IPPROTO_IP
"""Level and type of IP_TOS, which has the second byte of a received datagram's IPv4 header."""
_UDP_SEGMENT: Final = SEGMENT_KIND >> 32
_UDP_GRO: Final = GRO_KIND >> 32
_IP_RECVTOS: Final = 13
_CONTROL_WORDS: Final = CONTROL_WORDS * _CONTROLS
NO_NAMES: Final[Addresses] = np.zeros(0, np.int64)
"""Empty names, for sockets that have a destination, and for those whose source does not matter."""

MOST_TAKEN: Final = 128
"""Datagrams that one call hands out."""
_LAID_OUT: Final = 128
"""Rows that messages are received into."""
_SPARE: Final = 128
"""Spare rows behind these."""
_WHOLE_BYTES: Final = 1 << 16
"""Bytes for the longest datagram, so that none is cut off."""

_SEGMENT: Final = 0
"""Index in the state: bytes of each row that messages are received into."""
_HELD: Final = 1
"""Index in the state: rows that each message has."""
_MESSAGES: Final = 2
"""Index in the state: most messages that one system call receives."""
_CAME: Final = 3
"""Index in the state: messages that the last system call brought."""
_NEXT: Final = 4
"""Index in the state: the first of these messages that has not been handed out completely."""
_PIECE: Final = 5
"""Index in the state: how many datagrams of that message have been handed out."""
_SEEN: Final = 6
"""Index in the state: bytes of the longest datagrams that came together since rows were laid out; 0: none did."""
_STATE_WORDS: Final = 7


def knows_segments(link: socket.socket) -> bool:
    """Tell whether the kernel cuts a super-datagram into datagrams; before Linux 4.18 it would send it as it is."""
    try:
        link.getsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT)
    except OSError:
        return False
    return True


def take_together(link: socket.socket) -> None:
    """Have super-datagrams come as they are, if the kernel can do that (Linux 5.0); else it cuts them."""
    try:
        link.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
    except OSError:
        return


def take_marks(link: socket.socket) -> None:
    """Let queues mark what a socket sends, and learn of marks in what it receives (ECN)."""
    link.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ECN_CAPABLE)
    link.setsockopt(socket.IPPROTO_IP, _IP_RECVTOS, 1)


class DatagramSender(MessageSender):
    """Sends datagrams through sockets that do not block."""

    def __init__(self, *, named: bool = False, together: bool = False) -> None:
        """Give every datagram a destination if `named`; if not, the socket has one.

        `together`: make super-datagrams, which is for UDP sockets of a kernel that knows them.
        """
        super().__init__(together=together)
        extras, names = self.words.extras, self.words.names
        self.message_headers["control"] = addresses_of(extras)
        extras[:, 0], extras[:, 1] = _CONTROL_BYTES, SEGMENT_KIND
        if named:
            self.message_headers["name"], self.message_headers["name_bytes"] = addresses_of(names), names.strides[0]

    def send(self, descriptor: int, addresses: Addresses, lengths: Indices, names: Addresses = NO_NAMES) -> int:
        """Send datagrams in order until the socket is full, to the destinations `names`; return how many went."""
        return send_datagrams(descriptor, self.words, addresses, lengths, names)


@kernel
def send_datagrams(descriptor: int, words: SendWords, addresses: Addresses, lengths: Indices, names: Addresses) -> int:
    """Send datagrams in order until the socket is full; return how many went, including those that the kernel refused.

    `names` are the first words of their destinations, or nothing.  Neighbours of one length and destination go
    together.
    """
    sent = 0
    while sent < len(addresses):
        at, used = sent, 0
        while at < len(addresses) and used < MOST_MESSAGES:
            words.covered[used] = _fill(words, used, addresses[at:], lengths[at:], names[at:])
            at += words.covered[used]
            used += 1
        went = send_filled(descriptor, words, used)
        if went < 0:
            break
        sent += went
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
    words.extras[index, 2] = length
    if len(names) > 0:
        words.names[index, 0] = names[0]
    return count


class ReceiveWords(NamedTuple):
    """The memory that `receive_rows` works with."""

    headers: npt.NDArray[np.int64]
    """Headers of the messages, `[MOST_MESSAGES, 8]`."""
    address: int
    """Address of the first header."""
    pieces: npt.NDArray[np.int64]
    """Address and length of each message's pieces of memory, `[MOST_MESSAGES, MOST_SEGMENTS + 1, 2]`."""
    controls: npt.NDArray[np.int64]
    """Control messages, `[MOST_MESSAGES, _CONTROL_WORDS]`."""
    names: npt.NDArray[np.int64]
    """Sources, `[MOST_MESSAGES, NAME_WORDS]`."""
    rows: npt.NDArray[np.uint8]
    first: int
    """Address in the first row where its datagram goes."""
    stride: int
    """Bytes from one row to the next."""
    capacity: int
    """Bytes of the longest datagram that fits into a row."""
    skip: int
    """Bytes of a frame in front of its datagram."""
    wholes: npt.NDArray[np.uint8]
    """Memory for all of a message, `[MOST_MESSAGES, _WHOLE_BYTES]`."""
    state: npt.NDArray[np.int64]


class DatagramReceiver:
    """Receives datagrams into rows of its own; each call overwrites what the last one brought."""

    def __init__(self, frame_bytes: int, *, skip: int = 0) -> None:
        """Have rows for frames of `frame_bytes`, whose first `skip` bytes are not in the datagram."""
        self.rows = allocate_rows(_LAID_OUT + _SPARE, frame_bytes)
        headers = np.zeros(MOST_MESSAGES, MMSGHDR)
        pieces = np.zeros((MOST_MESSAGES, MOST_SEGMENTS + 1, 2), np.int64)
        controls = np.zeros((MOST_MESSAGES, _CONTROL_WORDS), np.int64)
        names = np.zeros((MOST_MESSAGES, NAME_WORDS), np.int64)
        headers["iov"] = addresses_of(pieces)
        headers["control"] = addresses_of(controls)
        headers["name"] = addresses_of(names)
        self.words = ReceiveWords(
            headers=headers.view(np.int64).reshape(MOST_MESSAGES, -1),
            address=headers.ctypes.data,
            pieces=pieces,
            controls=controls,
            names=names,
            rows=self.rows,
            first=self.rows.ctypes.data + LEAD_BYTES + skip,
            stride=self.rows.strides[0],
            capacity=frame_bytes - skip,
            skip=skip,
            wholes=np.zeros((MOST_MESSAGES, _WHOLE_BYTES), np.uint8),  # only what is written takes memory
            state=np.zeros(_STATE_WORDS, np.int64),
        )
        self._rows = np.zeros(MOST_TAKEN, np.int32)
        self._lengths = np.zeros(MOST_TAKEN, np.int32)
        self._names = np.zeros(MOST_TAKEN, np.int64)

    def receive(self, descriptor: int) -> tuple[Indices, Indices, Addresses]:
        """Return what `receive_rows` says of the datagrams that have come: rows, lengths and sources."""
        count = receive_rows(descriptor, self.words, self._rows, self._lengths, self._names)
        return self._rows[:count], self._lengths[:count], self._names[:count]


@kernel
def has_more(state: npt.NDArray[np.int64]) -> bool:
    """Tell whether datagrams have been received that were not handed out yet, by the state of `ReceiveWords`."""
    return bool(state[_NEXT] < state[_CAME])


@inner
def receive_words_at(address: int) -> ReceiveWords:
    """Return the words that were `packed` to an address."""
    words = integers_at(address, 12)
    return ReceiveWords(
        carray(pointer(words[0]), (MOST_MESSAGES, MESSAGE_WORDS), np.int64),
        words[1],
        carray(pointer(words[2]), (MOST_MESSAGES, MOST_SEGMENTS + 1, 2), np.int64),
        carray(pointer(words[3]), (MOST_MESSAGES, _CONTROL_WORDS), np.int64),
        carray(pointer(words[4]), (MOST_MESSAGES, NAME_WORDS), np.int64),
        carray(pointer(words[5]), (_LAID_OUT + _SPARE, words[7]), np.uint8),
        words[6],
        words[7],
        words[8],
        words[9],
        carray(pointer(words[10]), (MOST_MESSAGES, _WHOLE_BYTES), np.uint8),
        integers_at(words[11], _STATE_WORDS),
    )


@kernel
def receive_rows(descriptor: int, words: ReceiveWords, rows: Indices, lengths: Indices, names: Addresses) -> int:
    """Receive datagrams, at most `len(rows)`; write where each is, and whose; return how many came.

    `lengths` are the frames', including what was skipped; 0 for a datagram too long for its row.  `names` are the
    first words of their sources.
    """
    state = words.state
    if state[_NEXT] == state[_CAME]:
        _receive(descriptor, words)
    count, spare = 0, _LAID_OUT
    while state[_NEXT] < state[_CAME] and count < len(rows):
        message, done = state[_NEXT], state[_PIECE]
        size, segment = words.headers[message, LENGTH_WORD] & 0xFFFF_FFFF, _segment_bytes(words, message)
        pieces, mark = max(1, -(-size // segment)), _mark_of(words, message)
        here = min(pieces - done, len(rows) - count)
        row = message * state[_HELD] + done
        if not _is_laid_out(state, size, segment, pieces):
            here = min(here, _LAID_OUT + _SPARE - spare)
            if here == 0:
                break
            if done == 0:
                _put_together(words, message, size)
            _cut_up(words, message, size, segment, done, here, spare)
            row = spare
            spare += here
        for i in range(here):
            length = min(segment, size - (done + i) * segment)
            rows[count + i] = row + i
            lengths[count + i] = words.skip + length if length <= words.capacity else 0
            names[count + i] = words.names[message, 0]
            if words.skip > MARK_AT:
                words.rows[row + i, LEAD_BYTES + MARK_AT] = mark
        if pieces > 1 and segment <= words.capacity:
            state[_SEEN] = max(state[_SEEN], segment)
        count += here
        state[_PIECE] += here
        if state[_PIECE] == pieces:
            state[_NEXT] += 1
            state[_PIECE] = 0
    return count


@inner
def _receive(descriptor: int, words: ReceiveWords) -> None:
    """Receive messages into rows that are laid out for what came last."""
    state = words.state
    if state[_SEEN] > 0:
        if state[_SEEN] != state[_SEGMENT] or state[_HELD] == 1:
            _lay_out(words, state[_SEEN], min(MOST_SEGMENTS, -(-LONGEST_BYTES // state[_SEEN])))
        state[_SEEN] = 0
    elif state[_CAME] == state[_MESSAGES] and state[_HELD] != 1:  # many, and each by itself
        _lay_out(words, words.capacity, 1)
    for message in range(state[_MESSAGES]):
        words.headers[message, NAME_BYTES_WORD] = 8 * NAME_WORDS
        words.headers[message, CONTROL_BYTES_WORD] = 8 * _CONTROL_WORDS
    came = receive_many(descriptor, words.address, state[_MESSAGES])
    # There was nothing, or it was the report that an earlier datagram found no receiver or that an interface went down.
    state[_CAME] = max(came, 0)
    state[_NEXT] = state[_PIECE] = 0


@inner
def _lay_out(words: ReceiveWords, segment: int, held: int) -> None:
    """Give each message `held` rows for datagrams of `segment` bytes."""
    state = words.state
    state[_SEGMENT], state[_HELD] = segment, held
    state[_MESSAGES] = min(MOST_MESSAGES, _LAID_OUT // held)
    covered = held * segment
    for message in range(state[_MESSAGES]):
        pieces = words.pieces[message]
        for i in range(held):
            pieces[i, 0], pieces[i, 1] = words.first + (message * held + i) * words.stride, segment
        pieces[held, 0] = _whole(words, message) + covered
        pieces[held, 1] = max(_WHOLE_BYTES - covered, 0)
        words.headers[message, PIECES_WORD] = held + 1


@inner
def _segment_bytes(words: ReceiveWords, message: int) -> int:
    """Return how long the datagrams of a message are, but for the last."""
    control = words.controls[message]
    is_super = words.headers[message, CONTROL_BYTES_WORD] > 16 and control[1] == GRO_KIND
    return max(int(control[2] if is_super else words.headers[message, LENGTH_WORD]) & 0xFFFF_FFFF, 1)


@inner
def _mark_of(words: ReceiveWords, message: int) -> int:
    """Return the bits of ECN that a message came with, as far as the kernel says."""
    control, used = words.controls[message], words.headers[message, CONTROL_BYTES_WORD]
    for number in range(_CONTROLS):
        first = CONTROL_WORDS * number
        if used > 8 * (first + 2) and control[first + 1] == _TOS_KIND:
            return int(control[first + 2] & 3)
    return 0


@inner
def _whole(words: ReceiveWords, message: int) -> int:
    return words.wholes.ctypes.data + message * _WHOLE_BYTES


@inner
def _is_laid_out(state: npt.NDArray[np.int64], size: int, segment: int, pieces: int) -> bool:
    """Tell whether a message's datagrams are each in a row of its own."""
    if pieces == 1:
        return bool(size <= state[_SEGMENT])
    return bool(segment == state[_SEGMENT] and pieces <= state[_HELD])


@inner
def _put_together(words: ReceiveWords, message: int, size: int) -> None:
    """Copy what is in a message's rows to the rest of it."""
    segment, held, whole = words.state[_SEGMENT], words.state[_HELD], _whole(words, message)
    for i in range(min(held, -(-size // segment))):
        source = words.first + (message * held + i) * words.stride
        copy_bytes(whole + i * segment, source, min(segment, size - i * segment))


@inner
def _cut_up(words: ReceiveWords, message: int, size: int, segment: int, done: int, count: int, row: int) -> None:
    """Copy `count` datagrams of a message that was put together, behind those that are done, to rows from `row` on.

    A datagram that is too long for a row is not copied.
    """
    whole = _whole(words, message)
    for i in range(count):
        start = (done + i) * segment
        length = min(segment, size - start)
        if length <= words.capacity:
            copy_bytes(words.first + (row + i) * words.stride, whole + start, length)

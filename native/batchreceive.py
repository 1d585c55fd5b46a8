"""Receives many datagrams per system call, super-datagrams in pieces, each into a row of its own (batchsocket.py).

How long the pieces are is known only when they have come, but they are as long as those before as a rule.  So each
message has rows laid out for what has come last, and memory behind them for the rest of it:

    message | row | row | ... | row | whole
            | datagram's bytes each |

What fits this is where it belongs.  Anything else is put together again and cut into spare rows.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from .atomics import copy_bytes
from .batchsocket import (
    BATCH_DATAGRAMS,
    CONTROL_BYTES_WORD,
    CONTROL_WORDS,
    GRO_KIND,
    LENGTH_WORD,
    LONGEST_BYTES,
    MESSAGE_WORDS,
    MMSGHDR,
    MOST_SEGMENTS,
    NAME_BYTES_WORD,
    NAME_WORDS,
    PIECES_WORD,
    Addresses,
    Indices,
    addresses_of,
)
from .kernels import inner, kernel
from .memory import carray, integers_at, pointer
from .rows import LEAD_BYTES, allocate_rows
from .system import receive_many

MOST_TAKEN: Final = 128
"""Datagrams that one call hands out."""
_LAID_OUT: Final = 128
"""Rows that messages are received into."""
_SPARE: Final = 128
"""Rows behind them."""
_WHOLE_BYTES: Final = 1 << 16
"""No datagram is longer, so none is cut off."""

_SEGMENT: Final = 0
"""Of the state: bytes of each row that messages are received into."""
_HELD: Final = 1
"""Rows of a message."""
_MESSAGES: Final = 2
"""Messages that are received at most."""
_CAME: Final = 3
"""Messages that the last system call brought."""
_NEXT: Final = 4
"""The first of them that has not been handed out, or not all of it."""
_PIECE: Final = 5
"""How many of its datagrams have been handed out."""
_SEEN: Final = 6
"""Bytes of the longest datagrams that came together since the rows were laid out; 0: none did."""
_STATE_WORDS: Final = 7


class ReceiveWords(NamedTuple):
    """What `receive_rows` works with."""

    headers: npt.NDArray[np.int64]
    """Headers of the messages, `[BATCH_DATAGRAMS, 8]`."""
    address: int
    """Of the first header."""
    pieces: npt.NDArray[np.int64]
    """Address and length of each one's memory, `[BATCH_DATAGRAMS, MOST_SEGMENTS + 1, 2]`."""
    controls: npt.NDArray[np.int64]
    """`[BATCH_DATAGRAMS, CONTROL_WORDS]`."""
    names: npt.NDArray[np.int64]
    """Sources, `[BATCH_DATAGRAMS, NAME_WORDS]`."""
    rows: npt.NDArray[np.uint8]
    first: int
    """Address in the first row where its datagram goes."""
    stride: int
    """Bytes from one row to the next."""
    room: int
    """Bytes of the longest datagram that fits into a row."""
    skip: int
    """Bytes of a frame in front of its datagram."""
    wholes: npt.NDArray[np.uint8]
    """Memory for all of a message, `[BATCH_DATAGRAMS, _WHOLE_BYTES]`."""
    state: npt.NDArray[np.int64]


class BatchReceiver:
    """Receives datagrams into rows of its own; each call overwrites what the last one brought."""

    def __init__(self, frame_bytes: int, *, skip: int = 0) -> None:
        """Have rows for frames of `frame_bytes`, whose first `skip` bytes are not in the datagram."""
        self.rows = allocate_rows(_LAID_OUT + _SPARE, frame_bytes)
        headers = np.zeros(BATCH_DATAGRAMS, MMSGHDR)
        pieces = np.zeros((BATCH_DATAGRAMS, MOST_SEGMENTS + 1, 2), np.int64)
        controls = np.zeros((BATCH_DATAGRAMS, CONTROL_WORDS), np.int64)
        names = np.zeros((BATCH_DATAGRAMS, NAME_WORDS), np.int64)
        headers["iov"] = addresses_of(pieces)
        headers["control"] = addresses_of(controls)
        headers["name"] = addresses_of(names)
        self.words = ReceiveWords(
            headers=headers.view(np.int64).reshape(BATCH_DATAGRAMS, -1),
            address=headers.ctypes.data,
            pieces=pieces,
            controls=controls,
            names=names,
            rows=self.rows,
            first=self.rows.ctypes.data + LEAD_BYTES + skip,
            stride=self.rows.strides[0],
            room=frame_bytes - skip,
            skip=skip,
            wholes=np.zeros((BATCH_DATAGRAMS, _WHOLE_BYTES), np.uint8),  # only what is written takes memory
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
def has_more(words: ReceiveWords) -> bool:
    """Tell whether datagrams have been received that were not handed out yet."""
    return bool(words.state[_NEXT] < words.state[_CAME])


@inner
def receive_words_at(address: int) -> ReceiveWords:
    """Return the words that were `packed` to an address."""
    words = integers_at(address, 12)
    return ReceiveWords(
        carray(pointer(words[0]), (BATCH_DATAGRAMS, MESSAGE_WORDS), np.int64),
        words[1],
        carray(pointer(words[2]), (BATCH_DATAGRAMS, MOST_SEGMENTS + 1, 2), np.int64),
        carray(pointer(words[3]), (BATCH_DATAGRAMS, CONTROL_WORDS), np.int64),
        carray(pointer(words[4]), (BATCH_DATAGRAMS, NAME_WORDS), np.int64),
        carray(pointer(words[5]), (_LAID_OUT + _SPARE, words[7]), np.uint8),
        words[6],
        words[7],
        words[8],
        words[9],
        carray(pointer(words[10]), (BATCH_DATAGRAMS, _WHOLE_BYTES), np.uint8),
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
        pieces = max(1, -(-size // segment))
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
            lengths[count + i] = words.skip + length if length <= words.room else 0
            names[count + i] = words.names[message, 0]
        if pieces > 1 and segment <= words.room:
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
        _lay_out(words, words.room, 1)
    for message in range(state[_MESSAGES]):
        words.headers[message, NAME_BYTES_WORD] = 8 * NAME_WORDS
        words.headers[message, CONTROL_BYTES_WORD] = 8 * CONTROL_WORDS
    came = receive_many(descriptor, words.address, state[_MESSAGES])
    # Nothing there, or the report that an earlier datagram found no receiver or that an interface went down.
    state[_CAME] = max(came, 0)
    state[_NEXT] = state[_PIECE] = 0


@inner
def _lay_out(words: ReceiveWords, segment: int, held: int) -> None:
    """Give each message `held` rows for datagrams of `segment` bytes."""
    state = words.state
    state[_SEGMENT], state[_HELD] = segment, held
    state[_MESSAGES] = min(BATCH_DATAGRAMS, _LAID_OUT // held)
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

    What is too long for a row stays where it is.
    """
    whole = _whole(words, message)
    for i in range(count):
        start = (done + i) * segment
        length = min(segment, size - start)
        if length <= words.room:
            copy_bytes(words.first + (row + i) * words.stride, whole + start, length)

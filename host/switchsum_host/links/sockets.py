"""A link over a datagram socket (UDP): the kernel copies, so a frame is consumed as soon as it is sent."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import ClassVar, Final

import numpy as np

from switchsum_switch.kernels.intrinsics import carray, pointer
from switchsum_switch.kernels.loading import address_of
from switchsum_switch.kernels.memory import bytes_at
from switchsum_switch.kernels.outlined import Native, Outlined
from switchsum_switch.kernels.records import Int64, Record, dtype_of
from switchsum_switch.process.system import watch
from switchsum_switch.wires.datagrams import (
    MOST_TAKEN,
    DatagramReceiver,
    DatagramSender,
    has_more,
    receive_rows,
    receive_words_at,
    send_datagrams,
)
from switchsum_switch.wires.encapsulation import Bytes, wrap
from switchsum_switch.wires.headers import LOWER_BYTES, Address
from switchsum_switch.wires.messages import MOST_SEGMENTS, grow_buffers, packed, send_words_at
from switchsum_switch.wires.rows import LEAD_BYTES, allocate_rows
from switchsum_switch.wires.segmentation import SUPER_BYTES

from ..engine.link import LINK, LinkRecord
from .native import NAP_S, NativeTransport, all_pushed, keep_nothing, sleep, tell_time


class SocketRecord(Record):
    """What only the functions of such a link know."""

    descriptor: Int64
    watched: Int64
    """Address: the descriptor."""
    first: Int64
    """Address of the first row that is sent, behind its lead and what is skipped."""
    stride: Int64
    """Bytes from one of these rows to the next."""
    sender: Int64
    """Address of packed `SendWords`."""
    receiver: Int64
    """Address of packed `ReceiveWords`."""
    lower: Int64
    """Address of the headers that are put in front of what comes, and left out of what is sent."""
    lower_bytes: Int64


_OWN: Final = dtype_of(SocketRecord)


def turn_frames(frame_bytes: int) -> int:
    """Return how many contributions are sent before more results are looked at: two super-frames."""
    return 2 * min(MOST_SEGMENTS, (SUPER_BYTES - LOWER_BYTES) // (frame_bytes - LOWER_BYTES))


@Outlined
def _take(link: int) -> int:
    here: LinkRecord = carray(pointer(link), (1,), LINK)[0]
    own: SocketRecord = carray(pointer(here.own), (1,), _OWN)[0]
    words = receive_words_at(own.receiver)
    rows = carray(pointer(here.rows), (MOST_TAKEN,), np.int32)
    lengths = carray(pointer(here.lengths), (MOST_TAKEN,), np.int32)
    sources = np.empty(MOST_TAKEN, np.int64)
    count = receive_rows(own.descriptor, words, rows, lengths, sources)
    wrap(words.rows, rows[:count], lengths[:count], bytes_at(own.lower, own.lower_bytes), sources[:0])
    return int(count)


@Outlined
def _send(link: int) -> int:
    here: LinkRecord = carray(pointer(link), (1,), LINK)[0]
    own: SocketRecord = carray(pointer(here.own), (1,), _OWN)[0]
    rows = carray(pointer(here.queue_rows), (here.queued,), np.int32)
    lengths = carray(pointer(here.queue_lengths), (here.queued,), np.int32)
    addresses, sizes = np.empty(here.queued, np.int64), np.empty(here.queued, np.int32)
    for i in range(here.queued):
        addresses[i] = own.first + np.int64(rows[i]) * own.stride
        sizes[i] = lengths[i] - own.lower_bytes
    here.pushed += send_datagrams(own.descriptor, send_words_at(own.sender), addresses, sizes, addresses[:0])
    return 0


@Outlined
def _wait(link: int) -> int:
    here: LinkRecord = carray(pointer(link), (1,), LINK)[0]
    own: SocketRecord = carray(pointer(here.own), (1,), _OWN)[0]
    if has_more(receive_words_at(own.receiver).state):
        return 1
    return int(sleep(here, own.watched) > 0)


class SocketTransport(NativeTransport):
    """A `Transport` over a socket that delivers what comes behind a frame's lower headers."""

    natives: ClassVar[Mapping[str, Native]] = {
        "take": _take,
        "release": keep_nothing,
        "send": _send,
        "consumed": all_pushed,
        "wait": _wait,
        "now": tell_time,
    }

    def __init__(
        self, link: socket.socket, address: Address, *, rows: int, frame_bytes: int, lower: Bytes, together: bool
    ) -> None:
        """Take `link`, which is connected and belongs to this object from now on.

        What comes gets the headers `lower`.  `together`: the socket may be given super-datagrams.
        """
        self._socket = link
        self._sender = DatagramSender(together=together)
        self._receiver = DatagramReceiver(frame_bytes, skip=len(lower))
        grow_buffers(link)
        self.address = address
        self.max_frame_bytes = frame_bytes
        self.tx_frames = allocate_rows(rows, frame_bytes)
        self._describe(lower)

    def _describe(self, lower: Bytes) -> None:
        """Tell the functions where things are."""
        watched, answers = watch([self._socket.fileno()]), self._receiver.rows
        sender, receiver = packed(self._sender.words), packed(self._receiver.words)
        own = np.zeros(1, _OWN)
        own[0] = (
            *(self._socket.fileno(), address_of(watched)),
            *(self.tx_frames.ctypes.data + LEAD_BYTES + len(lower), self.tx_frames.strides[0]),
            *(address_of(sender), address_of(receiver), address_of(lower), len(lower)),
        )
        rows, lengths = np.zeros(MOST_TAKEN, np.int32), np.zeros(MOST_TAKEN, np.int32)
        self.set_functions(own, watched, sender, receiver, lower, rows, lengths, self._sender, self._receiver)
        record = self.functions().record
        record["frames"], record["stride"] = address_of(answers), answers.strides[0]
        record["rows"], record["lengths"] = address_of(rows), address_of(lengths)
        record["turn"], record["longest_nap_s"] = turn_frames(self.max_frame_bytes), NAP_S

    @property
    def failed(self) -> int:
        """Return how many frames the kernel refused to send."""
        return self._sender.refused

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

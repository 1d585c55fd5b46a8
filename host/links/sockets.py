"""A link over a datagram socket (UDP): the kernel copies, so a frame is consumed as soon as it is sent."""

from __future__ import annotations

import select
import socket
from dataclasses import dataclass

import numpy as np

from switchsum.native.batchreceive import BatchReceiver, ReceiveWords, has_more
from switchsum.native.batchsend import BatchSender, SendWords
from switchsum.native.batchsocket import NO_NAMES, grow_buffers
from switchsum.native.encapsulation import Bytes, wrap
from switchsum.native.rows import LEAD_BYTES, allocate_rows
from switchsum.protocol.wire import Address

from .base import Frames, Indices, Received, milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketEnd:
    """What kernels need of a socket."""

    descriptor: int
    first: int
    """Address of the first row that is sent, behind its lead and what is skipped."""
    stride: int
    """Bytes from one of these rows to the next."""
    sending: SendWords
    receiving: ReceiveWords
    answers: Frames
    """The rows that are received into."""
    lower: Bytes
    """Headers that are put in front of what comes, and left out of what is sent."""


class SocketTransport:
    """A `Transport` over a socket that delivers what comes behind a frame's lower headers."""

    lead = LEAD_BYTES
    reopened = 0
    """Sockets outlive the switch."""

    def __init__(
        self, link: socket.socket, address: Address, *, rows: int, frame_bytes: int, lower: Bytes, together: bool
    ) -> None:
        """Take `link`, which is connected and belongs to this object from now on.

        What comes gets the headers `lower`.  `together`: the socket may be given super-datagrams.
        """
        self._socket = link
        self._descriptor = link.fileno()
        self._lower = lower
        self._sender = BatchSender(together=together)
        self._receiver = BatchReceiver(frame_bytes, skip=len(lower))
        self._poll = select.poll()
        self._poll.register(link, select.POLLIN)
        self._answers = self._receiver.rows.view()
        self._answers.flags.writeable = False
        grow_buffers(link)
        self.address = address
        self.max_frame_bytes = frame_bytes
        self.pushed = 0
        self.tx_frames: Frames = allocate_rows(rows, frame_bytes)
        self._first = self.tx_frames.ctypes.data + LEAD_BYTES + len(lower)
        self._stride = self.tx_frames.strides[0]

    @property
    def consumed(self) -> int:
        """Return as many as were handed over."""
        return self.pushed

    @property
    def failed(self) -> int:
        """Return how many frames the kernel refused to send."""
        return self._sender.refused

    def end(self) -> SocketEnd:
        """Return what a loop that is a kernel works on instead of calling `receive`, `send` and `wait`."""
        return SocketEnd(
            descriptor=self._descriptor,
            first=self._first,
            stride=self._stride,
            sending=self._sender.words,
            receiving=self._receiver.words,
            answers=self._receiver.rows,
            lower=self._lower,
        )

    def send(self, rows: Indices, lengths: Indices) -> int:
        """Send the frames in `rows`, as many as the socket takes."""
        addresses = self._first + rows.astype(np.int64) * self._stride
        count = self._sender.send(self._descriptor, addresses, lengths - np.int32(len(self._lower)))
        self.pushed += count
        return count

    def receive(self) -> Received:
        """Return the frames that have come, at most one system call's worth."""
        rows, lengths, _ = self._receiver.receive(self._descriptor)
        wrap(self._receiver.rows, rows, lengths, self._lower, NO_NAMES)
        if not lengths.all():  # some were too long
            rows, lengths = rows[lengths > 0], lengths[lengths > 0]
        return Received(self._answers, rows, lengths)

    def release(self) -> None:
        """Nothing to do: the next `receive` overwrites the rows."""

    def wait(self, timeout_s: float) -> bool:
        """Block until something has come."""
        return has_more(self._receiver.words) or bool(self._poll.poll(milliseconds(timeout_s)))

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
        self._descriptor = -1

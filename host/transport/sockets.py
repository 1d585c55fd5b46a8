"""A link over an ordinary socket (UDP): the kernel copies, so a frame is consumed as soon as it is sent."""

from __future__ import annotations

import select
import socket
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from switchsum.host.transport.base import Frames, Indices, Received, milliseconds
from switchsum.protocol.batchsocket import BATCH_DATAGRAMS, BatchReceiver, BatchSender, MessageWords, grow_buffers
from switchsum.protocol.rows import LEAD_BYTES, allocate_rows
from switchsum.protocol.wire import Address


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketEnd:
    """What kernels need of a socket."""

    descriptor: int
    skip: int
    """Bytes at the start of each frame that do not travel."""
    first: int
    """Address of the first row that is sent, behind its lead and what is skipped."""
    stride: int
    """Bytes from one of these rows to the next."""
    sending: MessageWords
    receiving: MessageWords
    answers: Frames
    """The rows that are received into."""
    lower: npt.NDArray[np.uint8]
    """Headers that are put in front of what comes, or nothing."""
    failed: npt.NDArray[np.int64]
    """One number, of frames that the socket refused."""


class SocketTransport:
    """A `Transport` over a socket that delivers whole frames, or all but their first `skip` bytes."""

    lead = LEAD_BYTES
    reopened = 0
    """Sockets outlive the switch."""

    def __init__(self, link: socket.socket, address: Address, *, rows: int, frame_bytes: int, skip: int) -> None:
        """Take `link`, which is bound and belongs to this object from now on."""
        self._socket = link
        self._descriptor = link.fileno()
        self._skip = skip
        self._sender = BatchSender()
        self._receiver = BatchReceiver(frame_bytes, skip=skip)
        self._rows = np.arange(BATCH_DATAGRAMS, dtype=np.int32)
        self._poll = select.poll()
        self._poll.register(link, select.POLLIN)
        self._answers = self._receiver.rows.view()
        self._answers.flags.writeable = False
        grow_buffers(link)
        self.address = address
        self.max_frame_bytes = frame_bytes
        self.pushed = 0
        self.tx_frames: Frames = allocate_rows(rows, frame_bytes)
        self._first = np.uint64(self.tx_frames.ctypes.data + LEAD_BYTES + skip)
        self._stride = np.uint64(self.tx_frames.strides[0])
        self._failed = np.zeros(1, np.int64)
        self._lower = np.zeros(0, np.uint8)

    @property
    def consumed(self) -> int:
        """Return as many as were handed over."""
        return self.pushed

    @property
    def failed(self) -> int:
        """Return how many frames the kernel refused to send."""
        return self._sender.failed + int(self._failed[0])

    def end(self) -> SocketEnd:
        """Return what a loop that is a kernel works on instead of calling `receive`, `send` and `wait`."""
        return SocketEnd(
            descriptor=self._descriptor,
            skip=self._skip,
            first=int(self._first),
            stride=int(self._stride),
            sending=self._sender.words(),
            receiving=self._receiver.words(),
            answers=self._receiver.rows,
            lower=self._lower,
            failed=self._failed,
        )

    def send(self, rows: Indices, lengths: Indices) -> int:
        """Send the frames in `rows`, as many as the socket takes."""
        addresses = self._first + rows.astype(np.uint64) * self._stride
        count = self._sender.send(self._descriptor, addresses, lengths - self._skip)
        self.pushed += count
        return count

    def receive(self) -> Received:
        """Return the frames that have come, one system call's worth."""
        lengths = self._receiver.lengths(self._receiver.receive(self._descriptor, BATCH_DATAGRAMS))
        rows = self._rows[: len(lengths)]
        self._complete(lengths)
        if not lengths.all():  # some were too long
            rows, lengths = rows[lengths > 0], lengths[lengths > 0]
        return Received(self._answers, rows, lengths)

    def release(self) -> None:
        """Nothing to do: the next `receive` overwrites the rows."""

    def wait(self, timeout_s: float) -> bool:
        """Block until something has come."""
        return bool(self._poll.poll(milliseconds(timeout_s)))

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
        self._descriptor = -1

    def _complete(self, lengths: Indices) -> None:
        """Write what the socket did not deliver of the first `len(lengths)` received rows."""

"""Ports to workers on the same machine, by shared memory: the program runs on a frame where the worker has put it.

A worker connects to a Unix socket and says hello: how long its frames are, how many rows it wants.  The switch makes
the shared memory of both outboxes (`ring.py`), chooses a port number and sends the descriptors back (`_greet`,
`_join`). From then on frames travel through memory only, by the kernels of `shm_kernels.py`.  The socket stays open to
show that the worker lives; its process is watched as well.

Nothing that a worker writes is trusted.  A worker that breaks its ring is dropped, and one that connects and says
nothing makes room for others: at most `MAX_PENDING` of them wait.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import numpy as np

from switchsum_switch.connections.serving import listening_at
from switchsum_switch.errors import TransportError
from switchsum_switch.wires.bodies import body_stride, share
from switchsum_switch.wires.encapsulation import Address
from switchsum_switch.wires.headers import HEAD_BYTES
from switchsum_switch.wires.messages import packed
from switchsum_switch.wires.outbox import BROKEN, LINK_FIELDS, OWN_MASK, SHARING, fill_link
from switchsum_switch.wires.ring import abandon, lend_rows
from switchsum_switch.wires.shared_memory import (
    MAX_ROWS,
    MESSAGE_BYTES,
    Answer,
    Hello,
    SharedMemory,
    check_peer,
    socket_path,
)

from .base import MAX_FRAME_BYTES, Addresses, Batch, PortGroup, PortTable, Words
from .operations import Operations
from .shm_kernels import MAX_WORKERS, SHM, awake, fall_asleep, shm_words

WORKER_MAC: Final = 0x02_73_77_00_00_00
"""Ethernet address of a worker, without its port number, which is added; locally administered."""
WORKER_NETWORK: Final = 10 << 24 | 73 << 16
"""IPv4 address of a worker, without its port number, which is added: 10.73.0.0."""
WORKER_UDP_PORT: Final = 21334
MAX_PENDING: Final = 64
"""Most connections that have not said hello yet; one more closes the oldest of them."""
RETURN_S: Final = 10.0
"""Seconds after its start in which workers may come back who had their ports from an earlier switch. The entries of
their jobs name these ports, so a worker that was given one meanwhile gets another one.
"""
_NOT_COME: Final = (errno.EAGAIN, errno.ECONNABORTED, errno.EINTR)
"""Errors of accept(2) that mean that there is no connection after all."""

BODIES: Final = 1024
"""Bodies that there are at least: workers that come later may hold more than the first one."""

_log = logging.getLogger("switchsum.switch.ports.shm")


def worker_address(port: int) -> Address:
    """Return the address of the worker on port `port`; no network has it, but the program cannot tell."""
    return Address(mac=WORKER_MAC + port, ip=WORKER_NETWORK + port, port=WORKER_UDP_PORT)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Worker:
    """One worker that is connected."""

    port: int
    """Port number."""
    bell: int
    """The eventfd that wakes it."""
    connection: socket.socket
    watched: tuple[int, ...]
    """Descriptors that become readable when the worker ends."""
    has_returned: bool
    """Its job needs the port, which it had from an earlier switch."""
    resources: ExitStack
    """Frees the memory, descriptors and port number of the link."""


class _Bodies:
    """Memory for bodies of frames, which all workers that are connected at a time share."""

    def __init__(self, frame_bytes: int, rows: int) -> None:
        """Make memory for the bodies of `rows` frames of up to `frame_bytes` bytes; raises TransportError."""
        self.frame_bytes = frame_bytes
        self.rows = rows
        self.stride = body_stride(frame_bytes)
        self.memory = SharedMemory.create("bodies", rows * self.stride, theirs=False)
        self.words = share(self.memory.address, rows, self.stride)


class ShmPorts(PortGroup):
    """Ports that are shared-memory links."""

    def __init__(self, name: str, table: PortTable) -> None:
        """Listen under `name`; raises TransportError if another switch does, and UsageError if it is no name."""
        super().__init__(table)
        self._path = socket_path(name)
        self.words = shm_words()
        """The ports as kernels see them."""
        self.operations = Operations(SHM, self, packed(self.words))
        """Functions that the loop calls, compiled before the first frame: the sender's time-out is shorter than
        compiling.
        """
        self._bodies: _Bodies | None = None
        self._workers: dict[int, _Worker] = {}
        self._pending: dict[int, socket.socket] = {}
        self._listener = _listen(self._path)
        self._returns_until_s = time.monotonic() + RETURN_S
        self._spare = _open_spare()
        self._is_unwatched = False
        """The listener is not watched: no descriptor is left, so that a connection could not even be refused."""
        self._epoll = select.epoll()
        self._epoll.register(self._listener, select.EPOLLIN)
        self.bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """Workers ring it when they have frames and the switch sleeps."""
        self._compile()

    def _compile(self) -> None:
        """Compile what is called for workers that connect and end.

        Processes compile in turns: later the switch would have to wait for workers that compile.
        """
        nobody = np.zeros(LINK_FIELDS, np.int64)
        nobody[OWN_MASK] = -1  # a link without rows
        lend_rows(nobody)
        abandon(nobody)

    def collect(self, batch: Batch) -> None:
        """Append the frames that workers have put into their outboxes."""
        self.operations.collect(batch)

    def done(self) -> None:
        """Give the workers their rows back."""
        self.operations.release()

    def transmit(self, ports: Words, addresses: Addresses, lengths: Words) -> None:
        """Copy frames to the outboxes that workers read, and wake the workers that sleep."""
        self.operations.transmit(ports, addresses, lengths)

    def descriptors(self) -> list[int]:
        """Return the switch's bell, and a descriptor that is readable when a worker connects or ends."""
        return [self.bell, self._epoll.fileno()]

    def prepare_sleep(self) -> bool:
        """Ask all workers to ring the bell; return False if frames have arrived."""
        return bool(fall_asleep(self.operations.address))

    def awake(self) -> None:
        """Tell all workers that the switch is awake."""
        awake(self.operations.address)
        try:
            os.eventfd_read(self.bell)
        except BlockingIOError:
            pass

    def service(self) -> None:
        """Connect workers that have come, and drop those that have ended or whose ring is broken."""
        if self._is_unwatched:
            self._listen_again()
        for descriptor, _ in self._epoll.poll(0):
            if descriptor == self._listener.fileno():
                self._accept()
            elif descriptor in self._pending:
                self._greet(descriptor)
            else:
                for index, worker in list(self._workers.items()):
                    if descriptor in worker.watched:
                        self._drop(index, "is gone")
        for index in list(self._workers):
            if self.words.links[index, BROKEN]:
                self._drop(index, "is dropped, its ring indices make no sense")

    def close(self) -> None:
        """Close every link; workers see the end of their connection."""
        for index in list(self._workers):
            self._drop(index, "is let go")
        for connection in self._pending.values():
            connection.close()
        self._pending.clear()
        self._close_bodies()
        try:
            os.unlink(self._path)  # before the socket is closed, so that it cannot be another switch's path
        except OSError:
            pass
        self._listener.close()
        if self._spare >= 0:
            os.close(self._spare)
        self._epoll.close()
        os.close(self.bell)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            if error.errno not in _NOT_COME:
                self._refuse_without_descriptors()
            return
        connection.setblocking(False)
        try:
            check_peer(connection)
        except TransportError as error:  # another user's process must not fill the list of pending connections
            _refuse(connection, error)
            return
        if len(self._pending) >= MAX_PENDING:
            oldest = self._pending.pop(next(iter(self._pending)))
            self._epoll.unregister(oldest)
            _refuse(oldest, TransportError("it has said nothing for too long"))
        self._pending[connection.fileno()] = connection
        self._epoll.register(connection, select.EPOLLIN)

    def _refuse_without_descriptors(self) -> None:
        """Refuse a connection with the reason that no descriptors are left.

        The spare descriptor is given up for it.  Without this the listener would stay readable and the loop never
        sleep.
        """
        if self._spare >= 0:
            os.close(self._spare)
            try:
                connection, _ = self._listener.accept()
                _refuse(connection, TransportError("too many files are open in the switch: `ulimit -n` limits them"))
            except OSError:
                pass
            self._spare = _open_spare()
        if self._spare < 0:
            self._epoll.unregister(self._listener)
            self._is_unwatched = True

    def _listen_again(self) -> None:
        """Watch the listener again if there is a descriptor to spare."""
        self._spare = _open_spare()
        if self._spare >= 0:
            self._epoll.register(self._listener, select.EPOLLIN)
            self._is_unwatched = False

    def _greet(self, descriptor: int) -> None:
        """Answer the hello of a pending connection with a link or a refusal."""
        connection = self._pending.pop(descriptor)
        self._epoll.unregister(descriptor)
        try:
            pid = check_peer(connection)
            self._join(connection, pid, Hello.decode(connection.recv(MESSAGE_BYTES)))
        except (TransportError, OSError) as error:
            if not self._workers:
                self._close_bodies()
            _refuse(connection, error)

    def _join(self, connection: socket.socket, pid: int, hello: Hello) -> None:
        """Make a link; raises TransportError or OSError, and then only the connection is left open."""
        if not HEAD_BYTES <= hello.frame_bytes <= MAX_FRAME_BYTES:
            raise TransportError(f"frames have {HEAD_BYTES} to {MAX_FRAME_BYTES} bytes, not {hello.frame_bytes}")
        index = next((i for i in range(MAX_WORKERS) if i not in self._workers), None)
        if index is None:
            raise TransportError(f"there are {MAX_WORKERS} workers already")
        # Each resource is registered as soon as it is there.  If a later step raises, the stack frees them all; at the
        # end `pop_all` hands them to the worker's record.
        their_layout, our_layout = hello.outboxes()
        with ExitStack() as resources:
            outbox = SharedMemory.create("outbox", their_layout.total_bytes, theirs=True)
            resources.callback(outbox.close)
            answers = SharedMemory.create("answers", our_layout.total_bytes, theirs=False)
            resources.callback(answers.close)
            bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            resources.callback(os.close, bell)
            # The process is watched, too: a child that it has forked would keep the connection open after its end.
            watched = (connection.fileno(), os.pidfd_open(pid))
            resources.callback(os.close, watched[1])
            for descriptor in watched:
                self._epoll.register(descriptor, select.EPOLLIN)
                resources.callback(self._epoll.unregister, descriptor)
            if hello.keeps_port:
                self._make_way(hello.port)
            port = self.table.take("shm", f"process {pid}", None if hello.port < 0 else hello.port)
            resources.callback(self.table.give_back, port)
            fill_link(self.words.links[index], our_layout, answers.address, their_layout, outbox.address)
            lend_rows(self.words.links[index])
            descriptors = [outbox.descriptor, answers.descriptor, bell, self.bell]
            bodies = self._bodies_for(hello)
            if bodies is not None:
                self.words.links[index, SHARING] = bodies.words.ctypes.data
                descriptors.append(bodies.memory.descriptor)
            address = worker_address(port)
            answer = Answer(
                port=port,
                mac=address.mac,
                ip=address.ip,
                udp_port=address.port,
                body_rows=bodies.rows if bodies else 0,
                body_stride=bodies.stride if bodies else 0,
            )
            socket.send_fds(connection, [answer.encode()], descriptors)
            self._workers[index] = _Worker(
                port=port,
                bell=bell,
                connection=connection,
                watched=watched,
                has_returned=hello.keeps_port,
                resources=resources.pop_all(),
            )
        self._list_links()
        _log.info("process %d is on port %d", pid, port)

    def _make_way(self, port: int) -> None:
        """Let a worker go that was given a port before the one came back whose port it is; it connects again."""
        if time.monotonic() > self._returns_until_s:
            return
        for index, worker in list(self._workers.items()):
            if worker.port == port and not worker.has_returned:
                self._drop(index, "is let go: another worker has come back who had this port before")

    def _bodies_for(self, hello: Hello) -> _Bodies | None:
        """Return the bodies that a worker shares with the others; None if its frames are longer than theirs.

        The frames of the first worker decide how long bodies are.  There are at least twice as many rows as one worker
        can hold, so that a worker which is stopped does not take all of them.  Raises TransportError.
        """
        if self._bodies is None:
            self._bodies = _Bodies(hello.frame_bytes, min(max(BODIES, 2 * hello.answer_rows), MAX_ROWS))
        return self._bodies if hello.frame_bytes <= self._bodies.frame_bytes else None

    def _close_bodies(self) -> None:
        if self._bodies is not None:
            self._bodies.memory.close()
            self._bodies = None

    def _drop(self, index: int, why: str) -> None:
        worker = self._workers.pop(index)
        abandon(self.words.links[index])
        self._list_links()
        worker.resources.close()
        worker.connection.close()
        if not self._workers:  # the frames of the next workers may have another length
            self._close_bodies()
        _log.info("the worker on port %d %s", worker.port, why)

    def _list_links(self) -> None:
        """Bring the words of the kernels up to date after a worker has come or gone."""
        self.words.active[: len(self._workers)] = sorted(self._workers)
        self.words.known[0] = len(self._workers)
        self.words.link_of_port[:] = -1
        self.owned[:] = False
        for index, worker in self._workers.items():
            self.words.link_of_port[worker.port] = index
            self.owned[worker.port] = True
            self.words.port_of_link[index] = worker.port
            self.words.bells[index] = worker.bell


def _refuse(connection: socket.socket, error: Exception) -> None:
    """Tell a worker why it gets no link, and close the connection."""
    _log.warning("a worker is refused: %s", error)
    try:
        connection.setblocking(False)
        connection.send(Answer(error=str(error)).encode())
    except OSError:  # the worker has not waited for the answer
        pass
    connection.close()


def _open_spare() -> int:
    """Return a descriptor that can be closed to accept a connection when no other is left; -1 if there is none."""
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def _listen(path: str) -> socket.socket:
    # SOCK_SEQPACKET keeps the borders of messages: a hello is one message, and cannot come in pieces.
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    try:
        with listening_at(path):
            listener.bind(path)
            listener.listen(MAX_WORKERS)
    except OSError as error:
        listener.close()
        raise TransportError(f"shared-memory links at {path}: {error.strerror}") from error
    except TransportError:
        listener.close()
        raise
    return listener

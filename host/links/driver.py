"""The driver: moves frames between a transport and an engine, and is the one place here that reads a clock."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from switchsum.native.trace import NO_SPANS, Trace

from ..engine.events import Event
from ..engine.machine import RETRY_S
from ..engine.prepared import Prepared
from ..engine.worker import Engine
from .base import Transport
from .packet import PacketTransport
from .packet_loop import PacketLoop
from .shm import ShmTransport
from .shm_loop import ShmLoop
from .socket_loop import SocketLoop
from .sockets import SocketTransport


class Driver:
    """One engine on one transport; one thread at a time drives it.

    A signal handler may raise anywhere in here: what was done is done, and the next step goes on from there.  A frame
    may then be sent twice, which the switch expects.
    """

    def __init__(
        self,
        engine: Engine,
        transport: Transport,
        clock: Callable[[], float] = time.monotonic,
        *,
        trace: Trace | None = None,
    ) -> None:
        """Note in `trace`, if there is one, what a link's own loop does."""
        self.engine = engine
        self.transport = transport
        self.clock = clock
        self.trace = trace
        self._reopened = transport.reopened
        self._loop = self._loop_of_its_own()

    def step(self, most_s: float) -> deque[Event]:
        """Receive, feed, transmit, and wait up to `most_s` if there was nothing to do; return what has happened.

        The caller takes each event away once it is done with it.
        A link with a loop of its own goes on until something has happened or `most_s` is over.  Raises SwitchLost when
        the link is broken for good.
        """
        engine, transport = self.engine, self.transport
        if transport.reopened != self._reopened:
            engine.relink(transport.tx_frames, transport.pushed)
            self._loop = self._loop_of_its_own()
            self._reopened = transport.reopened
        if self._loop is not None:
            if self._loop.run(self.clock() + most_s):
                engine.note(self.clock())
                return engine.events()
            self._loop = None  # until the transport has opened the link again
        received = transport.receive()
        engine.consumed(transport.consumed)
        now = self.clock()
        count = len(received.rows)
        if count:
            engine.receive(received.frames, received.rows, received.lengths, now)
        transport.release()
        engine.poll(now)
        count += self._transmit()
        events = engine.events()
        if count == 0 and not events and most_s > 0:
            transport.wait(min(most_s, self._pause(now)))
        return events

    def begin(self, prepared: Prepared, most_s: float) -> None:
        """Submit an operation whose array was filled in, and do what `step` does, if the link's loop can do both.

        What has happened, and what there is to say about the link, the next `step` says.
        """
        if isinstance(self._loop, ShmLoop):
            self._loop.begin(prepared.address, self.clock() + most_s)
        else:
            self.engine.submit_record(prepared.record, self.clock())

    def _loop_of_its_own(self) -> ShmLoop | SocketLoop | PacketLoop | None:
        spans = NO_SPANS if self.trace is None else self.trace.spans
        match self.transport:
            case ShmTransport():
                return ShmLoop(self.engine, self.transport.end(), spans)
            case SocketTransport():
                return SocketLoop(self.engine, self.transport.end(), spans)
            case PacketTransport():
                return PacketLoop(self.engine, self.transport.end(), spans)
        return None

    def _transmit(self) -> int:
        rows, lengths = self.engine.outgoing()
        if not len(rows):
            return 0
        count = self.engine.handed_over(self.transport.pushed)  # by a call that was interrupted before it said so
        if not count:
            self.transport.send(rows, lengths)
            count = self.engine.handed_over(self.transport.pushed)
        return count

    def _pause(self, now: float) -> float:
        """Return how long nothing is to be done unless a frame comes."""
        if self.engine.is_blocked or len(self.engine.outgoing()[0]):
            return RETRY_S
        return max(0.0, self.engine.wake_at - now)

"""A simulated worker with links to several switches: the real `SeveralLinks`, whose frames the event loop moves.

Four kernels stand between the loop and the engine.  What comes over any link is made a frame that came over the first
one, and what goes gets the addresses and the job number of its link, by the functions that do so for sockets.  Links
are watched by the code that watches a worker's sockets, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, cast

import numpy as np
import numpy.typing as npt

from switchsum_host.engine.header import get16, get32
from switchsum_host.links.base import LinkListener
from switchsum_host.links.native import NativeTransport
from switchsum_host.links.several import PART, SEVERAL, SeveralLinks, SeveralRecord, receive_as_first, send_as
from switchsum_host.links.watching import LinkWatch
from switchsum_protocol.frame import AT, FRAME_BYTES
from switchsum_protocol.member_rpc import MOST_IN_FLIGHT, ReadyReply
from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.intrinsics import carray, pointer
from switchsum_switch.kernels.loading import address_of
from switchsum_switch.kernels.memory import Scalar, bytes_at, call, integers_at, words_at
from switchsum_switch.kernels.outlined import Native, Outlined
from switchsum_switch.kernels.records import Int64, Record, dtype_of
from switchsum_switch.wires.headers import Address
from switchsum_switch.wires.rows import LEAD_BYTES

from .workers import Worker

_IP_DESTINATION: Final = 30
_UDP_DESTINATION: Final = 36
_ROUTES: Final = 2 * MOST_IN_FLIGHT


class RailsRecord(Record):
    """What the kernels below know of one worker."""

    engine: Int64
    receive: Int64
    poll: Int64
    sent: Int64
    wake: Int64
    """Addresses of the engine's arrays, and of its functions."""
    several: Int64
    """Address of the `SEVERAL` of its links."""
    links: Int64
    """Address of the number of each of them in the world."""
    routes: Int64
    """Address of the number of the link over which each queued frame goes."""
    queue_count: Int64
    queue_rows: Int64
    queue_lengths: Int64
    sequence: Int64
    consumed: Int64
    """Addresses of the engine's words of these names."""
    ignored: Int64
    """Place where the loop writes how many frames have left the first link."""


RAILS: Final = dtype_of(RailsRecord)


@Outlined
def receive(own: int, frames: int, stride: int, rows: int, lengths: int, bodies: int, count: int, now: float) -> int:
    """Take one frame, which came over any link."""
    here: RailsRecord = carray(pointer(own), (1,), RAILS)[0]
    several: SeveralRecord = carray(pointer(here.several), (1,), SEVERAL)[0]
    parts = carray(pointer(several.parts), (several.count,), PART)
    if words_at(lengths, 1)[0] >= FRAME_BYTES:
        header = bytes_at(frames + LEAD_BYTES, FRAME_BYTES)
        for number in range(several.count):
            part = parts[number]
            if (
                get32(header, _IP_DESTINATION) == part.ip
                and get16(header, _UDP_DESTINATION) == part.port
                and get16(header, AT.job) == part.job
            ):
                part.came += 1
                several.turn = number
                receive_as_first(several, parts[0], part, header)
                break
    call(here.receive, here.engine, frames, stride, rows, lengths, bodies, count, now)
    return 0


@Outlined
def poll(own: int, now: float) -> int:
    """Do what the engine does, and say over which link each frame goes."""
    here: RailsRecord = carray(pointer(own), (1,), RAILS)[0]
    call(here.poll, here.engine, now)
    _route(here)
    return 0


@inner
def _route(here: RailsRecord) -> None:
    several: SeveralRecord = carray(pointer(here.several), (1,), SEVERAL)[0]
    parts = carray(pointer(several.parts), (several.count,), PART)
    ways = integers_at(several.ways, MOST_IN_FLIGHT)
    queued = integers_at(here.queue_count, 1)[0]
    rows, lengths = words_at(here.queue_rows, queued), words_at(here.queue_lengths, queued)
    routes, links = integers_at(here.routes, queued), integers_at(here.links, several.count)
    for place in range(queued):
        row: Scalar = np.int64(rows[place])
        way = ways[row >> 1]
        number = way // several.trees
        frame = bytes_at(several.frames + row * several.stride, int(lengths[place]))
        send_as(parts[number], way % several.trees, frame)
        parts[number].sent += 1
        routes[place] = links[number]


@Outlined
def sent(own: int, count: int) -> int:
    """Note that all that was queued is on its link: nothing waits for its row, as with sockets, which copy."""
    here: RailsRecord = carray(pointer(own), (1,), RAILS)[0]
    call(here.sent, here.engine, count)
    integers_at(here.consumed, 1)[0] = integers_at(here.sequence, 1)[0]
    return 0


@Outlined
def tell_wake_at(own: int, target: int) -> int:
    """Write to an address when `poll` has something to do."""
    here: RailsRecord = carray(pointer(own), (1,), RAILS)[0]
    call(here.wake, here.engine, target)
    return 0


class SimulatedLink(NativeTransport):
    """One of the links, as `SeveralLinks` knows it; the event loop moves its frames."""

    natives: ClassVar[Mapping[str, Native]] = {}

    def __init__(self, address: Address, frames: npt.NDArray[np.uint8]) -> None:
        self.address = address
        self.tx_frames = frames
        self.max_frame_bytes = frames.shape[1] - LEAD_BYTES
        self.set_functions(np.zeros(1, [("nothing", np.int64)]))

    def send_from(self, frames: npt.NDArray[np.uint8]) -> None:
        """Do nothing: all links of a worker are made with its rows."""

    @property
    def descriptor(self) -> int:
        """Return none: no system call waits for it."""
        return -1

    def close(self) -> None:
        """Do nothing."""


class Rails:
    """The links of one worker to several switches."""

    def __init__(self, worker: Worker, addresses: Sequence[Address], listener: LinkListener) -> None:
        """Give a worker a link for each of its addresses; `listener` is whom to tell of one that is dead."""
        self.most_frames = worker.most_frames
        self._worker = worker
        self._links = SeveralLinks(
            [SimulatedLink(address, worker.rows) for address in addresses],
            [f"simulated:{number}" for number in range(len(addresses))],
        )
        self._watch = LinkWatch(self._links, listener)
        self._numbers = np.zeros(len(addresses), np.int64)
        self._routes = np.zeros(_ROUTES, np.int64)
        self._record = np.zeros(1, RAILS)
        facts = worker.facts()
        own = {name: facts[name] for name in ("receive", "poll", "sent", "wake", "queue_count", "queue_rows")}
        own |= {"queue_lengths": facts["queue_lengths"], "engine": facts["own"], "consumed": facts["consumed"]}
        own |= {"sequence": worker.word("sending", "sequence"), "several": address_of(self._links.own)}
        own |= {"links": address_of(self._numbers), "routes": address_of(self._routes)}
        for name, value in own.items():
            self._record[name] = value

    def facts(self) -> Mapping[str, int]:
        """Return fields of its `NodeRecord`."""
        own, fields = address_of(self._record), cast("Mapping[str, tuple[object, int]]", RAILS.fields)
        return {
            **self._worker.facts(),
            "own": own,
            "fetch": 0,
            "receive": receive.address,
            "poll": poll.address,
            "sent": sent.address,
            "wake": tell_wake_at.address,
            "consumed": own + fields["ignored"][1],
            "routes": address_of(self._routes),
        }

    def begin(self, ready: ReadyReply, numbers: Sequence[int]) -> None:
        """Share the slots of an admitted member out among its links, which have these numbers in the world."""
        self._numbers[:] = numbers
        self._links.take_slots(ready)
        self._share_out()

    def look(self, now: float) -> bool:
        """Look at all links, now and then; return whether slots have got other links."""
        if not self._watch.look(now):
            return False
        self._share_out()
        return True

    def _share_out(self) -> None:
        """Tell the engine which way each slot has."""
        engine = self._worker.engine
        engine.share_out(self._links.ways[: len(engine.state.slots)])

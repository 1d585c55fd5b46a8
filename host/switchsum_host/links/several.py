"""Several links of one worker as one `Transport`: each slot has a link, over which its contributions go.

The links have one frame store, into which the engine packs; nothing is copied.  The engine knows the addresses of the
first link alone.  What goes over another one gets that link's addresses and job number (the controller's
jobs/several_links.py) in its row, before it is sent; of what comes the first link's are put in their place.  For the
engine each tree of each link is a tree, a *way*: results of a fast link pass those of a slow one, and nothing is lost
for that.

A switch does not mind over which link a contribution comes.  So a slot may get another link at any time, and be sent
over two at once (`mirror`), to find out whether one of them is dead.  Rails, links to several switches, are different:
a slot's cell is on those of one rail, so that all members must change it together, and answers count only from there.
Refusals do not count: the controller says who is no member any more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import AT, FRAME_BYTES, Kind
from switchsum_protocol.member_rpc import MOST_IN_FLIGHT, ReadyReply
from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.intrinsics import carray, pointer
from switchsum_switch.kernels.loading import address_of
from switchsum_switch.kernels.memory import bytes_at, call, integers_at
from switchsum_switch.kernels.outlined import Native, Outlined
from switchsum_switch.kernels.records import Int64, Record, dtype_of
from switchsum_switch.process.system import poll, watch
from switchsum_switch.wires.checksum import fill_ip_checksum
from switchsum_switch.wires.headers import ETHERNET_BYTES, IPV4_BYTES, Address
from switchsum_switch.wires.packetsocket import interface_mbit
from switchsum_switch.wires.rows import LEAD_BYTES

from ..engine.header import Frame, fill_checksum, get16, get32, put16, put32
from ..engine.link import LINK, LinkRecord
from ..engine.state import MOST_TREES
from .base import Transport
from .names import NamedLink, open_transport
from .native import NativeTransport, all_pushed, nanoseconds, tell_time

NOWHERE: Final = -1
"""Number in place of a mirror's link: there is none."""

_MAC_SOURCE: Final = 6
_IP_SOURCE: Final = ETHERNET_BYTES + 12
_IP_DESTINATION: Final = ETHERNET_BYTES + 16
_UDP_SOURCE: Final = ETHERNET_BYTES + IPV4_BYTES
_UDP_DESTINATION: Final = _UDP_SOURCE + 2
_UDP_CHECKSUM: Final = _UDP_SOURCE + 6


class PartRecord(Record):
    """One of the links."""

    link: Int64
    """Address of its `LINK`."""
    mac: Int64
    ip: Int64
    port: Int64
    job: Int64
    """Under which job number it sends."""
    mirror: Int64
    """Number of the link over which its frames go as well, or `NOWHERE`."""
    sent: Int64
    """Frames that were handed to it."""
    came: Int64
    """Frames that came over it."""


class SeveralRecord(Record):
    """What only the functions of several links know."""

    count: Int64
    """Links."""
    parts: Int64
    """Address of as many `PART`."""
    ways: Int64
    """Address of the int64 number of each slot's way: its link times `trees`, and its tree."""
    trees: Int64
    """Trees of the job."""
    has_rails: Int64
    """1: links lead to several switches."""
    first_slot: Int64
    """Number of the first slot in frames."""
    frames: Int64
    """Address of the first row of the frame store, behind its lead."""
    stride: Int64
    watched: Int64
    """Address: the links' descriptors."""
    turn: Int64
    """Number of the link of which the last frames were taken."""
    picked: Int64
    """Address of int32 rows and lengths: what goes over one link."""


PART: Final = dtype_of(PartRecord)
SEVERAL: Final = dtype_of(SeveralRecord)
_MOST_QUEUED: Final = 2 * MOST_IN_FLIGHT


@Outlined
def _take(link: int) -> int:
    here: LinkRecord = carray(pointer(link), (1,), LINK)[0]
    own: SeveralRecord = carray(pointer(here.own), (1,), SEVERAL)[0]
    parts = carray(pointer(own.parts), (own.count,), PART)
    for _ in range(own.count):
        own.turn = (own.turn + 1) % own.count
        part: PartRecord = parts[own.turn]
        inner_link: LinkRecord = carray(pointer(part.link), (1,), LINK)[0]
        count = call(inner_link.take, part.link)
        if count > 0:
            part.came += count
            here.frames, here.stride = inner_link.frames, inner_link.stride
            here.rows, here.lengths = inner_link.rows, inner_link.lengths
            rows = carray(pointer(here.rows), (count,), np.int32)
            lengths = carray(pointer(here.lengths), (count,), np.int32)
            for i in range(count):
                if lengths[i] >= FRAME_BYTES:
                    frame = bytes_at(int(here.frames + rows[i] * here.stride + LEAD_BYTES), FRAME_BYTES)
                    receive_as_first(own, parts[0], part, frame)
            return int(count)
        call(inner_link.release, part.link)
    return 0


@inner
def receive_as_first(own: SeveralRecord, first: PartRecord, part: PartRecord, frame: Frame) -> None:
    """Make a frame that came over a link one that came over the first one, and of the tree that the engine knows."""
    if (
        get32(frame, _IP_DESTINATION) != part.ip
        or get16(frame, _UDP_DESTINATION) != part.port
        or get16(frame, AT.job) != part.job
    ):
        return
    put32(frame, _IP_DESTINATION, first.ip)
    put16(frame, _UDP_DESTINATION, first.port)
    put16(frame, AT.job, first.job)
    slot = get32(frame, AT.slot) - own.first_slot
    if 0 <= slot < MOST_IN_FLIGHT:
        way = integers_at(own.ways, MOST_IN_FLIGHT)[slot]
        # What a rail says of slots that have left it proves nothing here.  One of its switches that was restarted with
        # the controller may refuse those who have not heard yet that they are to leave it.
        if own.has_rails and (way // own.trees != own.turn or frame[AT.kind] == Kind.REJECT):
            put16(frame, AT.job, 0)  # nobody's
        elif get16(frame, AT.tree) == way % own.trees:
            put16(frame, AT.tree, way)


@Outlined
def _release(link: int) -> int:
    here: LinkRecord = carray(pointer(link), (1,), LINK)[0]
    own: SeveralRecord = carray(pointer(here.own), (1,), SEVERAL)[0]
    part: PartRecord = carray(pointer(own.parts), (own.count,), PART)[own.turn]
    inner_link: LinkRecord = carray(pointer(part.link), (1,), LINK)[0]
    return int(call(inner_link.release, part.link))


@Outlined
def _send(link: int) -> int:
    here: LinkRecord = carray(pointer(link), (1,), LINK)[0]
    own: SeveralRecord = carray(pointer(here.own), (1,), SEVERAL)[0]
    for number in range(own.count):
        _send_over(here, own, number)
    here.pushed += here.queued
    return 0


@inner
def _send_over(here: LinkRecord, own: SeveralRecord, number: int) -> None:
    """Send what is queued for one link.

    What a link does not take is lost, and repeated later: its queue drops frames, or it is dead.  Others do not wait
    for it.  A socket's own buffer holds all that may be in flight.
    """
    parts = carray(pointer(own.parts), (own.count,), PART)
    part: PartRecord = parts[number]
    queued, lengths = (
        carray(pointer(here.queue_rows), (here.queued,), np.int32),
        carray(pointer(here.queue_lengths), (here.queued,), np.int32),
    )
    picked = carray(pointer(own.picked), (2, _MOST_QUEUED), np.int32)
    ways = integers_at(own.ways, MOST_IN_FLIGHT)
    count = 0
    for i in range(min(here.queued, _MOST_QUEUED)):
        way = ways[queued[i] >> 1]
        its = way // own.trees
        if its == number or parts[its].mirror == number:
            send_as(part, way % own.trees, bytes_at(own.frames + int(queued[i]) * own.stride, int(lengths[i])))
            picked[0, count], picked[1, count] = queued[i], lengths[i]
            count += 1
    if count == 0:
        return
    inner_link: LinkRecord = carray(pointer(part.link), (1,), LINK)[0]
    inner_link.queue_rows = own.picked
    inner_link.queue_lengths = own.picked + 4 * _MOST_QUEUED
    inner_link.queued = count
    call(inner_link.send, part.link)
    part.sent += count


@inner
def send_as(part: PartRecord, tree: int, frame: Frame) -> None:
    """Give a packed frame the addresses and the job number of the link over which it goes, and its tree's number."""
    put16(frame, _MAC_SOURCE, part.mac >> 32)
    put32(frame, _MAC_SOURCE + 2, part.mac)
    put32(frame, _IP_SOURCE, part.ip)
    put16(frame, _UDP_SOURCE, part.port)
    put16(frame, AT.job, part.job)
    put16(frame, AT.tree, tree)
    fill_ip_checksum(frame.ctypes.data + ETHERNET_BYTES)
    if get16(frame, _UDP_CHECKSUM) != 0:
        fill_checksum(frame)


@Outlined
def _wait(link: int) -> int:
    here: LinkRecord = carray(pointer(link), (1,), LINK)[0]
    own: SeveralRecord = carray(pointer(here.own), (1,), SEVERAL)[0]
    if _is_ready(here, own):
        return 1
    if here.nap_s > 0:
        return int(poll(0, 0, nanoseconds(here.nap_s)))
    if poll(own.watched, own.count, nanoseconds(here.until - here.time)) <= 0:
        return 0
    return int(_is_ready(here, own))


@inner
def _is_ready(here: LinkRecord, own: SeveralRecord) -> bool:
    """Whether something may have come over some link; errors of sockets that woke us are taken note of."""
    parts = carray(pointer(own.parts), (own.count,), PART)
    ready = False
    for number in range(own.count):
        part: PartRecord = parts[number]
        inner_link: LinkRecord = carray(pointer(part.link), (1,), LINK)[0]
        inner_link.time = inner_link.until = here.time
        inner_link.nap_s = 0.0
        ready = bool(call(inner_link.wait, part.link)) or ready
    return ready


class SeveralLinks(NativeTransport):
    """A `Transport` over several sockets, that of the first link to the engine."""

    natives: ClassVar[Mapping[str, Native]] = {
        "take": _take,
        "release": _release,
        "send": _send,
        "consumed": all_pushed,
        "wait": _wait,
        "now": tell_time,
    }

    def __init__(self, links: Sequence[NativeTransport], names: Sequence[str]) -> None:
        """Take links that are open, and have one frame store from now on; `names` are for people."""
        first = links[0]
        self.links = links
        self.names = names
        self.address: Address = first.address
        self.max_frame_bytes = first.max_frame_bytes
        self.tx_frames = first.tx_frames
        self.down: frozenset[int] = frozenset()
        """Links that are not used any more."""
        self._rates: Sequence[float] = [1.0] * len(links)
        self.has_rails = False
        """Whether links lead to several switches."""
        self._ways = np.zeros(MOST_IN_FLIGHT, np.int64)
        self._trees = np.zeros(MOST_IN_FLIGHT, np.int64)
        """Number of each slot's tree."""
        self._parts = np.zeros(len(links), PART)
        for part, link in zip(self._parts, links, strict=True):
            link.send_from(self.tx_frames)
            address = link.address
            part["link"] = link.functions().address
            part["mac"], part["ip"], part["port"], part["mirror"] = address.mac, address.ip, address.port, NOWHERE
        watched = watch([link.descriptor for link in links])
        picked = np.zeros((2, _MOST_QUEUED), np.int32)
        own = np.zeros(1, SEVERAL)
        own[0] = (
            *(len(links), address_of(self._parts), address_of(self._ways), 1, 0, 0),
            *(self.tx_frames.ctypes.data + LEAD_BYTES, self.tx_frames.strides[0]),
            *(address_of(watched), 0, address_of(picked)),
        )
        self.set_functions(own, self._parts, self._ways, watched, picked, links)
        self._watched = watched
        record, records = self.functions().record, [link.functions().record for link in links]
        for name in ("turn", "batch_bytes", "longest_nap_s"):
            record[name] = min(one[name][0] for one in records)

    def take_slots(self, ready: ReadyReply) -> None:
        """Begin to serve a job: its slots and trees, its number on each link, and in which proportion they carry slots.

        Raises UsageError for a controller that knows more ways than the engine.
        """
        trees = ready.trees or [MOST_IN_FLIGHT]
        if len(trees) * len(self.links) > MOST_TREES:
            raise UsageError(f"{len(self.links)} links and {len(trees)} trees: together a job has {MOST_TREES} at most")
        own = self.own
        own["first_slot"], own["trees"], own["has_rails"] = ready.first_slot, len(trees), ready.has_rails
        ends = np.cumsum(trees)[:-1]
        self._trees[:] = np.searchsorted(ends, np.arange(MOST_IN_FLIGHT), side="right")
        self._parts["job"] = ready.link_jobs
        self._rates, self.has_rails = ready.link_rates, ready.has_rails
        self.do_without(())

    def do_without(self, down: Sequence[int]) -> None:
        """Give the slots to the links that are not down, in proportion."""
        self.down = frozenset(down)
        left = dealt_without(MOST_IN_FLIGHT, self._rates, self.down)
        self._ways[:] = left * self.own["trees"] + self._trees
        for link in self.down:
            self._watched[link, 0] = -1  # nobody is woken for what comes there, nor for its errors

    def mirror(self, link: int, other: int) -> None:
        """Send what goes over a link over another one as well; `NOWHERE`: no more."""
        self._parts["mirror"][link] = other

    @property
    def ways(self) -> npt.NDArray[np.int64]:
        """Return the way of each slot, which is the tree that the engine knows."""
        return self._ways

    @property
    def sent(self) -> npt.NDArray[np.int64]:
        """Return how many frames were sent over each link."""
        return self._parts["sent"]

    @property
    def came(self) -> npt.NDArray[np.int64]:
        """Return how many frames came over each link."""
        return self._parts["came"]

    @property
    def rates(self) -> Sequence[float]:
        """Return in which proportion the links carry slots."""
        return self._rates

    def close(self) -> None:
        """Close the links."""
        for link in self.links:
            link.close()


def open_several(links: Sequence[NamedLink], **arguments: Any) -> SeveralLinks:
    """Open links, as `open_transport` opens one; raises TransportError, and then none of them is open."""
    opened: list[Transport] = []
    try:
        for link in links:
            opened.append(open_transport(link.name, **arguments))
        return SeveralLinks([one for one in opened if isinstance(one, NativeTransport)], [link.name for link in links])
    except BaseException:
        for one in opened:
            one.close()
        raise


def rates_of(links: Sequence[NamedLink]) -> list[float]:
    """Return the rates of links in Mbit/s: as given, else what the interface says; 0: not known."""
    return [_rate(link) for link in links]


def _rate(link: NamedLink) -> float:
    if link.mbit is not None:
        return link.mbit
    kind, _, place = link.name.partition(":")
    return interface_mbit(place) if kind == "packet" else 0.0


def dealt(slots: int, rates: Sequence[float]) -> npt.NDArray[np.int64]:
    """Deal slots out to links in proportion to rates, evenly: of any that follow each other each link has its share."""
    owed = np.zeros(len(rates))
    found = np.zeros(slots, np.int64)
    for slot in range(slots):
        owed += np.asarray(rates) / sum(rates)
        found[slot] = np.argmax(owed)
        owed[found[slot]] -= 1
    return found


def dealt_without(slots: int, rates: Sequence[float], down: Collection[int]) -> npt.NDArray[np.int64]:
    """Deal slots out to the links that are not down.

    Slots of those that are go to others, and all others stay where they are, whichever links were down before.  Members
    hear at different times: on a switch that two rails pass, those that have heard would send over one rail for a slot
    what others still send for it over the other, and the switch, which has one cell for both, would add that up.
    """
    found = dealt(slots, rates)
    for link in down:
        if len(its := np.flatnonzero(found == link)):
            others = [0.0 if other == link else rate for other, rate in enumerate(rates)]
            found[its] = dealt_without(len(its), others, {*down} - {link})
    return found

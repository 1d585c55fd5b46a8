"""Kernels of the interface ports: from receive rings to a batch, and from a batch to sockets.

The kernel of Linux takes the outermost VLAN tag off a frame before an AF_PACKET ring gets it, and puts it into the
frame's slot.  A switch must see the frame as it was on the wire, so `_take` puts the tag back: the slot has room for it
in front of the frame.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from switchsum_switch.kernels.atomics import copy_bytes, load_acquire
from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.intrinsics import carray, pointer
from switchsum_switch.kernels.memory import integers_at
from switchsum_switch.kernels.outlined import Outlined
from switchsum_switch.wires.messages import REFUSED, SendWords, packed, send_words_at
from switchsum_switch.wires.packetring import FRAME_AT, RING_FIELDS, VLAN_TAG, Ring, are_slots, first_frame, take
from switchsum_switch.wires.segmentation import FrameSender, send_frames

from ..queues.queues import PORTS
from .base import BATCH, Addresses, BatchRecord, PortCounter, PortCounters, Words
from .operations import GROUP, GroupRecord, Indices, Kind, batch_at, counters_at, output_at

TAG_BYTES: Final = 4
_MAC_BYTES: Final = 12
_TAG_AT: Final = 24
"""Offset in a slot of the tag that the kernel took off: its value (TCI) and its EtherType, 2 bytes each."""

# Columns of `PacketWords.links`, which has a row for each port number.
DESCRIPTOR: Final = 0
"""File descriptor of the socket."""
TOGETHER: Final = 1
"""Longest frames that are sent together as a super-frame; 0: none are."""
IS_BLOCKED: Final = 2
"""1 if the port has a backlog, which further frames join."""
LINK_FIELDS: Final = 3

Links = npt.NDArray[np.int64]


class PacketWords(NamedTuple):
    """All interface ports, as kernels see them."""

    numbers: Indices
    """The ports' numbers."""
    rings: npt.NDArray[np.int64]
    """The ring of each port, `[n, RING_FIELDS]`."""
    links: Links
    """A row for each port number, `[PORTS, LINK_FIELDS]`."""
    turn: npt.NDArray[np.int64]
    """The port whose ring is emptied first.  It changes from call to call, since a batch may be full before the
    last."""
    sending: SendWords


def packet_words(ports: int, sender: FrameSender) -> PacketWords:
    """Return the words of `ports` ports, whose numbers, rings and links are still 0; their owner must keep `sender`."""
    return PacketWords(
        numbers=np.zeros(ports, np.int32),
        rings=np.zeros((ports, RING_FIELDS), np.int64),
        links=np.zeros((PORTS, LINK_FIELDS), np.int64),
        turn=np.zeros(1, np.int64),
        sending=sender.words,
    )


def packed_words(words: PacketWords) -> npt.NDArray[np.int64]:
    """Return the addresses from which operations make the words again; their owner must keep the words."""
    arrays = packed([words.numbers, words.rings, words.links, words.turn])
    return np.concatenate([[len(words.numbers)], arrays, packed(words.sending)])


@inner
def _words_at(address: int) -> PacketWords:
    """Return the words that were packed to an address."""
    words = integers_at(address, 5)
    known = words[0]
    return PacketWords(
        carray(pointer(words[1]), (known,), np.int32),
        carray(pointer(words[2]), (known, RING_FIELDS), np.int64),
        carray(pointer(words[3]), (PORTS, LINK_FIELDS), np.int64),
        integers_at(words[4], 1),
        send_words_at(address + 8 * 5),
    )


@Outlined
def collect(group: int, batch: int) -> int:
    """Append frames of each interface to a batch; return how many it has now."""
    here: GroupRecord = carray(pointer(group), (1,), GROUP)[0]
    filled: BatchRecord = carray(pointer(batch), (1,), BATCH)[0]
    words, counters = _words_at(here.own), counters_at(here.counters)
    addresses, lengths, ports = batch_at(batch)
    known, count = len(words.numbers), filled.count
    if known > 0:
        words.turn[0] = (words.turn[0] + 1) % known
    for i in range(known):
        index = (words.turn[0] + i) % known
        columns = addresses[count:], lengths[count:], ports[count:]
        count += _take(words.rings[index], words.numbers[index], counters, *columns)
    return int(count)


@inner
def _take(ring: Ring, port: int, counters: PortCounters, addresses: Addresses, lengths: Words, ports: Words) -> int:
    """Append the frames that one call of `packetring.take` gives."""
    most = len(addresses)
    rows, sizes = np.empty(most, np.int32), np.empty(most, np.int32)
    taken = take(ring, rows, sizes)
    first, stride = first_frame(ring)
    in_slots = are_slots(ring)
    for i in range(taken):
        address, size = first + int(rows[i]) * stride, np.int64(sizes[i])
        if in_slots and load_acquire(address - FRAME_AT) & VLAN_TAG:
            _put_tag_back(address)
            address -= TAG_BYTES
            size += TAG_BYTES
        addresses[i], lengths[i], ports[i] = address, size, port
        counters[port, PortCounter.RX_BYTES] += size
    counters[port, PortCounter.RX_FRAMES] += taken
    return taken


@inner
def _put_tag_back(address: int) -> None:
    """Move the two Ethernet addresses of a frame 4 bytes towards its start, and write the tag behind them."""
    octets = np.empty(_MAC_BYTES + TAG_BYTES, np.uint8)
    copy_bytes(octets.ctypes.data, address, _MAC_BYTES)
    tag = load_acquire(address - FRAME_AT + _TAG_AT)
    octets[12], octets[13], octets[14], octets[15] = tag >> 24, tag >> 16, tag >> 8, tag
    copy_bytes(address - TAG_BYTES, octets.ctypes.data, len(octets))


@Outlined
def transmit(group: int, output: int) -> int:
    """Send frames, port by port; return how many were not sent, whose places are in `held`."""
    here: GroupRecord = carray(pointer(group), (1,), GROUP)[0]
    words, counters = _words_at(here.own), counters_at(here.counters)
    ports, addresses, lengths, _, _, left = output_at(output)
    remaining = 0
    places, starts = np.empty(len(ports), np.int32), np.empty(len(ports), np.int64)
    sizes = np.empty(len(ports), np.int32)
    sending, links = words.sending, words.links
    for port in words.numbers:
        count = 0
        for i in range(len(ports)):
            if ports[i] == port:
                places[count], starts[count], sizes[count] = i, np.int64(addresses[i]), lengths[i]
                count += 1
        # A port with a backlog is left to Python: frames must not overtake those that wait.
        sent = 0
        if count > 0 and links[port, IS_BLOCKED] == 0:
            refused = sending.state[REFUSED]
            sent = send_frames(links[port, DESCRIPTOR], sending, starts[:count], sizes[:count], links[port, TOGETHER])
            refused = sending.state[REFUSED] - refused
            counters[port, PortCounter.TX_FRAMES] += sent - refused
            for i in range(sent):
                counters[port, PortCounter.TX_BYTES] += sizes[i]
            counters[port, PortCounter.TX_DROPS] += refused
        for i in range(sent, count):
            left[remaining] = places[i]
            remaining += 1
    return remaining


PACKET: Final = Kind(collect=collect, transmit=transmit, is_wire=True)

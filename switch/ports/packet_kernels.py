"""Kernels of the interface ports: frames out of rings into a batch, and out of a batch to sockets."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from switchsum.protocol.atomics import copy_bytes, load_acquire
from switchsum.protocol.kernels import inner, kernel
from switchsum.protocol.packetring import FRAME_AT, RING_FIELDS, VLAN_TAG, Ring, are_slots, first_frame, take
from switchsum.protocol.segmentation import FrameSender, Sending, send_frames
from switchsum.switch.ports.base import Addresses, Counter, Counters, Words
from switchsum.switch.queues import PORTS

_RX_FRAMES: Final = int(Counter.RX_FRAMES)
_RX_BYTES: Final = int(Counter.RX_BYTES)
_TX_FRAMES: Final = int(Counter.TX_FRAMES)
_TX_BYTES: Final = int(Counter.TX_BYTES)
_TX_DROPS: Final = int(Counter.TX_DROPS)

TAG_BYTES: Final = 4
_MAC_BYTES: Final = 12
_TAG_AT: Final = 24
"""Column of a slot with the tag that the kernel took off: what it says and its EtherType, 2 bytes each."""

DESCRIPTOR: Final = 0
"""Column of `links`, which has a row for each port of a table."""
TOGETHER: Final = 1
"""Longest frames that go together; 0: none do."""
IS_BLOCKED: Final = 2
"""1: frames wait for the port, and others after them."""
LINK_FIELDS: Final = 3

Links = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]


class PacketWords(NamedTuple):
    """What kernels need of all interface ports."""

    numbers: Indices
    """The ports' numbers."""
    rings: npt.NDArray[np.int64]
    """The ring of each, `[n, RING_FIELDS]`."""
    links: Links
    """`[PORTS, LINK_FIELDS]`."""
    turn: npt.NDArray[np.int64]
    """Which port's ring is the first one that is looked at: the last ones may find no room left."""
    sending: Sending
    owned: npt.NDArray[np.bool_]
    """Which port numbers are interfaces'."""


def packet_words(ports: int, owned: npt.NDArray[np.bool_], sender: FrameSender) -> PacketWords:
    """Return those of so many ports, still without their numbers, rings and links; whoever has them keeps `sender`."""
    return PacketWords(
        numbers=np.zeros(ports, np.int32),
        rings=np.zeros((ports, RING_FIELDS), np.int64),
        links=np.zeros((PORTS, LINK_FIELDS), np.int64),
        turn=np.zeros(1, np.int64),
        sending=sender.sending,
        owned=owned,
    )


@kernel
def collect(
    words: PacketWords, counters: Counters, addresses: Addresses, lengths: Words, ports: Words, count: int
) -> int:
    """Append frames from each interface to the columns of a batch that has `count`; return the new count."""
    known = len(words.numbers)
    if known > 0:
        words.turn[0] = (words.turn[0] + 1) % known
    for i in range(known):
        index = (words.turn[0] + i) % known
        columns = addresses[count:], lengths[count:], ports[count:]
        count += _take(words.rings[index], words.numbers[index], counters, *columns)
    return count


@inner
def _take(ring: Ring, port: int, counters: Counters, addresses: Addresses, lengths: Words, ports: Words) -> int:
    """Take what one call of `take` brings."""
    room = len(addresses)
    rows, sizes = np.empty(room, np.int32), np.empty(room, np.int32)
    taken = take(ring, rows, sizes)
    first, stride = first_frame(ring)
    in_slots = are_slots(ring)
    for i in range(taken):
        address, size = first + rows[i] * stride, np.int64(sizes[i])
        if in_slots and load_acquire(address - FRAME_AT) & VLAN_TAG:
            _put_tag_back(address)
            address -= TAG_BYTES
            size += TAG_BYTES
        addresses[i], lengths[i], ports[i] = address, size, port
        counters[port, _RX_BYTES] += size
    counters[port, _RX_FRAMES] += taken
    return taken


@inner
def _put_tag_back(address: int) -> None:
    """Move the Ethernet addresses of a frame ahead, and write the tag between them and the rest."""
    octets = np.empty(_MAC_BYTES + TAG_BYTES, np.uint8)
    copy_bytes(octets.ctypes.data, address, _MAC_BYTES)
    tag = load_acquire(address - FRAME_AT + _TAG_AT)
    octets[12], octets[13], octets[14], octets[15] = tag >> 24, tag >> 16, tag >> 8, tag
    copy_bytes(address - TAG_BYTES, octets.ctypes.data, len(octets))


@kernel
def transmit(
    words: PacketWords, counters: Counters, ports: Words, addresses: Addresses, lengths: Words, left: Indices
) -> int:
    """Send frames, port by port; write the places of those that a port does not take at once, return how many."""
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
        sent = 0
        if count > 0 and links[port, IS_BLOCKED] == 0:
            refused = sending.refused[0]
            sent = send_frames(links[port, DESCRIPTOR], sending, starts[:count], sizes[:count], links[port, TOGETHER])
            refused = sending.refused[0] - refused
            counters[port, _TX_FRAMES] += sent - refused
            for i in range(sent):
                counters[port, _TX_BYTES] += sizes[i]
            counters[port, _TX_DROPS] += refused
        for i in range(sent, count):
            left[remaining] = places[i]
            remaining += 1
    return remaining

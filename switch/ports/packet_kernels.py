"""Kernels of the interface ports: frames out of rings into a batch, and out of a batch to sockets."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum.protocol.atomics import copy_bytes, load_acquire
from switchsum.protocol.kernels import inner, kernel
from switchsum.protocol.packetring import FRAME_AT, VLAN_TAG, Ring, first_frame, take
from switchsum.protocol.segmentation import Sending, send_frames
from switchsum.switch.ports.base import Addresses, Counter, Counters, Words

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


@kernel
def collect(
    ring: Ring, port: int, counters: Counters, addresses: Addresses, lengths: Words, ports: Words, count: int
) -> int:
    """Append what one call of `take` brings to the columns of a batch that has `count`; return the new count."""
    room = len(addresses) - count
    rows, sizes = np.empty(room, np.int32), np.empty(room, np.int32)
    taken = take(ring, rows, sizes)
    first, stride = first_frame(ring)
    in_slots = first == ring.address + FRAME_AT
    for i in range(taken):
        address, size = first + rows[i] * stride, np.int64(sizes[i])
        if in_slots and load_acquire(address - FRAME_AT) & VLAN_TAG:
            _put_tag_back(address)
            address -= TAG_BYTES
            size += TAG_BYTES
        addresses[count + i], lengths[count + i], ports[count + i] = address, size, port
        counters[port, _RX_BYTES] += size
    counters[port, _RX_FRAMES] += taken
    return count + taken


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
    numbers: Indices,
    links: Links,
    sending: Sending,
    counters: Counters,
    ports: Words,
    addresses: Addresses,
    lengths: Words,
    left: Indices,
) -> int:
    """Send frames, port by port; write the places of those that a port does not take at once, return how many.

    `numbers` are all ports that there are.
    """
    remaining = 0
    places, starts = np.empty(len(ports), np.int32), np.empty(len(ports), np.int64)
    sizes = np.empty(len(ports), np.int32)
    for port in numbers:
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

"""Kernels of the UDP port: from datagrams to frames of a batch, and from frames of a batch to datagrams."""

from __future__ import annotations

import socket
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from switchsum_switch.kernels.atomics import copy_bytes
from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.intrinsics import carray, pointer
from switchsum_switch.kernels.memory import bytes_at, integers_at
from switchsum_switch.kernels.outlined import Outlined
from switchsum_switch.wires.datagrams import (
    MOST_TAKEN,
    DatagramReceiver,
    DatagramSender,
    ReceiveWords,
    receive_rows,
    receive_words_at,
    send_datagrams,
)
from switchsum_switch.wires.encapsulation import Address, Bytes, made_up_mac, template, wrap
from switchsum_switch.wires.headers import ETHERNET_BYTES, IPV4_BYTES, LOWER_BYTES, UDP_BYTES
from switchsum_switch.wires.messages import REFUSED, SEND_WORDS, Indices, SendWords, packed, send_words_at
from switchsum_switch.wires.messages import Addresses as Names
from switchsum_switch.wires.rows import LEAD_BYTES

from .base import BATCH, MAX_FRAME_BYTES, Addresses, BatchRecord, PortCounter, Words
from .operations import GROUP, GroupRecord, Kind, batch_at, counters_at, output_at

_ADDRESSES: Final = ETHERNET_BYTES + 12
"""Offset in a frame of the IPv4 addresses and UDP ports of source and destination, 12 bytes in all."""
_UDP_LENGTH: Final = ETHERNET_BYTES + IPV4_BYTES + 4
_FAMILY: Final = int(socket.AF_INET)
_OWN_BYTES: Final = 6


class UdpWords(NamedTuple):
    """The UDP port as kernels see it; its owner must keep it as long as kernels use it."""

    descriptor: int
    """File descriptor of the socket."""
    number: int
    """Number of the port."""
    receiving: ReceiveWords
    sending: SendWords
    headers: Bytes
    """The headers that are put in front of each datagram, without its source."""
    own: Bytes
    """The switch's IPv4 address and UDP port, 6 bytes: the source of every frame that may leave."""


def udp_words(descriptor: int, number: int, switch: Address, *, together: bool) -> UdpWords:
    """Return a port's words; `switch` is the switch's address in the program, `together` as in `DatagramSender`."""
    return UdpWords(
        descriptor=descriptor,
        number=number,
        receiving=DatagramReceiver(MAX_FRAME_BYTES, skip=LOWER_BYTES).words,
        sending=DatagramSender(named=True, together=together).words,
        # `wrap` writes the sender's addresses; the upper bytes of its made-up Ethernet address are already here.
        headers=template(Address(mac=made_up_mac(0), ip=0, port=0), switch),
        own=np.frombuffer(switch.ip.to_bytes(4) + switch.port.to_bytes(2), np.uint8),
    )


def packed_words(words: UdpWords) -> npt.NDArray[np.int64]:
    """Return the addresses from which operations make the words again; their owner must keep the words."""
    own = packed([words.descriptor, words.number, words.headers, words.own])
    return np.concatenate([own, packed(words.sending), packed(words.receiving)])


@inner
def _words_at(address: int) -> UdpWords:
    """Return the words that were packed to an address."""
    words = integers_at(address, 4)
    return UdpWords(
        words[0],
        words[1],
        receive_words_at(address + 8 * (4 + SEND_WORDS)),
        send_words_at(address + 8 * 4),
        bytes_at(words[2], LOWER_BYTES),
        bytes_at(words[3], _OWN_BYTES),
    )


@Outlined
def collect(group: int, batch: int) -> int:
    """Append what one system call receives to a batch; return how many frames it has now."""
    here: GroupRecord = carray(pointer(group), (1,), GROUP)[0]
    filled: BatchRecord = carray(pointer(batch), (1,), BATCH)[0]
    words = _words_at(here.own)
    addresses, lengths, ports = batch_at(batch)
    count, mine = filled.count, counters_at(here.counters)[words.number]
    free = min(len(addresses) - count, MOST_TAKEN)
    rows, sizes, names = np.empty(free, np.int32), np.empty(free, np.int32), np.empty(free, np.int64)
    came = receive_rows(words.descriptor, words.receiving, rows, sizes, names) if free > 0 else 0
    wrap(words.receiving.rows, rows[:came], sizes[:came], words.headers, names[:came])
    first = words.receiving.rows.ctypes.data + LEAD_BYTES
    for i in range(came):
        if sizes[i] == 0:
            mine[PortCounter.RX_DROPS] += 1
            continue
        addresses[count], lengths[count] = first + int(rows[i]) * words.receiving.stride, sizes[i]
        ports[count] = words.number
        mine[PortCounter.RX_FRAMES] += 1
        mine[PortCounter.RX_BYTES] += sizes[i]
        count += 1
    return int(count)


@Outlined
def transmit(group: int, output: int) -> int:
    """Send the frames whose source is the switch, as far as the socket takes them; drop and count all others."""
    here: GroupRecord = carray(pointer(group), (1,), GROUP)[0]
    words = _words_at(here.own)
    _, addresses, lengths, _, _, _ = output_at(output)
    count, state, mine = len(addresses), words.sending.state, counters_at(here.counters)[words.number]
    found = np.empty(count, np.int64), np.empty(count, np.int32), np.empty(count, np.int64)
    kept = _strip(addresses, lengths, words.own, found[0], found[1], found[2])
    bodies, sizes, names = np.empty(kept, np.int64), np.empty(kept, np.int32), np.empty(kept, np.int64)
    _put_together(found[0], found[1], found[2], bodies, sizes, names)
    refused = state[REFUSED]
    sent = send_datagrams(words.descriptor, words.sending, bodies, sizes, names)
    refused = state[REFUSED] - refused
    mine[PortCounter.TX_FRAMES] += sent - refused
    for i in range(sent):
        mine[PortCounter.TX_BYTES] += sizes[i] + LOWER_BYTES
    mine[PortCounter.TX_DROPS] += count - sent + refused
    return 0


@inner
def _put_together(
    found_bodies: Names, found_sizes: Indices, found_names: Names, bodies: Names, sizes: Indices, names: Names
) -> None:
    """Put datagrams to the same destination (as many as `names` has room for) side by side, in their own order."""
    # Neighbours to one destination can leave as one super-datagram.  Quadratic, but in at most one batch.
    count = 0
    is_placed = np.zeros(len(names), np.bool_)
    for i in range(len(names)):
        for j in range(i, 0 if is_placed[i] else len(names)):
            if found_names[j] == found_names[i]:
                bodies[count], sizes[count], names[count] = found_bodies[j], found_sizes[j], found_names[j]
                is_placed[j] = True
                count += 1


@inner
def _strip(addresses: Addresses, lengths: Words, own: Bytes, bodies: Names, sizes: Indices, names: Names) -> int:
    """Find the UDP datagrams in frames whose source is `own` (IPv4 address and UDP port); return how many there are.

    Writes their addresses, sizes and destinations (the first word of a sockaddr_in); other frames are skipped.
    """
    header = np.empty(LOWER_BYTES, np.uint8)
    kept = 0
    for i in range(len(addresses)):
        if lengths[i] < LOWER_BYTES:
            continue
        copy_bytes(header.ctypes.data, int(np.int64(addresses[i])), LOWER_BYTES)
        size = (np.int64(header[_UDP_LENGTH]) << 8 | header[_UDP_LENGTH + 1]) - UDP_BYTES
        ours = header[12] == 0x08 and header[13] == 0 and header[ETHERNET_BYTES] == 0x45 and header[23] == 17
        for k in range(4):
            ours &= header[_ADDRESSES + k] == own[k]
        ours &= header[_ADDRESSES + 8] == own[4] and header[_ADDRESSES + 9] == own[5]
        if not ours or not 0 <= size <= np.int64(lengths[i]) - LOWER_BYTES:
            continue
        bodies[kept], sizes[kept], name = np.int64(addresses[i]) + LOWER_BYTES, size, np.int64(_FAMILY)
        for k in range(2):
            name |= np.int64(header[_ADDRESSES + 10 + k]) << (16 + 8 * k)
        for k in range(4):
            name |= np.int64(header[_ADDRESSES + 4 + k]) << (32 + 8 * k)
        names[kept] = name
        kept += 1
    return kept


UDP: Final = Kind(collect=collect, transmit=transmit, is_wire=True)

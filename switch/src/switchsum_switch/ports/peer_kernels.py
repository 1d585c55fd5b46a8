"""Kernels of the ports that are UDP peers: from datagrams to frames of a batch, and back; the bytes are the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum_switch.kernels.intrinsics import carray, pointer
from switchsum_switch.kernels.memory import integers_at
from switchsum_switch.kernels.outlined import Outlined
from switchsum_switch.wires.datagrams import (
    MOST_TAKEN,
    DatagramReceiver,
    DatagramSender,
    receive_rows,
    receive_words_at,
    send_datagrams,
)
from switchsum_switch.wires.headers import ETHERNET_BYTES
from switchsum_switch.wires.messages import REFUSED, packed, send_words_at
from switchsum_switch.wires.rows import LEAD_BYTES

from .base import BATCH, MAX_FRAME_BYTES, BatchRecord, PortCounter
from .operations import GROUP, GroupRecord, Kind, batch_at, counters_at, output_at

# Words of a port, behind the number of ports and the place of the port whose turn it is.
_NUMBER: Final = 0
_DESCRIPTOR: Final = 1
_SENDING: Final = 2
"""Index of the address of the packed words of the port's sender."""
_RECEIVING: Final = 3
_PORT_WORDS: Final = 4
_COUNT: Final = 0
_TURN: Final = 1
"""Index of the port that is first to receive.  It changes from call to call, since a batch may be full before the
last."""
_HEAD_WORDS: Final = 2


class PeerMemory:
    """The messages of one port. If one peer's path takes no super-datagrams, the others still get theirs."""

    def __init__(self, *, together: bool) -> None:
        """Let neighbours of one length leave as super-datagrams if `together`."""
        self.receiving = DatagramReceiver(MAX_FRAME_BYTES).words
        self.sending = DatagramSender(together=together).words
        self.packed = packed(self.sending), packed(self.receiving)
        """The addresses from which kernels make the words again."""


def packed_peers(ports: Sequence[tuple[int, int, PeerMemory]]) -> npt.NDArray[np.int64]:
    """Return the ports (number, file descriptor, memory) as kernels see them; their owner must keep the memory."""
    rows = [[number, link, *(words.ctypes.data for words in memory.packed)] for number, link, memory in ports]
    return np.array([len(ports), 0, *(word for row in rows for word in row)], np.int64)


@Outlined
def collect(group: int, batch: int) -> int:
    """Append to a batch what one system call for each port receives; return how many frames it has now."""
    here: GroupRecord = carray(pointer(group), (1,), GROUP)[0]
    filled: BatchRecord = carray(pointer(batch), (1,), BATCH)[0]
    head, counters = integers_at(here.own, _HEAD_WORDS), counters_at(here.counters)
    addresses, lengths, ports = batch_at(batch)
    known, count = head[_COUNT], filled.count
    words = carray(pointer(here.own + 8 * _HEAD_WORDS), (known, _PORT_WORDS), np.int64)
    rows, sizes, names = np.empty(MOST_TAKEN, np.int32), np.empty(MOST_TAKEN, np.int32), np.empty(MOST_TAKEN, np.int64)
    if known > 0:
        head[_TURN] = (head[_TURN] + 1) % known
    for i in range(known):
        port = words[(head[_TURN] + i) % known]
        free = min(len(addresses) - count, MOST_TAKEN)
        if free <= 0:
            break
        receiving, mine = receive_words_at(port[_RECEIVING]), counters[port[_NUMBER]]
        came = receive_rows(port[_DESCRIPTOR], receiving, rows[:free], sizes[:free], names[:free])
        first = receiving.rows.ctypes.data + LEAD_BYTES
        for k in range(came):
            if sizes[k] < ETHERNET_BYTES:  # 0 where it is too long for a row
                mine[PortCounter.RX_DROPS] += 1
                continue
            addresses[count], lengths[count] = first + int(rows[k]) * receiving.stride, sizes[k]
            ports[count] = port[_NUMBER]
            mine[PortCounter.RX_FRAMES] += 1
            mine[PortCounter.RX_BYTES] += sizes[k]
            count += 1
    return int(count)


@Outlined
def transmit(group: int, output: int) -> int:
    """Send frames, port by port, as far as the sockets take them; drop and count the others."""
    here: GroupRecord = carray(pointer(group), (1,), GROUP)[0]
    head, counters = integers_at(here.own, _HEAD_WORDS), counters_at(here.counters)
    words = carray(pointer(here.own + 8 * _HEAD_WORDS), (head[_COUNT], _PORT_WORDS), np.int64)
    ports, addresses, lengths, _, _, _ = output_at(output)
    starts, sizes, names = np.empty(len(ports), np.int64), np.empty(len(ports), np.int32), np.empty(0, np.int64)
    for which in range(head[_COUNT]):
        port, count = words[which], 0
        for i in range(len(ports)):
            if ports[i] == port[_NUMBER]:
                starts[count], sizes[count] = np.int64(addresses[i]), lengths[i]
                count += 1
        if count == 0:
            continue
        sending, mine = send_words_at(port[_SENDING]), counters[port[_NUMBER]]
        refused = sending.state[REFUSED]
        sent = send_datagrams(port[_DESCRIPTOR], sending, starts[:count], sizes[:count], names)
        refused = sending.state[REFUSED] - refused
        mine[PortCounter.TX_FRAMES] += sent - refused
        for i in range(sent):
            mine[PortCounter.TX_BYTES] += sizes[i]
        mine[PortCounter.TX_DROPS] += count - sent + refused
    return 0


PEERS: Final = Kind(collect=collect, transmit=transmit, is_wire=True)

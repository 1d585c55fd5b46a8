"""A port that is an ordinary UDP socket, so that machines can meet without root.

The switch makes up Ethernet, IPv4 and UDP around what comes and strips them from what goes.  Any number of workers
stand behind the one port: where a frame goes to is what its own IPv4 and UDP headers say.  Only frames that bear the
switch's address as their source leave; whatever else the program forwards here is dropped and counted, so that nobody
can make the switch send datagrams of his to a third party.
"""

from __future__ import annotations

import errno
import socket
from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum.protocol.atomics import copy_bytes
from switchsum.protocol.batchsocket import BATCH_DATAGRAMS, BatchReceiver, BatchSender, grow_buffers
from switchsum.protocol.encapsulation import SOCKADDR_BYTES, made_up_mac, template, wrap
from switchsum.protocol.errors import TransportError
from switchsum.protocol.kernels import kernel
from switchsum.protocol.rows import LEAD_BYTES
from switchsum.protocol.wire import ETHERNET_BYTES, IPV4_BYTES, LOWER_BYTES, UDP_BYTES, Address
from switchsum.switch.ports.base import MAX_FRAME_BYTES, Addresses, Batch, Counter, PortGroup, PortTable, Words

_ADDRESSES: Final = ETHERNET_BYTES + 12
"""Where IPv4 source and destination and the UDP ports stand, 12 bytes in all."""
_UDP_LENGTH: Final = ETHERNET_BYTES + IPV4_BYTES + 4
_FAMILY: Final = int(socket.AF_INET)

Bytes = npt.NDArray[np.uint8]


class UdpPort(PortGroup):
    """One port, which is a UDP socket; the next `collect` overwrites the frames of the last."""

    def __init__(self, table: PortTable, host: str, port: int, *, switch: Address, number: int | None = None) -> None:
        """Bind to `host` and `port` (0: any) and take the port number; raises TransportError.

        `switch` is the address that the program knows as the switch's own, not necessarily the socket's.
        """
        super().__init__(table)
        try:
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        except OSError as error:
            raise TransportError(f"no UDP socket: {error.strerror}") from error
        try:
            self._socket.bind((host, port))
            self.address: tuple[str, int] = self._socket.getsockname()
            self.number = table.take("udp", f"{self.address[0]}:{self.address[1]}", number)
        except OSError as error:
            self._socket.close()
            remedy = f": `ss -lnup sport = :{port}` says by whom" if error.errno == errno.EADDRINUSE else ""
            raise TransportError(f"UDP port {host}:{port}: {error.strerror}{remedy}") from error
        except TransportError:
            self._socket.close()
            raise
        grow_buffers(self._socket)
        self.owned[self.number] = True
        self._receiver = BatchReceiver(MAX_FRAME_BYTES, skip=LOWER_BYTES, name_bytes=SOCKADDR_BYTES)
        self._sender = BatchSender(name_bytes=SOCKADDR_BYTES)
        # `wrap` puts the peer's addresses in; the rest of the source's made-up Ethernet address stands here.
        self._headers = template(Address(mac=made_up_mac(0), ip=0, port=0), switch)
        self._source = np.frombuffer(switch.ip.to_bytes(4) + switch.port.to_bytes(2), np.uint8)
        self._compile()

    def _compile(self) -> None:
        """Have the kernels ready before the first frame, whose time-out would not wait for a compiler."""
        self.collect(Batch(1))
        self.transmit(np.zeros(0, np.uint32), np.zeros(0, np.uint64), np.zeros(0, np.uint32))

    def collect(self, batch: Batch) -> None:
        """Receive one system call's worth."""
        receiver = self._receiver
        room = min(batch.capacity - batch.count, BATCH_DATAGRAMS)
        lengths = receiver.lengths(receiver.receive(self._socket.fileno(), room) if room else 0)
        wrap(receiver.rows, lengths, self._headers, receiver.names)
        rows = np.flatnonzero(lengths > 0)
        batch.extend(
            self.number, receiver.rows.ctypes.data + LEAD_BYTES + rows * receiver.rows.strides[0], lengths[rows]
        )
        counters = self.table.counters[self.number]
        counters[Counter.RX_FRAMES] += len(rows)
        counters[Counter.RX_BYTES] += lengths.sum()
        counters[Counter.RX_DROPS] += len(lengths) - len(rows)

    def transmit(self, ports: Words, addresses: Addresses, lengths: Words) -> None:
        """Send what comes from the switch itself to the peers that the frames name."""
        count = len(ports)
        bodies, sizes = np.empty(count, np.uint64), np.empty(count, np.int64)
        names = np.zeros((count, SOCKADDR_BYTES), np.uint8)
        kept = strip(addresses, lengths, self._source, bodies, sizes, names)
        refused = self._sender.failed
        sent = self._sender.send(self._socket.fileno(), bodies[:kept], sizes[:kept], names[:kept])
        gone = sent - (self._sender.failed - refused)
        counters = self.table.counters[self.number]
        counters[Counter.TX_FRAMES] += gone
        counters[Counter.TX_BYTES] += sizes[:sent].sum() + sent * LOWER_BYTES
        counters[Counter.TX_DROPS] += count - gone

    def descriptors(self) -> list[int]:
        """Return the socket."""
        return [self._socket.fileno()]

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
        self.table.give_back(self.number)
        self.owned[:] = False


@kernel
def strip(
    addresses: Addresses, lengths: Words, source: Bytes, bodies: Addresses, sizes: npt.NDArray[np.int64], names: Bytes
) -> int:
    """Find the datagrams in frames from `source` (IPv4 address and UDP port, 6 bytes); return how many there are.

    Writes their addresses, sizes and destinations (sockaddr_in); other frames are passed over.
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
            ours &= header[_ADDRESSES + k] == source[k]
        ours &= header[_ADDRESSES + 8] == source[4] and header[_ADDRESSES + 9] == source[5]
        if not ours or not 0 <= size <= np.int64(lengths[i]) - LOWER_BYTES:
            continue
        bodies[kept], sizes[kept] = addresses[i] + np.uint64(LOWER_BYTES), size
        names[kept, 0] = _FAMILY
        for k in range(2):
            names[kept, 2 + k] = header[_ADDRESSES + 10 + k]
        for k in range(4):
            names[kept, 4 + k] = header[_ADDRESSES + 4 + k]
        kept += 1
    return kept

"""A port that is an ordinary UDP socket, so that machines can meet without root.

The switch makes up Ethernet, IPv4 and UDP around what comes and strips them from what goes.  Any number of workers
stand behind the one port: where a frame goes to is what its own IPv4 and UDP headers say.  Only frames that bear the
switch's address as their source leave; whatever else the program forwards here is dropped and counted, so that nobody
can make the switch send datagrams of his to a third party.
"""

from __future__ import annotations

import errno
import socket

import numpy as np

from switchsum.protocol.batchreceive import has_more
from switchsum.protocol.batchsocket import grow_buffers, knows_segments, take_together
from switchsum.protocol.errors import TransportError
from switchsum.protocol.wire import Address
from switchsum.switch.ports import udp_kernels
from switchsum.switch.ports.base import Addresses, Batch, PortGroup, PortTable, Words
from switchsum.switch.ports.udp_kernels import udp_words


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
        take_together(self._socket)
        self.owned[self.number] = True
        together = knows_segments(self._socket)
        self.words = udp_words(self._socket.fileno(), self.number, self.owned, switch, together=together)
        """What kernels need of the port."""
        self._compile()

    def _compile(self) -> None:
        """Have the kernels ready before the first frame, whose time-out would not wait for a compiler."""
        self.collect(Batch(0))
        self.transmit(np.zeros(0, np.uint32), np.zeros(0, np.uint64), np.zeros(0, np.uint32))

    def collect(self, batch: Batch) -> None:
        """Receive one system call's worth."""
        columns = batch.addresses, batch.lengths, batch.ports
        batch.count = udp_kernels.collect(self.words, self.table.counters, *columns, batch.count)

    def transmit(self, ports: Words, addresses: Addresses, lengths: Words) -> None:
        """Send what comes from the switch itself to the peers that the frames name."""
        udp_kernels.transmit(self.words, self.table.counters, addresses, lengths)

    def prepare_sleep(self) -> bool:
        """Tell whether nothing has been received that is still to be collected."""
        return not has_more(self.words.receiving)

    def descriptors(self) -> list[int]:
        """Return the socket."""
        return [self._socket.fileno()]

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
        self.table.give_back(self.number)
        self.owned[:] = False

"""A port that is an ordinary UDP socket, so that workers on other machines need no root.

The program expects whole frames.  The port therefore makes up the Ethernet, IPv4 and UDP headers of a datagram that
arrives, and removes them from a frame that leaves.  Any number of workers are behind the one port; the IPv4 and UDP
headers that the program writes say which worker a frame goes to.

Only a frame whose source is the switch's own address leaves.  Any other frame that the program forwards to the port is
dropped and counted; otherwise a stranger could make the switch send datagrams to a third party.
"""

from __future__ import annotations

import errno
import socket

from switchsum_switch.errors import TransportError
from switchsum_switch.wires.datagrams import has_more, knows_segments, take_marks, take_together
from switchsum_switch.wires.encapsulation import Address
from switchsum_switch.wires.messages import grow_buffers

from .base import Addresses, Batch, PortGroup, PortTable, Words
from .operations import Operations
from .udp_kernels import UDP, packed_words, udp_words


class UdpPort(PortGroup):
    """The port that is a UDP socket; each `collect` overwrites the frames of the last one."""

    def __init__(self, table: PortTable, host: str, port: int, *, switch: Address, number: int | None = None) -> None:
        """Bind to `host` and the UDP port `port` (0: any) and take the port number; raises TransportError.

        `switch` is the address that the program has for the switch, which need not be the socket's.
        """
        super().__init__(table)
        try:
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        except OSError as error:
            raise TransportError(f"cannot open a UDP socket: {error.strerror}") from error
        try:
            self._socket.bind((host, port))
            self.address: tuple[str, int] = self._socket.getsockname()
            self.number = table.take("udp", f"{self.address[0]}:{self.address[1]}", number)
        except OSError as error:
            self._socket.close()
            remedy = {
                errno.EADDRINUSE: f": `ss -lnup sport = :{port}` says by whom",
                errno.EADDRNOTAVAIL: ": `ip -brief address` lists the addresses of this machine",
            }
            raise TransportError(
                f"cannot listen on UDP port {host}:{port}: {error.strerror}{remedy.get(error.errno or 0, '')}"
            ) from error
        except TypeError as error:  # the name of a host that no codec takes
            self._socket.close()
            raise TransportError(f"UDP port {host!r}:{port}: no such host") from error
        except TransportError:
            self._socket.close()
            raise
        # Several workers share this socket's buffer; and equal datagrams of one worker may come as one super-datagram.
        grow_buffers(self._socket)
        take_together(self._socket)
        take_marks(self._socket)
        self.owned[self.number] = True
        together = knows_segments(self._socket)
        self.words = udp_words(self._socket.fileno(), self.number, switch, together=together)
        """The port as kernels see it."""
        self.operations = Operations(UDP, self, packed_words(self.words))
        """Functions that the loop calls, compiled before the first frame: the sender's time-out is shorter than
        compiling.
        """

    def collect(self, batch: Batch) -> None:
        """Receive as many datagrams as one system call gives."""
        self.operations.collect(batch)

    def transmit(self, ports: Words, addresses: Addresses, lengths: Words) -> None:
        """Send the frames whose source is the switch to the addresses that they name; drop and count all others."""
        self.operations.transmit(ports, addresses, lengths)

    def prepare_sleep(self) -> bool:
        """Return whether the last system call left no datagram that is still to be collected."""
        return not has_more(self.words.receiving.state)

    def descriptors(self) -> list[int]:
        """Return the socket."""
        return [self._socket.fileno()]

    def sockets(self) -> list[int]:
        """Return the socket, which becomes readable when datagrams arrive."""
        return self.descriptors()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
        self.table.give_back(self.number)
        self.owned[:] = False

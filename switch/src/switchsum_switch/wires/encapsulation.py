"""Ethernet, IPv4 and UDP headers made up around datagrams, for ends of a link that are ordinary UDP sockets.

A socket delivers datagrams without headers; the program of the switch and the engine of a worker want whole frames.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum_switch.wires.headers import ETHERNET_BYTES, IPV4_BYTES, LOWER_BYTES, Address, lower_headers

from ..kernels.decorators import kernel
from .checksum import fill_ip_checksum, store16
from .rows import LEAD_BYTES, MARK_AT

__all__ = ["Address", "Addresses", "Bytes", "Indices", "made_up_mac", "template", "wrap"]

_SOURCE_MAC_IP: Final = LEAD_BYTES + 8
_IP: Final = LEAD_BYTES + ETHERNET_BYTES
_MARK: Final = LEAD_BYTES + MARK_AT
_UDP: Final = _IP + IPV4_BYTES
_IP_LENGTH: Final = 2
_UDP_LENGTH: Final = 4

Bytes = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.int32]
Addresses = npt.NDArray[np.int64]
"""First words of sockaddr_in: family (2 bytes), port and IPv4 address in network order."""


def made_up_mac(ip: int) -> int:
    """Return the locally administered Ethernet address that stands for an IPv4 address."""
    return 0x02_00 << 32 | ip


def template(source: Address, destination: Address) -> Bytes:
    """Return headers for `wrap`, which fills in lengths and checksum."""
    return np.frombuffer(lower_headers(source, destination, 0), np.uint8)


@kernel
def wrap(rows: Bytes, indices: Indices, lengths: Indices, headers: Bytes, sources: Addresses) -> None:
    """Write `headers` in front of the datagrams in the rows `indices`; a length is the whole frame's.

    A mark that is noted where the IPv4 header will be (`receive_rows` does that) is kept.  `sources` are first words of
    sockaddr_in, one each, that replace the source; or it is empty.
    """
    for i in range(len(lengths)):
        row = rows[indices[i]]
        is_marked = row[_MARK] & 3 == 3
        for k in range(LOWER_BYTES):
            row[LEAD_BYTES + k] = headers[k]
        if is_marked:
            row[_MARK] |= 3
        if len(sources):
            source = sources[i]
            for k in range(4):
                row[_SOURCE_MAC_IP + k] = row[_IP + 12 + k] = (source >> (32 + 8 * k)) & 0xFF
            row[_UDP], row[_UDP + 1] = (source >> 16) & 0xFF, (source >> 24) & 0xFF
        header = row.ctypes.data + _IP
        store16(header + _IP_LENGTH, lengths[i] - ETHERNET_BYTES)
        store16(header + IPV4_BYTES + _UDP_LENGTH, lengths[i] - ETHERNET_BYTES - IPV4_BYTES)
        fill_ip_checksum(header)

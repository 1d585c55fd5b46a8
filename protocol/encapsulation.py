"""Ethernet, IPv4 and UDP headers made up around datagrams, for ends of a link that are ordinary UDP sockets.

What a socket delivers has lost them; the program of the switch and the engine of a worker want whole frames.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum.protocol.kernels import kernel
from switchsum.protocol.rows import LEAD_BYTES
from switchsum.protocol.wire import ETHERNET_BYTES, IPV4_BYTES, LOWER_BYTES, Address, lower_headers

SOCKADDR_BYTES: Final = 16
"""sockaddr_in: family (2 bytes), port and IPv4 address in network order, padding."""

_SOURCE_MAC_IP: Final = LEAD_BYTES + 8
_IP: Final = LEAD_BYTES + ETHERNET_BYTES
_UDP: Final = _IP + IPV4_BYTES

Bytes = npt.NDArray[np.uint8]


def made_up_mac(ip: int) -> int:
    """Return the locally administered Ethernet address that stands for an IPv4 address."""
    return 0x02_00 << 32 | ip


def template(source: Address, destination: Address) -> Bytes:
    """Return headers for `wrap`; it puts lengths and checksum right."""
    return np.frombuffer(lower_headers(source, destination, 0), np.uint8)


@kernel
def wrap(rows: Bytes, lengths: npt.NDArray[np.int32], headers: Bytes, sources: Bytes) -> None:
    """Write `headers` in front of the datagrams in the first `len(lengths)` rows; a length is the whole frame's.

    `sources` are sockaddr_in, one each, that replace the source; or it is empty.
    """
    for i in range(len(lengths)):
        row = rows[i]
        for k in range(LOWER_BYTES):
            row[LEAD_BYTES + k] = headers[k]
        if len(sources):
            for k in range(4):
                row[_SOURCE_MAC_IP + k] = sources[i, 4 + k]
                row[_IP + 12 + k] = sources[i, 4 + k]
            row[_UDP], row[_UDP + 1] = sources[i, 2], sources[i, 3]
        _put16(row, _IP + 2, lengths[i] - ETHERNET_BYTES)
        _put16(row, _UDP + 4, lengths[i] - ETHERNET_BYTES - IPV4_BYTES)
        _put16(row, _IP + 10, 0)
        total = 0
        for k in range(_IP, _UDP, 2):
            total += row[k] << 8 | row[k + 1]
        total = (total & 0xFFFF) + (total >> 16)
        _put16(row, _IP + 10, ~(total + (total >> 16)) & 0xFFFF)


@kernel
def _put16(row: Bytes, at: int, value: int) -> None:
    row[at], row[at + 1] = value >> 8, value & 0xFF

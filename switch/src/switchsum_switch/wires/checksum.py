"""The Internet checksum (RFC 1071) in kernels, and fields of 16 bits in network order by their address.

Python has its own in `switchsum_protocol/wire.py`; the switch's compiler writes a third, for fields of any width, in
`codegen/checksum.py`.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from switchsum_switch.wires.headers import IPV4_BYTES

from ..kernels.decorators import inner, kernel
from ..kernels.intrinsics import intrinsic, ir, types

_PROTOCOL_UDP: Final = 17
_IP_CHECKSUM: Final = 10
_IP_ADDRESSES_BYTES: Final = 8


def _load16(_context: Any, address: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(16).as_pointer())
        return builder.zext(builder.bswap(builder.load(pointer, align=1)), ir.IntType(64))

    return types.int64(types.int64), generate


def _store16(_context: Any, address: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(16).as_pointer())
        builder.store(builder.bswap(builder.trunc(arguments[1], ir.IntType(16))), pointer, align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic(_load16)
def load16(address: int) -> int:
    """Read 16 bits in network order at an address."""
    return int.from_bytes(ctypes.string_at(int(address), 2))


@intrinsic(_store16)
def store16(address: int, value: int) -> None:
    """Write 16 bits in network order to an address."""
    ctypes.memmove(int(address), int(value & 0xFFFF).to_bytes(2), 2)


@kernel
def sum16(address: int, count: int) -> int:
    """Add `count` bytes at an address as checksums do: 16-bit words, within 16 bits."""
    total = 0
    for at in range(0, count - 1, 2):
        total += load16(address + at)
    if count % 2:
        total += load16(address + count - 2) << 8 & 0xFF00
    return fold(total)


@inner
def fold(total: int) -> int:
    """Add the bits beyond the lowest 16 to these, until no higher bits are left."""
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


@inner
def pseudo_header_sum(ip_addresses: int, length: int) -> int:
    """Add what a UDP checksum covers besides the datagram of `length` bytes; both IPv4 addresses are at an address."""
    return fold(sum16(ip_addresses, _IP_ADDRESSES_BYTES) + _PROTOCOL_UDP + length)


@inner
def udp_checksum(total: int) -> int:
    """Return the checksum for a sum; it is never 0, which would say that there is none (RFC 768)."""
    checksum = ~fold(total) & 0xFFFF
    return checksum if checksum != 0 else 0xFFFF


@inner
def fill_ip_checksum(header: int) -> None:
    """Write the checksum into the IPv4 header (without options) at an address."""
    store16(header + _IP_CHECKSUM, 0)
    store16(header + _IP_CHECKSUM, ~sum16(header, IPV4_BYTES) & 0xFFFF)

"""The hash algorithms of v1model (`HashAlgorithm`), over bytes, as BMv2's calculations.cpp computes them.

These are the definitions; `codegen/checksum.py` and `codegen/hashing.py` compute the same in native code.
"""

from __future__ import annotations

from collections.abc import Callable

WIDTHS = {"csum16": 16, "crc16": 16, "crc32": 32, "crcCCITT": 16, "xor16": 16, "identity": 64}
"""Width in bits of the result of each algorithm that is supported."""


def reflected_crc(data: bytes, polynomial: int, initial: int, final: int) -> int:
    """Return a CRC that takes the lowest bit of each byte first; `polynomial` has its bits in that order, too."""
    crc = initial
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (polynomial if crc & 1 else 0)
    return crc ^ final


def crc_ccitt(data: bytes) -> int:
    """Return CRC-16 CCITT: highest bit first, initial value all ones."""
    crc = 0xFFFF
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = ((crc << 1) ^ (0x1021 if crc & 0x8000 else 0)) & 0xFFFF
    return crc


def internet_checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071): the complement of the ones' complement sum of all 16-bit words."""
    padded = data + bytes(len(data) % 2)
    total = sum(int.from_bytes(padded[index : index + 2], "big") for index in range(0, len(padded), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def xor16(data: bytes) -> int:
    """Return the exclusive or of all 16-bit words."""
    padded = data + bytes(len(data) % 2)
    value = 0
    for index in range(0, len(padded), 2):
        value ^= int.from_bytes(padded[index : index + 2], "big")
    return value


def identity(data: bytes) -> int:
    """Return the first eight bytes as a big-endian number; of fewer bytes, all of them."""
    return int.from_bytes(data[:8], "big")


HASHES: dict[str, Callable[[bytes], int]] = {
    "csum16": internet_checksum,
    "crc16": lambda data: reflected_crc(data, 0xA001, 0, 0),
    "crc32": lambda data: reflected_crc(data, 0xEDB88320, 0xFFFFFFFF, 0xFFFFFFFF),
    "crcCCITT": crc_ccitt,
    "xor16": xor16,
    "identity": identity,
}

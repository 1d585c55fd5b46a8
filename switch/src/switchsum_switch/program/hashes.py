"""The hash algorithms that BMv2 has, v1model's `HashAlgorithm` among them, over bytes, as its calculations.cpp does.

These are the definitions; `codegen/checksum.py` and `codegen/hashing.py` compute the same in native code.
"""

from __future__ import annotations

from collections.abc import Callable

WIDTHS = {
    **{"csum16": 16, "crc16": 16, "crc32": 32, "crcCCITT": 16, "xor16": 16, "xor32": 32, "identity": 64},
    **{"crc8_custom": 8, "crc64_custom": 64, "xxh64": 64, "toeplitz": 32},
}
"""Width in bits of the result of each algorithm that is supported."""
ROUND_ROBIN = "round_robin"
"""The algorithm that gives 0, 1, 2 and so on: it counts how often its calculation was computed (`lower`)."""

_MASK64 = (1 << 64) - 1
XXH_PRIMES = (
    *(0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9),
    *(0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5),
)


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


def xor32(data: bytes) -> int:
    """Return the exclusive or of all 32-bit words."""
    padded = data + bytes(-len(data) % 4)
    value = 0
    for index in range(0, len(padded), 4):
        value ^= int.from_bytes(padded[index : index + 4], "big")
    return value


def crc8(data: bytes) -> int:
    """Return CRC-8: highest bit first, polynomial 0x07, initial value 0."""
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = ((crc << 1) ^ (0x07 if crc & 0x80 else 0)) & 0xFF
    return crc


def _rotated(value: int, amount: int) -> int:
    value &= _MASK64
    return (value << amount | value >> (64 - amount)) & _MASK64


def xxh64(data: bytes) -> int:
    """Return XXH64 of seed 0 (the xxHash specification, "XXH64 algorithm")."""
    p1, p2, p3, p4, p5 = XXH_PRIMES
    whole = len(data) - len(data) % 32
    if whole:
        lanes = [p1 + p2, p2, 0, -p1]
        for place in range(0, whole, 8):
            lane = place // 8 % 4
            word = int.from_bytes(data[place : place + 8], "little")
            lanes[lane] = _rotated(lanes[lane] + word * p2, 31) * p1
        state = sum(_rotated(lane, amount) for lane, amount in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            state = (state ^ _rotated(lane * p2, 31) * p1) * p1 + p4
    else:
        state = p5
    state = (state + len(data)) & _MASK64
    place = whole
    while len(data) - place >= 8:
        word = int.from_bytes(data[place : place + 8], "little")
        state = _rotated(state ^ _rotated(word * p2, 31) * p1 & _MASK64, 27) * p1 + p4 & _MASK64
        place += 8
    if len(data) - place >= 4:
        word = int.from_bytes(data[place : place + 4], "little")
        state = _rotated(state ^ word * p1 & _MASK64, 23) * p2 + p3 & _MASK64
        place += 4
    for byte in data[place:]:
        state = _rotated(state ^ byte * p5 & _MASK64, 11) * p1 & _MASK64
    for shift, factor in ((33, p2), (29, p3)):
        state = (state ^ state >> shift) * factor & _MASK64
    return state ^ state >> 32


def toeplitz(data: bytes) -> int:
    """Return 0: BMv2 takes a key by Thrift, and begins with one that is 0."""
    return 0


def identity(data: bytes) -> int:
    """Return the first eight bytes as a big-endian number; of fewer bytes, all of them."""
    return int.from_bytes(data[:8], "big")


HASHES: dict[str, Callable[[bytes], int]] = {
    "csum16": internet_checksum,
    "crc16": lambda data: reflected_crc(data, 0xA001, 0, 0),
    "crc32": lambda data: reflected_crc(data, 0xEDB88320, 0xFFFFFFFF, 0xFFFFFFFF),
    "crcCCITT": crc_ccitt,
    "xor16": xor16,
    "xor32": xor32,
    "crc8_custom": crc8,
    "crc64_custom": lambda data: reflected_crc(data, 0xD800000000000000, 0, 0),
    "xxh64": xxh64,
    "toeplitz": toeplitz,
    "identity": identity,
}

"""Values as a P4 writer has them, and the numbers that they are: addresses, numpy and Scapy values, bytes."""

from __future__ import annotations

import ipaddress
import operator
import re
from collections.abc import Sequence
from typing import Any, Final

from ..messages.matches import Exact, Lpm, Match, MatchKind, Range, Ternary
from ..state.tables import KeySpec

_MAC: Final = re.compile(r"[0-9a-fA-F]{1,2}([:-])[0-9a-fA-F]{1,2}(\1[0-9a-fA-F]{1,2}){4}")
_TIMES: Final = re.compile(r"time|stamp", re.IGNORECASE)
_ADDRESSES: Final = re.compile(r"addr|(^|_)(ip|ipv4|ip4|src|dst|source|destination)$", re.IGNORECASE)
"""Ends of names."""
MAC_BITS: Final = 48
IPV4_BITS: Final = 32
IPV6_BITS: Final = 128


def number_of(value: Any, width: int, what: str, *, signed: bool = False) -> int:
    """Return the number of `width` bits that a value stands for; raises ValueError or TypeError, which name `what`.

    Args:
        value: An integer (also numpy's), a truth value, bytes in network order, an object of `ipaddress`, or a text: a
            MAC address of 48 bits, an IPv4 address of 32 bits, an IPv6 address of 128 bits, or a number ("10", "0x0a").
        width: Bits that it has to fit.
        what: Names the value in errors.
        signed: Negative numbers are taken, too, in two's complement.

    """
    number = _number(value, width, what)
    least = -(1 << (width - 1)) if signed else 0
    largest = (1 << (width - signed)) - 1
    if not least <= number <= largest:
        # A reader cannot compare numbers of hundreds of digits.
        limits = f" ({least} to {largest})" if width <= 64 else ""
        raise ValueError(f"{what}: {value!r} does not fit {'int' if signed else 'bit'}<{width}>{limits}")
    return number & ((1 << width) - 1)


def _number(value: Any, width: int, what: str) -> int:
    if isinstance(value, str):
        return _read(value, width, what)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return int.from_bytes(bytes(value), "big")
    if isinstance(value, (ipaddress.IPv4Address, ipaddress.IPv6Address)):
        if value.max_prefixlen != width:
            raise ValueError(f"{what}: {value} is an address of {value.max_prefixlen} bits, not {width}")
        return int(value)
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{what}: {value!r} is no number, address or bytes") from None


def _read(text: str, width: int, what: str) -> int:
    if width == MAC_BITS and _MAC.fullmatch(text):
        parts = re.split("[:-]", text)
        return int.from_bytes(bytes(int(part, 16) for part in parts), "big")
    try:
        if width == IPV4_BITS and "." in text:
            return int(ipaddress.IPv4Address(text))
        if width == IPV6_BITS and ":" in text:
            return int(ipaddress.IPv6Address(text))
        return int(text, 0)
    except ValueError:
        forms = {MAC_BITS: " or MAC address", IPV4_BITS: " or IPv4 address", IPV6_BITS: " or IPv6 address"}
        raise ValueError(f"{what}: {text!r} is no number{forms.get(width, '')} of {width} bits") from None


def match_of(value: Any, key: KeySpec, what: str) -> Match:
    """Return the match that a value stands for; None matches everything, which an exact key cannot.

    | kind | value |
    |---|---|
    | exact | `5` |
    | lpm | `"10.0.0.0/8"`, `(value, prefix length)`, a network of `ipaddress`; a plain value is a whole prefix |
    | ternary, optional | `(value, mask)` or `"0x08 &&& 0x0f"`; a plain value has a mask of all ones |
    | range | `(low, high)` or `"10..20"`, both included; a plain value is a range of one |

    Raises ValueError or TypeError, which name `what`.
    """
    if key.kind is MatchKind.EXACT:
        return Exact(number_of(value, key.width, what))
    full = (1 << key.width) - 1
    if value is None:
        everything: dict[MatchKind, Match] = {MatchKind.LPM: Lpm(0, 0), MatchKind.TERNARY: Ternary(0, 0)}
        return everything.get(key.kind, Range(0, full))
    if key.kind is MatchKind.LPM:
        return _prefix(value, key.width, what)
    if key.kind is MatchKind.RANGE:
        low, high = (number_of(part, key.width, what) for part in _two(value, "..", value))
        if low > high:
            raise ValueError(f"{what}: the range {value!r} is empty")
        return Range(low, high)
    number, mask = (number_of(part, key.width, what) for part in _two(value, "&&&", full))
    return Ternary(number & mask, mask)


def _prefix(value: Any, width: int, what: str) -> Lpm:
    if isinstance(value, (ipaddress.IPv4Network, ipaddress.IPv6Network)):
        value = (value.network_address, value.prefixlen)
    start, length = _two(value, "/", width)
    size = number_of(length, 32, what)
    if size > width:
        raise ValueError(f"{what}: a prefix of {size} bits is longer than the {width} bits of the key")
    number = number_of(start, width, what)
    return Lpm(number >> (width - size) << (width - size), size)


def _two(value: Any, separator: str, otherwise: Any) -> tuple[Any, Any]:
    """Return the two parts of a match; a value of one part has `otherwise` as the second."""
    if isinstance(value, str) and separator in value:
        first, _, second = value.partition(separator)
        return first.strip(), second.strip()
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray)) and len(value) == 2:
        return value[0], value[1]
    return value, otherwise


def text_of(number: int, width: int, name: str = "") -> str:
    """Return a number as a reader wants it: addresses as such, long numbers in hexadecimal digits.

    Numbers of 48 and 128 bits are addresses, unless the name says that it is a time; of 32 bits if the name says so.
    """
    last = name.rpartition(".")[2]
    if width == MAC_BITS:
        return str(number) if _TIMES.search(last) else number.to_bytes(6, "big").hex(":")
    if width == IPV4_BITS and _ADDRESSES.search(last):
        return str(ipaddress.IPv4Address(number))
    if width == IPV6_BITS:
        return str(ipaddress.IPv6Address(number))
    return str(number) if width <= 16 else f"{number:#0{2 + (width + 3) // 4}x}"


def match_text(match: Match, key: KeySpec) -> str:
    """Return a match as a reader wants it, in the forms that `match_of` takes."""
    width, name = key.width, key.name
    match match:
        case Exact(value):
            return text_of(value, width, name)
        case Lpm(value, length):
            shown = str(ipaddress.IPv4Address(value)) if width == IPV4_BITS else text_of(value, width, name)
            return f"{shown}/{length}"
        case Ternary(value, mask) if mask == (1 << width) - 1:
            return text_of(value, width, name)
        case Ternary(value, mask):
            return f"{value:#x} &&& {mask:#x}" if mask else "*"
        case Range(low, high):
            return f"{text_of(low, width, name)}..{text_of(high, width, name)}"


def matches_text(match: Sequence[Match], keys: Sequence[KeySpec]) -> str:
    """Return the matches of an entry, with the names of the keys."""
    return ", ".join(f"{key.name}={match_text(one, key)}" for key, one in zip(keys, match, strict=True))

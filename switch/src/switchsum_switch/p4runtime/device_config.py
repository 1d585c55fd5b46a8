"""`p4_device_config` as clients send it: BMv2 JSON, or the message that older clients wrap it in.

That message is `p4.tmp.P4DeviceConfig` of p4lang/PI (proto/p4/tmp/p4config.proto): `reassign` (1, a bool), `extras`
(2, a message) and `device_data` (3, bytes).  It is deprecated and no package brings its descriptor, but the p4lang
tutorials send it, and BMv2 takes it.
"""

from __future__ import annotations

from typing import Final

_DEVICE_DATA: Final = 3
_VARINT: Final = 0
_BYTES: Final = 2


def program_of(device_config: bytes) -> bytes:
    """Return the BMv2 JSON; bytes that are no such message are returned as they are."""
    try:
        return _fields(device_config).get(_DEVICE_DATA, device_config)
    except (IndexError, ValueError):
        return device_config


def _fields(message: bytes) -> dict[int, bytes]:
    """Return the length-delimited fields of a message by number; raises IndexError or ValueError if it is none."""
    found: dict[int, bytes] = {}
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        value, position = _varint(message, position)
        if tag & 7 == _BYTES:
            end = position + value
            if end > len(message):
                raise IndexError
            found[tag >> 3] = message[position:end]
            position = end
        elif tag & 7 != _VARINT:
            raise ValueError
    return found


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """Read a varint: 7 bits in each byte, the lowest first; return it and the position behind it."""
    value = shift = 0
    while True:
        byte = message[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if not byte & 0x80:
            return value, position

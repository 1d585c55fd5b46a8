"""LLDP frames (IEEE 802.1AB) of the controller's own: which port of which switch they left, proven by a digest.

The P4 program hands a frame on by its destination address, so one entry for LLDP's address sends these frames to the
CPU port.  Such a frame has no header of the program there.  P4Runtime takes the frame's first two bytes for that
header, so the frame begins with the third byte of its destination.  The port that it came by is unknown (`neighbours`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from ..tables.names import LLDP_MAC

LOST_BYTES: Final = 2
"""Bytes of a frame that P4Runtime takes for the header of a packet-in."""
LLDP_HEAD: Final = LLDP_MAC.to_bytes(6)[LOST_BYTES:]
"""First bytes of a packet-in of LLDP."""
SOURCE_MAC: Final = 0x02_00_00_00_00_FF
ETHERTYPE: Final = 0x88CC
LEAST_BYTES: Final = 60
"""Shortest Ethernet frame, in bytes, without its checksum."""
END, CHASSIS, PORT, TTL, OWN = 0, 1, 2, 3, 127
LOCAL: Final = 7
"""Subtype of a chassis' and of a port's id: a name that is locally assigned."""
OWN_KIND: Final = b"\x02\x53\x53\x01"
"""A locally administered organisation, and its first subtype: a digest with the controller's key."""
DIGEST_BYTES: Final = 16
MOST_NAME: Final = 200
"""Bytes of a switch's name that fit."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class End:
    """A port of a switch."""

    switch: str
    port: int

    def __str__(self) -> str:
        return f"port {self.port} of {self.switch}"


def build(end: End, ttl_s: int, key: bytes) -> bytes:
    """Return the frame that is to leave a port; raises ValueError for a name that does not fit."""
    name, port = end.switch.encode(), str(end.port).encode()
    if not 0 < len(name) <= MOST_NAME:
        raise ValueError(f"a switch's name has 1 to {MOST_NAME} bytes for LLDP")
    body = _tlv(CHASSIS, bytes([LOCAL]) + name) + _tlv(PORT, bytes([LOCAL]) + port) + _tlv(TTL, ttl_s.to_bytes(2))
    body += _tlv(OWN, OWN_KIND + _digest(body, key)) + _tlv(END, b"")
    frame = LLDP_MAC.to_bytes(6) + SOURCE_MAC.to_bytes(6) + ETHERTYPE.to_bytes(2) + body
    return frame.ljust(LEAST_BYTES, b"\0")


def parse(payload: bytes, key: bytes) -> tuple[End, int] | None:
    """Return of a packet-in which port it left and for how many seconds that holds; None if it is not of this key."""
    head, body = payload[: len(LLDP_HEAD) + 8], payload[len(LLDP_HEAD) + 8 :]
    if not head.startswith(LLDP_HEAD) or not head.endswith(ETHERTYPE.to_bytes(2)):
        return None
    found: dict[int, bytes] = {}
    at = signed = 0
    while at + 2 <= len(body) and (kind := body[at] >> 1) != END:
        length = int.from_bytes(body[at : at + 2]) & 0x1FF
        found.setdefault(kind, body[at + 2 : at + 2 + length])
        signed, at = (at if kind == OWN else signed), at + 2 + length
    own, chassis, port = (found.get(kind, b"") for kind in (OWN, CHASSIS, PORT))
    if own != OWN_KIND + _digest(body[:signed], key):  # whoever has the key has built all of it
        return None
    return End(switch=chassis[1:].decode(), port=int(port[1:])), int.from_bytes(found[TTL])


def _tlv(kind: int, value: bytes) -> bytes:
    return (kind << 9 | len(value)).to_bytes(2) + value


def _digest(body: bytes, key: bytes) -> bytes:
    return hashlib.blake2b(body, key=key, digest_size=DIGEST_BYTES).digest()

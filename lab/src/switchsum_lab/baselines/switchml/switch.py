"""SwitchML's switch in Python, by the rules of program.p4: `switchsum compare switchml` holds one to the other."""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from switchsum_lab.protocols.seam import World
from switchsum_switch.wires.headers import internet_checksum

from .host import AT, CONTRIBUTION, HEADER, LANES_AT, PORT, RESULT, SLOTS

_WORD: Final = 0xFFFF_FFFF
_IP_AT: Final = 14
_UDP_AT: Final = 34
_IPV4: Final = bytes.fromhex("0800")
_UDP: Final = 17


def switch(world: World) -> Switch:
    """Return the switch."""
    return Switch(world)


class Switch:
    """Two pools of slots: each worker has a bit in a slot, and its packet leaves as the result if it is the last."""

    def __init__(self, world: World) -> None:
        self.addresses = {world.port(rank): (rank, world.address(rank)) for rank in range(world.workers)}
        """Rank and address of the worker at each port."""
        self.bitmaps, self.missing = np.zeros(2 * SLOTS, np.uint32), np.zeros(2 * SLOTS, np.uint32)
        self.exponents, self.lanes = np.zeros(2 * SLOTS, np.uint8), np.zeros((2 * SLOTS, world.lanes), np.uint32)

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Take a frame that has come to a port; return the frames that leave, each with its port."""
        end = LANES_AT + self.lanes[0].nbytes
        is_ours = frame[12:14] == _IPV4 and frame[23:24] == bytes([_UDP]) and frame[36:38] == PORT.to_bytes(2)
        if not is_ours or len(frame) < end or port not in self.addresses:
            return []
        rank, address = self.addresses[port]
        kind, job, tsi, pool, exponent = HEADER.unpack_from(frame, AT)
        slot, version = pool & 0x7FFF, pool >> 15
        source = (int.from_bytes(frame[26:30]), int.from_bytes(frame[34:36]))
        if kind >> 4 != CONTRIBUTION >> 4 or slot >= SLOTS or source != (address.ip, address.port):
            return []
        cell, bit = 2 * slot + version, 1 << rank
        seen = int(self.bitmaps[cell])
        self.bitmaps[cell] |= np.uint32(bit)
        self.bitmaps[cell ^ 1] &= np.uint32(~bit & _WORD)
        values = np.frombuffer(frame, ">u4", len(self.lanes[cell]), LANES_AT)
        if not seen & bit:
            self.missing[cell] = (len(self.addresses) if seen == 0 else int(self.missing[cell])) - 1 & _WORD
            self.exponents[cell] = exponent if seen == 0 else max(exponent, int(self.exponents[cell]))
            self.lanes[cell] = values if seen == 0 else self.lanes[cell] + values
        if self.missing[cell]:
            return []
        head = HEADER.pack(RESULT | kind & 0xF, job, tsi, pool, int(self.exponents[cell]))
        answer = head[:-1] + frame[LANES_AT - 1 : LANES_AT] + self.lanes[cell].astype(">u4").tobytes() + frame[end:]
        if seen & bit:  # a repeat, which is answered for this worker alone
            return [(port, _addressed(frame, frame[6:12], frame[26:30], frame[34:36]) + answer)]
        return [
            (out, _addressed(frame, to.mac.to_bytes(6), to.ip.to_bytes(4), to.port.to_bytes(2)) + answer)
            for out, (_, to) in self.addresses.items()
        ]


def _addressed(frame: bytes, mac: bytes, ip: bytes, port: bytes) -> bytes:
    """Return the headers of an answer: back from where the contribution went."""
    ipv4 = bytearray(frame[_IP_AT:_UDP_AT])
    ipv4[8], ipv4[10:12], ipv4[12:16], ipv4[16:20] = 64, bytes(2), frame[30:34], ip
    struct.pack_into("!H", ipv4, 10, internet_checksum(bytes(ipv4)))
    return mac + frame[:6] + _IPV4 + ipv4 + frame[36:38] + port + frame[38:40] + bytes(2)

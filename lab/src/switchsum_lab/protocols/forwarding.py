"""Protocols of hosts alone: the switch forwards by Ethernet address, and a host answers what a worker sends.

A protocol's `host.py` takes the program with `PROGRAM = FORWARDING`, and its entries from here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from switchsum_controller.tables.entries import Entry
from switchsum_switch.wires.headers import Address, lower_headers

from .seam import World

FORWARDING: Final = "ring"
"""The protocol of ours whose program forwards."""


def entries(world: World) -> Iterator[Entry]:
    """Let the switch forward to each host."""
    for host in range(world.hosts):
        yield Entry(
            table="SwitchIngress.stations",
            match={"destination": world.address(host).mac},
            action="SwitchIngress.forward",
            params={"port": world.port(host)},
        )


def head(world: World, port: int, host: int, to: int, size: int) -> bytes:
    """Return Ethernet, IPv4 and UDP headers from a host to another one, before `size` bytes."""
    own, other = world.address(host), world.address(to)
    source, destination = (Address(mac=one.mac, ip=one.ip, port=port) for one in (own, other))
    return lower_headers(source, destination, size)


def is_to(frame: bytes, port: int, least: int) -> bool:
    """Tell whether a frame is for this UDP port and has so many bytes at least."""
    return len(frame) >= least and int.from_bytes(frame[36:38]) == port

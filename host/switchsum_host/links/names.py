"""Links by name: `shm:NAME`, `udp:HOST:PORT`, `packet:INTERFACE`, `scapy:INTERFACE`.

Several links of a worker are named as in `packet:eth0@200,packet:eth1@100`: each one's rate in Mbit/s stands behind it,
or none has one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import AGGREGATION_PORT, MOST_LINKS
from switchsum_switch.wires.headers import Address

from .base import Transport

KINDS: Final = ("shm", "udp", "packet", "scapy")
LAST_PORT: Final = 65535
JOINED: Final = ("udp", "packet")
"""Kinds of which a worker may have several links."""
_BETWEEN: Final = re.compile(rf",(?=\s*(?:{'|'.join(KINDS)}):)")
_EXAMPLE: Final = "packet:eth0@200,packet:eth1@100"


def is_several(link: str) -> bool:
    """Tell whether a text is meant to name several links of a worker (`split_links`)."""
    return "," in link and (link.startswith(("udp:", "packet:")) or any(f",{kind}:" in link for kind in KINDS))


def check_link(link: str) -> None:
    """Refuse what is no link's name; raises UsageError.  Whether the link is there shows when it is opened."""
    kind, _, place = link.partition(":")
    if not place:
        raise UsageError(f"a link is shm:NAME, udp:HOST:PORT, packet:INTERFACE or scapy:INTERFACE, not {link!r}")
    if kind not in KINDS:
        raise UsageError(f"there is no kind of link {kind!r}: the kinds are {', '.join(KINDS[:-1])} and {KINDS[-1]}")
    if "\0" in place or any("\ud800" <= letter <= "\udfff" for letter in place):
        raise UsageError(f"a link's name must be text without NUL and surrogates, not {link!r}")
    host, _, port = place.partition("%")[0].partition(":")
    is_number = port.isascii() and port.isdigit() and len(port) <= len(str(LAST_PORT))
    if kind == "udp" and port and not (is_number and 0 < int(port) <= LAST_PORT):
        raise UsageError(
            f"the UDP port in {link!r} is not 1 to {LAST_PORT}: write udp:HOST or udp:HOST:PORT, with IPv4"
        )
    if kind == "udp" and not host:
        raise UsageError(f"there is no host in {link!r}: write udp:HOST or udp:HOST:PORT")


def open_transport(link: str, *, rows: int, frame_bytes: int, switch: Address, together: bool = True) -> Transport:
    """Open `link` to the switch that calls itself `switch`; raises TransportError, or UsageError for an unknown kind.

    `rows` frames of up to `frame_bytes` are kept for sending, and may go together in super-frames if `together`.
    """
    check_link(link)
    kind, _, place = link.partition(":")
    # What opens the other links is not imported.
    if kind == "shm":
        from .shm import ShmTransport  # noqa: PLC0415

        return ShmTransport(place, rows=rows, frame_bytes=frame_bytes)
    if kind == "udp":
        from .udp import UdpTransport  # noqa: PLC0415

        place, _, source = place.partition("%")
        host, _, port = place.partition(":")
        number = int(port or AGGREGATION_PORT)
        return UdpTransport(
            host, number, rows=rows, frame_bytes=frame_bytes, switch=switch, together=together, source=source
        )
    if kind == "packet":
        from .packet import PacketTransport  # noqa: PLC0415

        return PacketTransport(place, rows=rows, frame_bytes=frame_bytes, switch=switch, together=together)
    from .scapy_transport import ScapyTransport  # noqa: PLC0415

    return ScapyTransport(place, rows=rows, frame_bytes=frame_bytes, switch=switch)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedLink:
    """One of a worker's links."""

    name: str
    mbit: float | None = None
    """Rate in Mbit/s. None: not given."""


def split_links(text: str) -> list[NamedLink]:
    """Return the links that a text names; raises UsageError."""
    parts = [part.strip() for part in _BETWEEN.split(text)]
    if len(parts) == 1:
        raise UsageError(f"each of several links is written with its kind, as in {_EXAMPLE}, unlike {text!r}")
    if len(parts) > MOST_LINKS:
        raise UsageError(f"a worker has 1 to {MOST_LINKS} links, not {len(parts)}")
    links = [_read_part(part) for part in parts]
    for place, link in enumerate(links):
        if link.name.partition(":")[0] not in JOINED:
            raise UsageError(
                f"{link.name} cannot be one of several links: these are of the kinds {' and '.join(JOINED)}"
            )
        if link.name in {other.name for other in links[:place]}:
            raise UsageError(f"link {link.name} is given twice: the links of a worker must differ")
    if len({link.mbit is None for link in links}) > 1:
        raise UsageError(f"some links have a rate and some have none: give a rate to all ({_EXAMPLE}) or to none")
    return links


def _read_part(part: str) -> NamedLink:
    name, at, rate = part.rpartition("@")
    if not at:
        name, rate = part, ""
    check_link(name)
    if not at:
        return NamedLink(name=name)
    try:
        mbit = float(rate)
    except ValueError:
        mbit = 0.0
    if not 0 < mbit < float("inf"):
        raise UsageError(f"a link's rate is a number of Mbit/s above 0, as in {_EXAMPLE}, not {rate!r} in {part!r}")
    return NamedLink(name=name, mbit=mbit)

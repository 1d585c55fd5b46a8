"""Links by name: `shm:NAME`, `udp:HOST:PORT`, `packet:INTERFACE`, `scapy:INTERFACE`."""

from __future__ import annotations

from typing import Final

from switchsum.protocol.errors import UsageError
from switchsum.protocol.frame import AGGREGATION_PORT
from switchsum.protocol.wire import Address

from .base import Transport

KINDS: Final = ("shm", "udp", "packet", "scapy")
LAST_PORT: Final = 65535


def is_several(link: str) -> bool:
    """Tell whether a text is meant to name several links of a worker (`listed`)."""
    return "," in link and (link.startswith(("udp:", "packet:")) or any(f",{kind}:" in link for kind in KINDS))


def check_link(link: str) -> None:
    """Refuse what is no link's name; raises UsageError.  Whether the link is there shows when it is opened."""
    kind, _, place = link.partition(":")
    if not place:
        raise UsageError(f"a link is shm:NAME, udp:HOST:PORT, packet:INTERFACE or scapy:INTERFACE, not {link!r}")
    if kind not in KINDS:
        raise UsageError(f"no links of the kind {kind!r}: {', '.join(KINDS[:-1])} and {KINDS[-1]} are known")
    if "\0" in place or any("\ud800" <= letter <= "\udfff" for letter in place):
        raise UsageError(f"a link's name is text without NUL and halves of characters, not {link!r}")
    host, _, port = place.partition("%")[0].partition(":")
    is_number = port.isascii() and port.isdigit() and len(port) <= len(str(LAST_PORT))
    if kind == "udp" and port and not (is_number and 0 < int(port) <= LAST_PORT):
        raise UsageError(f"not a UDP port: {port!r} in {link!r}; udp:HOST or udp:HOST:PORT with 1 to {LAST_PORT}, IPv4")
    if kind == "udp" and not host:
        raise UsageError(f"no host in {link!r}: udp:HOST or udp:HOST:PORT")


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

"""The form of an address at which a gRPC server listens."""

from __future__ import annotations

from typing import Final

from switchsum.protocol.errors import UsageError

LAST_PORT: Final = 65535
"""Largest port number of TCP and UDP."""


def is_number(text: str, most: int) -> bool:
    """Return whether a text is a whole number from 0 to `most` in ASCII digits."""
    return text.isascii() and text.isdigit() and len(text) <= len(str(most)) and int(text) <= most


def check_form(address: str) -> None:
    """Raise UsageError if a text is no address of a gRPC server.  gRPC itself takes port numbers modulo 65536."""
    host, _, port = address.rpartition(":")
    if address.startswith("unix:") and address != "unix:" and address.isprintable():
        return
    if (
        not host
        or not address.isprintable()
        or not is_number(port, LAST_PORT)
        or (":" in host and not host.startswith("["))
    ):
        raise UsageError(
            f"an address is host:port, [IPv6]:port or unix:path, its port 0 to {LAST_PORT}, not {address!r}"
        )

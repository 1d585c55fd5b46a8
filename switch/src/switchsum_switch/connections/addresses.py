"""Addresses of gRPC servers: their form, and whether somebody listens there."""

from __future__ import annotations

import socket
from typing import Final

from switchsum_switch.errors import UsageError
from switchsum_switch.process.runtime_directory import UNIX

LAST_PORT: Final = 65535
"""Largest port number of TCP and UDP."""
PROBE_S: Final = 1.0
"""Seconds that a kernel may take to say whether a process listens at an address."""


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
            f"an address is host:port, [IPv6]:port or unix:path, with a port of 0 to {LAST_PORT}, not {address!r}"
        )


def is_listening(address: str) -> bool:
    """Return whether a process listens at host:port or unix:path, busy or not."""
    try:
        if address.startswith(UNIX):
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(PROBE_S)
                probe.connect(address.removeprefix(UNIX).removeprefix("//"))
            return True
        host, _, port = address.rpartition(":")
        with socket.create_connection((host.strip("[]"), int(port)), PROBE_S):
            return True
    except (OSError, ValueError, OverflowError):
        return False

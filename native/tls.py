"""gRPC over TLS: which certificates a process uses, and the channels and ports that use them.

`SWITCHSUM_TLS` names a directory with up to two folders, one for each kind of connection (`HOSTS`, `P4RUNTIME`), each
with `ca.pem`, `cert.pem` and `key.pem`.  Each kind has an authority of its own: who may talk to the controller may not
for that reason talk to the switch.  Both sides show a certificate.  What a certificate may be used for (server, client)
counts, host names do not: all of them are made out to `NAME`.  Unix sockets need none of this: only their user reaches
them (sockets.py).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import grpc

from switchsum.protocol.errors import UsageError

from .sockets import check_length, check_owner, listening_at, path_of

VARIABLE: Final = "SWITCHSUM_TLS"
HOSTS: Final = "hosts"
"""Between members, people's tools and the controller."""
P4RUNTIME: Final = "p4runtime"
"""Between the controller and the switch."""
NAME: Final = "switchsum"
"""What certificates are made out to."""
FILES: Final = ("ca.pem", "cert.pem", "key.pem")
SERVER_OPTIONS: Final = (
    ("grpc.so_reuseport", 0),  # a second server at an address is a mistake, not a helper
    # Who connects and says nothing gives his place back: before the hand-shake of TLS and HTTP/2, and after it.
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 60_000),
)
"""gRPC options of every server of ours."""

_given: dict[str, tuple[bytes, bytes, bytes]] = {}
"""Authority, certificate and key by address, where this process was given them."""
_log = logging.getLogger(__name__)


def open_channel(address: str, kind: str, options: Sequence[tuple[str, Any]] = ()) -> grpc.Channel:
    """Return a channel to a server; raises UsageError when the certificates cannot be read.

    Raises TransportError for a Unix socket that is somebody else's.
    """
    if (path := path_of(address)) is not None:
        check_length(path)
        check_owner(path)
    files = _read(address, kind)
    if files is None:
        return grpc.insecure_channel(address, options=options)
    authority, certificate, key = files
    credentials = grpc.ssl_channel_credentials(authority, key, certificate)
    return grpc.secure_channel(address, credentials, options=[*options, ("grpc.ssl_target_name_override", NAME)])


def add_port(server: grpc.Server, address: str, kind: str) -> int:
    """Let a server listen at an address; return the port, 0 where gRPC says so.

    Raises UsageError when the certificates cannot be read, RuntimeError or TransportError when the address cannot be
    had.  A Unix socket is for this user alone.
    """
    if (path := path_of(address)) is not None:
        with listening_at(path):
            return server.add_insecure_port(address)
    files = _read(address, kind)
    if files is None:
        return server.add_insecure_port(address)
    authority, certificate, key = files
    credentials = grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)
    return server.add_secure_port(address, credentials)


def give(address: str, files: tuple[bytes, bytes, bytes]) -> None:
    """Use an authority, a certificate and its key towards an address, whatever SWITCHSUM_TLS says."""
    _given[address] = files


def warn_of(address: str) -> None:
    """Log whom a server lets in that listens at an address, unless it is its own user alone."""
    if path_of(address) is None and not os.environ.get(VARIABLE):
        who = "every user of this machine" if is_local(address) else "everybody who can reach this address"
        _log.warning(
            "%s: %s may give orders here, and change sums; a Unix socket or %s keeps others out: docs/security.md",
            address,
            who,
            VARIABLE,
        )


def is_local(address: str) -> bool:
    """Tell whether only this machine can reach an address."""
    host = address.rpartition(":")[0].strip("[]")
    return address.startswith("unix") or host in ("localhost", "::1") or host.startswith("127.")


def _read(address: str, kind: str) -> tuple[bytes, bytes, bytes] | None:
    """Return authority, certificate and key for an address; None: without TLS."""
    if address in _given:
        return _given[address]
    directory = os.environ.get(VARIABLE)
    if not directory or path_of(address) is not None:
        return None
    folder = Path(directory, kind)
    try:
        authority, certificate, key = (folder.joinpath(name).read_bytes() for name in FILES)
    except OSError as error:
        raise UsageError(f"{VARIABLE} is {directory}: {error.filename}: {error.strerror}") from error
    return authority, certificate, key

"""gRPC over TLS: which certificates a process uses, and the channels that use them (`serving.py` has the ports).

`SWITCHSUM_TLS` names a directory with up to two folders, one for each kind of connection (`HOSTS`, `P4RUNTIME`), each
with `ca.pem`, `cert.pem` and `key.pem`.  Each kind has an authority of its own: who may talk to the controller may not
for that reason talk to the switch.  Both sides show a certificate.  What a certificate may be used for (server, client)
counts, host names do not: all of them are made out to `NAME`.  Unix sockets need none of this: only their user reaches
them (sockets.py).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from switchsum_switch.connections.quiet_grpc import grpc
from switchsum_switch.errors import UsageError
from switchsum_switch.process.runtime_directory import check_length, check_owner, path_of

VARIABLE: Final = "SWITCHSUM_TLS"
HOSTS: Final = "hosts"
"""Connections between members, people's tools and the controller."""
P4RUNTIME: Final = "p4runtime"
"""Connections between the controller and the switch."""
NAME: Final = "switchsum"
"""Name in certificates."""
FILES: Final = ("ca.pem", "cert.pem", "key.pem")
_HOLDS: Final = dict.fromkeys(FILES[:2], "whole certificate (PEM)") | {FILES[2]: "whole key (PEM, without a password)"}
_given: dict[str, tuple[bytes, bytes, bytes]] = {}
"""Authority, certificate and key by address, where this process was given them."""


def open_channel(address: str, kind: str, options: Sequence[tuple[str, Any]] = ()) -> grpc.Channel:
    """Return a channel to a server; raises UsageError when the certificates cannot be read.

    Raises TransportError for a Unix socket that is somebody else's.
    """
    if (path := path_of(address)) is not None:
        check_length(path)
        check_owner(path)
    files = read_files(address, kind)
    if files is None:
        return grpc.insecure_channel(address, options=options)
    authority, certificate, key = files
    credentials = grpc.ssl_channel_credentials(authority, key, certificate)
    return grpc.secure_channel(address, credentials, options=[*options, ("grpc.ssl_target_name_override", NAME)])


def in_words(details: str) -> str:
    """Return why gRPC reaches no server: its last layer, and that certificates may be at fault."""
    reason = details.removesuffix(": OK").rpartition(": ")[2]
    if "handshake failed" in details:
        return f"{reason}: one side does not believe the other's certificate; {VARIABLE}, docs/security.md"
    if reason == "Socket closed":
        return f"{reason}: one side may use TLS and the other not, or not believe its certificate; docs/security.md"
    return reason


def give(address: str, files: tuple[bytes, bytes, bytes]) -> None:
    """Use an authority, a certificate and its key towards an address, whatever SWITCHSUM_TLS says."""
    _given[address] = files


def read_files(address: str, kind: str) -> tuple[bytes, bytes, bytes] | None:
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
    _check(directory, folder)
    return authority, certificate, key


def _check(directory: str, folder: Path) -> None:
    """Raise UsageError for files that hold no certificate or key: gRPC ends the process for some of them."""
    import ssl  # noqa: PLC0415  (a fiftieth of a second that few processes need)

    authority, certificate, key = (folder / name for name in FILES)
    context, looked_at = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), authority
    try:
        context.load_verify_locations(authority)
        looked_at = certificate
        context.load_verify_locations(certificate)
        looked_at = key
        context.load_cert_chain(certificate, key, password="")  # a key with a password is refused, not asked for
    except (OSError, ValueError) as error:  # ssl's own errors are OSErrors
        is_other = getattr(error, "reason", None) == "KEY_VALUES_MISMATCH"
        wrong = f"is not the key of {certificate.name}" if is_other else f"holds no {_HOLDS[looked_at.name]}"
        raise UsageError(f"{VARIABLE} is {directory}: {looked_at} {wrong}") from error

"""Addresses of Unix sockets that nobody but their user can reach; `runtime_directory.py` says where they are found."""

from __future__ import annotations

import os
import socket
import stat
from typing import Final

from switchsum.protocol.errors import TransportError

RUNTIME_VARIABLE: Final = "SWITCHSUM_RUNTIME_DIR"
"""Environment variable that names the directory of sockets, in place of /tmp/switchsum-UID."""
UNIX: Final = "unix:"
"""How gRPC's addresses of Unix sockets begin."""
MAX_PATH_BYTES: Final = 107
"""Longest path that fits the kernel's sockaddr_un."""

PROBE_S: Final = 1.0
"""How long a kernel may take to say whether a process listens at an address."""


def is_listening(address: str) -> bool:
    """Whether a process listens at host:port or unix:path, busy or not."""
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


def path_of(address: str) -> str | None:
    """Return the path in gRPC's address of a Unix socket, `unix:path` or `unix://path`; None for other addresses."""
    if not address.startswith(UNIX):
        return None
    path = address.removeprefix(UNIX)
    return path.removeprefix("//") if path.startswith("///") else path


def check_length(path: str) -> None:
    """Refuse a path that the kernel would; raises TransportError."""
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise TransportError(
            f"{path}: the path of a Unix socket has at most {MAX_PATH_BYTES} bytes: TMPDIR, {RUNTIME_VARIABLE} or the "
            "option that gave the path names a shorter one"
        )


def check_owner(path: str) -> None:
    """Refuse a socket that a stranger may have put where everybody may write; raises TransportError."""
    try:
        if not os.stat(os.path.dirname(path) or ".").st_mode & stat.S_IWOTH:
            return
        owner = os.lstat(path).st_uid
    except OSError:
        return  # nobody is there yet
    if owner not in (0, os.geteuid()):
        raise TransportError(f"{path} belongs to user {owner}, neither root nor {os.geteuid()}")

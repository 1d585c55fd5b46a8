"""A forked child lets go of its parent's connection to the controller, which shows that the parent lives.

gRPC does so by itself where its support for forks is on, which depends on its version and environment.
"""

from __future__ import annotations

import os
import socket
import stat
from typing import Final

_MAPPED: Final = "::ffff:"
"""How IPv4 addresses look on sockets of IPv6."""
_peers: set[str | tuple[str, int]] = set()
"""Where controllers are: paths of Unix sockets, or addresses and ports."""


def keep_to_this_process(address: str) -> None:
    """Let no child that is forked from now on keep a connection to this gRPC address, once it has been resolved."""
    if not _peers:
        os.register_at_fork(after_in_child=_let_go)
    if address.startswith("unix:"):
        _peers.add(os.path.abspath(address.removeprefix("unix:")))
        return
    host, _, port = address.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        return  # then there is no connection, either
    _peers.update((str(name[0]), int(name[1])) for _, _, _, _, name in found)


def _let_go() -> None:
    """Put nothing in place of such connections: to close them would free numbers that gRPC may close once more."""
    for entry in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.fstat(int(entry)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(entry))) as connection:
                is_ours = _peer(connection) in _peers
        except OSError:
            continue  # closed meanwhile, or not connected
        if is_ours:
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, int(entry), inheritable=False)
            os.close(nothing)


def _peer(connection: socket.socket) -> str | tuple[str, int] | None:
    name = connection.getpeername()
    if connection.family == socket.AF_UNIX:
        return os.path.abspath(name) if isinstance(name, str) and name else None
    return (str(name[0]).removeprefix(_MAPPED), int(name[1])) if isinstance(name, tuple) else None

"""Opens servers that only the right clients reach: Unix sockets of one user (sockets.py), ports with TLS (tls.py)."""

from __future__ import annotations

import fcntl
import logging
import os
import resource
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from switchsum_switch.connections.quiet_grpc import grpc
from switchsum_switch.errors import TransportError
from switchsum_switch.process.runtime_directory import check_length, distrust, path_of

from .tls import VARIABLE, read_files

MAX_DESCRIPTORS: Final = 1 << 16
"""Most descriptors that a daemon could use. Some systems allow a thousand million, which costs memory."""
SERVER_OPTIONS: Final = (
    ("grpc.so_reuseport", 0),  # a second server at an address is a mistake, not a helper
    # Who connects and says nothing gives his place back: before the hand-shake of TLS and HTTP/2, and after it.
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 60_000),
)
"""gRPC options of every server of ours."""

_mask_lock = threading.Lock()
"""The mask of modes is the whole process's."""
_log = logging.getLogger("switchsum.connections.serving")


def add_port(server: grpc.Server, address: str, kind: str) -> int:
    """Let a server listen at an address; return the port, 0 where gRPC says so.

    Raises UsageError when the certificates cannot be read, RuntimeError or TransportError when the address cannot be
    had.  A Unix socket is for this user alone.
    """
    if (path := path_of(address)) is not None:
        with listening_at(path):
            return server.add_insecure_port(address)
    files = read_files(address, kind)
    if files is None:
        return server.add_insecure_port(address)
    authority, certificate, key = files
    credentials = grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)
    return server.add_secure_port(address, credentials)


def warn_of(address: str) -> None:
    """Log whom a server lets in that listens at an address, unless it is its own user alone."""
    if path_of(address) is None and not os.environ.get(VARIABLE):
        who = "every user of this machine" if is_local(address) else "everybody who can reach this address"
        _log.warning(
            "%s: %s may give orders here and change sums: use a Unix socket or set %s to keep others "
            "out (docs/security.md)",
            address,
            who,
            VARIABLE,
        )


def is_local(address: str) -> bool:
    """Tell whether only this machine can reach an address."""
    host = address.rpartition(":")[0].strip("[]")
    return address.startswith("unix") or host in ("localhost", "::1") or host.startswith("127.")


@contextmanager
def listening_at(path: str) -> Iterator[None]:
    """Let a server bind and listen in the block, at a path that only this user will be able to connect to.

    What a server that was killed has left there is removed.  Raises TransportError when the path cannot be had.
    """
    check_length(path)
    with _mask_lock:
        mask = os.umask(0o177)
        try:
            with _one_at_a_time(Path(path).parent):
                _remove_unused_socket(path)
                yield
        finally:
            os.umask(mask)


@contextmanager
def _one_at_a_time(directory: Path) -> Iterator[None]:
    """Keep servers that start together apart, in a directory where nobody else can hold the lock for ever."""
    try:
        if distrust(directory) is not None:
            descriptor = -1
        else:
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise TransportError(f"cannot listen in {directory}: {error.strerror}") from error
    try:
        if descriptor >= 0:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _remove_unused_socket(path: str) -> None:
    """Remove a socket that nobody listens at; raises TransportError when somebody does, or it is something else."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)  # a listener whose queue is full is one, too
        try:
            probe.connect(path)
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            pass  # nobody, or no socket
        except OSError as error:
            if isinstance(error, PermissionError):
                raise TransportError(
                    f"cannot listen at {path}: it belongs to another user, so choose another path"
                ) from error
            raise TransportError(f"another process listens at {path} already") from error
        else:
            raise TransportError(f"another process listens at {path} already")
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise TransportError(
                f"cannot listen at {path}: the file there is not a socket: remove it, or choose another path"
            )
        os.unlink(path)
    except OSError as error:
        raise TransportError(f"cannot listen at {path}: {error.strerror}") from error


def allow_many_descriptors() -> None:
    """Raise this process's limit of open files to what it may have: each connection, link and bell takes some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

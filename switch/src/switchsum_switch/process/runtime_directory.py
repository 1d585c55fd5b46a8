"""Where a user's switch and controller listen unless they are told otherwise: Unix sockets in a directory of their own.

TCP, on the loopback too, lets every user connect, and so does a name in the abstract namespace.  A path is protected
by the modes of the directories above it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from switchsum_switch.errors import TransportError, Unusable

PROFILE_VARIABLE: Final = "SWITCHSUM_PROFILE"
"""Directory into which processes write what they did when; unset: none does."""
RUNTIME_VARIABLE: Final = "SWITCHSUM_RUNTIME_DIR"
"""Environment variable that names the directory of sockets, in place of /tmp/switchsum-UID."""
UNIX: Final = "unix:"
"""Beginning of gRPC's addresses of Unix sockets."""
MAX_PATH_BYTES: Final = 107
"""Longest path that fits the kernel's sockaddr_un."""


def controller_address() -> str:
    """Return where a controller listens and is looked for by default; raises Unusable."""
    return f"{UNIX}{runtime_directory()}/controller"


def p4runtime_address() -> str:
    """Return where a switch serves P4Runtime and is looked for by default; raises Unusable."""
    return f"{UNIX}{runtime_directory()}/p4runtime"


def aggregator_address() -> str:
    """Return where an aggregator serves P4Runtime by default; raises Unusable."""
    return f"{UNIX}{runtime_directory()}/aggregator"


def runtime_directory() -> Path:
    """Make and return the directory of this user's sockets, mode 0700; raises Unusable when there is none to trust.

    Not in $XDG_RUNTIME_DIR first: that one is taken away when its user logs out, which daemons may outlive, and shells
    of sudo, cron and batch systems do not know it.  It serves where another user has taken the name in /tmp.
    """
    reasons = []
    for directory in _candidates():
        try:
            directory.mkdir(mode=0o700, exist_ok=True)
            reason = distrust(directory)
        except OSError as error:
            reason = f"{directory}: {error.strerror}"
        if reason is None:
            return directory
        reasons.append(reason)
    raise Unusable(
        f"no directory can hold the sockets ({'; '.join(reasons)})", f"set {RUNTIME_VARIABLE} to another one"
    )


def _candidates() -> list[Path]:
    if chosen := os.environ.get(RUNTIME_VARIABLE):
        return [Path(chosen).absolute()]
    xdg = os.environ.get("XDG_RUNTIME_DIR", "")
    return [Path(f"/tmp/switchsum-{os.geteuid()}"), *([Path(xdg, "switchsum")] if os.path.isabs(xdg) else [])]


def distrust(directory: Path) -> str | None:
    """Return why other users could interfere with sockets in a directory, or None; raises OSError.

    The directory must be this user's own and closed to others, and nobody else may be able to replace it.
    """
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode):
        return f"{directory} is no directory"
    if status.st_uid != os.geteuid():
        return f"{directory} belongs to user {status.st_uid}"
    if status.st_mode & 0o077:
        return f"others may enter {directory}: `chmod 700 {directory}`"
    trusted = {os.geteuid(), os.stat("/").st_uid}  # the latter is root, whatever a user namespace calls it
    for parent in directory.resolve().parents:
        status = parent.stat()
        if status.st_uid not in trusted:
            return f"{parent} belongs to user {status.st_uid}"
        if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
            return f"others may write to {parent}"
    return None


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
            f"{path} is too long: the path of a Unix socket has at most {MAX_PATH_BYTES} bytes; "
            f"shorten TMPDIR, {RUNTIME_VARIABLE} or "
            "the option that gave the path"
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

"""Where compiled code is kept between runs: files with digests, in a directory that nobody else can have put code into.

What lies in the cache is run.  So every level of its path, from the root on, is looked at as ssh's StrictModes does: it
belongs to this user or to root and nobody else may write to it.  Each is opened below the one before, without following
links, and the last one is kept open: what is read later lies in the very directory that was looked at, whatever others
do to names above it in the meantime.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from switchsum_switch.notices import say

CACHE_VARIABLE: Final = "SWITCHSUM_CACHE_DIR"
"""Environment variable that names the directory, in place of `$XDG_CACHE_HOME/switchsum` or `~/.cache/switchsum`."""
SPARE_BYTES: Final = 64 << 20
"""A disk with fewer free bytes is passed over, unless there is no other place."""

_DIGEST_BYTES: Final = 32
_OTHERS_WRITE: Final = 0o022
_FOLDER: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""How a level is opened. A directory that can be entered but not listed is acceptable."""


class Store:
    """Files in one directory that is held open; each begins with a digest of the rest.

    A file with any fault counts as missing.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        """Take over the descriptor of a directory that was looked at; `path` is what messages call it."""
        self.path = path
        self.descriptor = descriptor
        self.is_warned = False
        """Whether a line has said that nothing can be written here."""

    def __del__(self) -> None:
        """Close the directory."""
        with contextlib.suppress(OSError):
            os.close(self.descriptor)

    def load(self, name: str) -> bytes | None:
        """Return what was stored under a name; None where there is nothing, or it is damaged or somebody else's."""
        try:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=self.descriptor)
        except OSError:
            return None
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode) or _fault(status) is not None:
                return None
            with open(file, "rb", closefd=False) as reader:
                data = reader.read()
            with contextlib.suppress(OSError):  # says when it was used last
                os.utime(file)
        except OSError:
            return None
        finally:
            os.close(file)
        digest, content = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        return content if hashlib.sha256(content).digest() == digest else None


def open_store(*parts: str) -> Store | None:
    """Open the directory `parts` below the cache, made where it is missing; None when there is no safe place.

    The temporary directory serves where the home cannot be used or its disk is full.
    """
    full = None
    for root in candidates():
        try:
            store = open_below(root, parts)
        except (OSError, RuntimeError):  # not there, read-only, or not safe: `refusals` says why
            continue
        space = os.fstatvfs(store.descriptor)
        if space.f_bavail * space.f_frsize >= SPARE_BYTES:
            return store
        full = full or store
    return full


def candidates() -> Iterator[Path]:
    """Yield where the cache may be, the best place first."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        yield Path(chosen).absolute()
    else:
        xdg, home = os.environ.get("XDG_CACHE_HOME", ""), os.path.expanduser("~")
        if os.path.isabs(xdg):
            yield Path(xdg, "switchsum")
        elif os.path.isabs(home):
            yield Path(home, ".cache", "switchsum")
    try:
        temporary = tempfile.gettempdir()
    except OSError:  # nothing can be written anywhere
        return
    yield Path(temporary, f"switchsum-cache-{os.geteuid()}")


def open_directory(path: Path) -> Store:
    """Open a directory that is not the cache; raises OSError, as where others could have put code into it."""
    return open_below(path.absolute(), ())


def open_below(root: Path, parts: tuple[str, ...]) -> Store:
    """Open a directory below `root`; raises OSError, PermissionError where others could have put something there.

    Links above the root are followed first: what is looked at is the path without them.
    """
    path = Path(os.path.realpath(root.parent), root.name, *parts)
    private = 1 + len(parts)
    descriptor = os.open("/", _FOLDER)
    try:
        _check(descriptor, "/", private=False)
        names = path.parts[1:]
        for number, name in enumerate(names):
            try:
                below = os.open(name, _FOLDER, dir_fd=descriptor)
            except FileNotFoundError:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=descriptor)
                below = os.open(name, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
            _check(descriptor, os.path.join("/", *names[: number + 1]), private=number >= len(names) - private)
        if not os.access(".", os.W_OK, dir_fd=descriptor, effective_ids=True):
            raise PermissionError(f"{path} cannot be written")
        return Store(path, os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=descriptor))
    finally:
        os.close(descriptor)


def _check(descriptor: int, path: str, *, private: bool) -> None:
    """Raise PermissionError if others could have put a directory's contents there; `private`: it must be our own.

    In a sticky directory of root's, such as /tmp, others can create files but cannot rename or remove ours.
    """
    status = os.fstat(descriptor)
    if private and status.st_uid != os.geteuid():
        raise PermissionError(f"{path} belongs to another user ({status.st_uid})")
    fault = _fault(status)
    if fault is not None and not (not private and status.st_mode & stat.S_ISVTX and _is_trusted(status.st_uid)):
        raise PermissionError(f"{path} {fault}")


def _fault(status: os.stat_result) -> str | None:
    """Say who else could have written a file or directory."""
    if not _is_trusted(status.st_uid):
        return f"belongs to another user ({status.st_uid})"
    if status.st_mode & _OTHERS_WRITE:
        return f"may be written by others (mode {stat.S_IMODE(status.st_mode):04o})"
    return None


def _is_trusted(owner: int) -> bool:
    return owner in (0, os.geteuid()) or owner == _unmapped_root()


def _unmapped_root() -> int | None:
    """Return the owner that root's files show in a user namespace of this user alone, as `unshare -r` makes.

    Other users' files show the same owner.  That is safe: other users have no files below an ordinary user's home.
    """
    try:
        mapped = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
        overflow = int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):
        return None
    return overflow if sum(int(count) for _, _, count in mapped) == 1 else None


def has(store: Store, prefix: str) -> bool:
    """Return whether anything is stored under a name with this beginning."""
    with contextlib.suppress(OSError):
        return any(name.startswith(prefix) for name in os.listdir(store.descriptor))
    return False


def keep(store: Store, name: str, content: bytes) -> bool:
    """Keep `content` under a name; readers see all of it or nothing.  If it fails: False, and one warning."""
    part = f".{name}.{os.getpid()}.{os.urandom(4).hex()}"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(part, flags, 0o600, dir_fd=store.descriptor)
        try:
            with open(file, "wb") as writer:
                writer.write(hashlib.sha256(content).digest() + content)
            os.replace(part, name, src_dir_fd=store.descriptor, dst_dir_fd=store.descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(part, dir_fd=store.descriptor)
            raise
    except OSError as error:
        if not store.is_warned:
            store.is_warned = True
            say(
                f"compiled code is not kept, because of {store.path}: {error.strerror} (set "
                f"{CACHE_VARIABLE} to another place)"
            )
        return False
    return True


def prune(store: Store, suffix: str, most: int) -> None:
    """Keep the `most` files with a suffix that were used last."""
    with contextlib.suppress(OSError):
        used = {}
        for name in os.listdir(store.descriptor):
            if name.endswith(suffix):
                used[name] = os.stat(name, dir_fd=store.descriptor, follow_symlinks=False).st_mtime_ns
        for name in sorted(used, key=used.__getitem__)[:-most]:
            os.unlink(name, dir_fd=store.descriptor)


def refusals() -> list[str]:
    """Say for each place before the one in use why it is passed over."""
    found = []
    for root in candidates():
        try:
            open_below(root, ())
        except (OSError, RuntimeError) as error:
            found.append(f"{root}: {error.strerror if isinstance(error, OSError) and error.strerror else error}")
        else:
            break
    return found

"""How compiled code gets into the cache (cache.py) and is taken out of it, for those that compile."""

from __future__ import annotations

import contextlib
import hashlib
import os

from .cache import CACHE_VARIABLE, Store, candidates, open_below, say


def has(store: Store, prefix: str) -> bool:
    """Return whether anything is stored under a name that begins so."""
    with contextlib.suppress(OSError):
        return any(name.startswith(prefix) for name in os.listdir(store.descriptor))
    return False


def keep(store: Store, name: str, content: bytes) -> bool:
    """Keep `content` under a name, where readers see all of it or nothing; False, and one warning, if not."""
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
            say(f"compiled code is not kept: {store.path}: {error.strerror} ({CACHE_VARIABLE} names another place)")
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

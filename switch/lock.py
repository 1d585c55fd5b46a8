"""The lock around a program's state."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock, RLock


class StateLock:
    """A reentrant lock whose holder is told when somebody else wants it.

    The data plane keeps it while it moves frames, and while it sleeps in between.
    """

    def __init__(self) -> None:
        self.make_way: Callable[[], object] = bool
        """Called, from any thread, to have the data plane release the lock soon."""
        self._lock = RLock()
        self._guard = Lock()
        self._waiting = 0

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for it."""
        return self._waiting > 0

    def __enter__(self) -> StateLock:
        if self._lock.acquire(blocking=False):
            return self
        with self._guard:
            self._waiting += 1
        try:
            self.make_way()
            self._lock.acquire()
        finally:
            with self._guard:
                self._waiting -= 1
        return self

    def __exit__(self, *exception: object) -> None:
        self._lock.release()

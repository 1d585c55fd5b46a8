"""The lock around a program's state."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock, RLock


class StateLock:
    """A reentrant lock that tells its holder when another thread wants it.

    The data plane holds the lock while it moves frames, and also while it sleeps between batches, since all of that is
    one call of a kernel (`loop.py`).  A control-plane thread that wants the lock therefore calls `make_way`, which
    wakes the data plane and makes it release the lock.
    """

    def __init__(self) -> None:
        self.make_way: Callable[[], object] = bool
        """Makes the data plane release the lock soon; any thread may call it."""
        self._lock = RLock()
        self._guard = Lock()
        self._waiting = 0

    @property
    def is_wanted(self) -> bool:
        """Whether a thread waits for the lock."""
        return self._waiting > 0

    def __enter__(self) -> StateLock:
        if self._lock.acquire(blocking=False):
            return self
        # The order matters: the data plane looks at `_waiting` after it has been woken.
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

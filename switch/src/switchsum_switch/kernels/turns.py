"""One process compiles what all of a user's workers need, and one what switches do; the others wait, and all say so.

Whoever compiles holds a lock beside the code and touches it every moment.  A process that was stopped does not: then
the others compile for themselves.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from ..notices import say
from .cache import CACHE_VARIABLE, Store

SILENT_S: Final = 3.0
"""Seconds of compiling that need no message."""
TICK_S: Final = 1.0
"""Seconds between two messages of a compiling process to the launcher, between two lines on a terminal, and between
two touches of the lock.
"""
STALE_S: Final = 10.0
"""Nobody waits for a process that has not touched the lock for so long: ten touches, for machines may be busy."""
LOOK_S: Final = 0.05
WORKERS: Final = "host."
"""Beginning of the names of kernels that only workers run."""


class Backoff:
    """When a line about one wait is due: after 3, 6, 12, 24 s and so on, so that the log of many processes is short."""

    def __init__(self) -> None:
        self._due_s = SILENT_S

    def is_due(self, spent_s: float, *, often: bool = False) -> bool:
        """Return whether to say something after so many seconds; with `often` at each call, once the wait is long."""
        if spent_s < self._due_s:
            return often and self._due_s > SILENT_S
        while self._due_s <= spent_s:
            self._due_s *= 2
        return True


class _Turn:
    """The right to compile, which a process has from its first `begin` to `close`."""

    def __init__(self) -> None:
        self.guard = threading.RLock()
        self.depth = 0
        self.together = 0
        self._held: contextlib.ExitStack | None = None
        self._name = ""
        self.done = 0
        self._spent_s = 0.0
        self._is_said = False
        self._backoff = Backoff()
        self.listener: Callable[[str], object] = bool

    def tell(self, text: str, *, aloud: bool = True) -> None:
        """Report progress to the launcher, and on standard error too if `aloud`."""
        if aloud:
            say(text)
        self.listener(text)

    def begin(self, store: Store | None, name: str) -> None:
        self._name = name
        if self._held is not None:
            return
        with contextlib.ExitStack() as opening:  # an exception of a signal handler's may come at each of these lines
            lock, over, began = opening.enter_context(_held(store, name)), threading.Event(), time.monotonic()
            ticker = threading.Thread(target=self._tick, args=(over, lock, began), daemon=True)
            opening.callback(self._end, over, ticker, began)
            ticker.start()
            self._held = opening.pop_all()

    def close(self) -> None:
        """Let others have their turn, unless there is more to do."""
        if self._held is not None and not self.depth and not self.together:
            held, self._held = self._held, None
            held.close()

    def _end(self, over: threading.Event, ticker: threading.Thread, began: float) -> None:
        over.set()
        if ticker.ident is not None:
            ticker.join()
        self._spent_s += time.monotonic() - began

    def _tick(self, over: threading.Event, lock: int | None, began: float) -> None:
        """Touch the lock and report progress until compiling is over."""
        while True:
            if lock is not None:
                with contextlib.suppress(OSError):
                    os.utime(lock)
            if over.wait(TICK_S):
                return
            spent_s = self._spent_s + time.monotonic() - began
            if self.depth and spent_s >= SILENT_S:
                if not self._is_said:
                    self._is_said = True
                    _introduce()
                aloud = self._backoff.is_due(spent_s, often=_has_terminal())
                self.tell(f"compiling: {self.done} done in {spent_s:.0f} s, now {self._name}", aloud=aloud)


_turn = _Turn()


@contextlib.contextmanager
def compiling(store: Store | None, name: str) -> Iterator[None]:
    """Compile `name` while this is open: no other process that keeps to the lock does so, and progress is shown."""
    with _turn.guard:
        depth = _turn.depth
        try:
            _turn.depth = depth + 1
            _turn.begin(store, name)
            yield
        finally:
            _turn.depth = depth  # not one less: whether it had become one more, an interrupt leaves open
            _turn.done += 1
            _turn.close()


def tell_too(listener: Callable[[str], object]) -> None:
    """Have `listener` called, on any thread, with each line that says how compiling goes."""
    _turn.listener = listener


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Go on compiling, once something has to be, until this is closed: the others would do the rest half over again."""
    with _turn.guard:
        before = _turn.together
        try:
            _turn.together = before + 1
            yield
        finally:
            _turn.together = before
            _turn.close()


@contextlib.contextmanager
def _held(store: Store | None, name: str) -> Iterator[int | None]:
    """Hold the lock, or nothing where the lock cannot be had; gives its descriptor, or None.

    There are two locks: one if `name` is a kernel of workers, and one for all other kernels.  Switch and workers share
    nearly no kernels.
    """
    file = "workers.lock" if name.startswith(WORKERS) else "lock"
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = None if store is None else os.open(file, flags, 0o600, dir_fd=store.descriptor)
    except OSError:
        lock = None
    if lock is None:
        yield None
        return
    try:
        yield lock if _acquired(lock) else None
    finally:
        os.close(lock)


def _acquired(lock: int) -> bool:
    """Wait for the lock for as long as its holder makes progress."""
    began = moved = last_said = time.monotonic()
    backoff = Backoff()
    seen = os.fstat(lock).st_mtime_ns
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        except OSError:  # a file system without locks
            return False
        else:
            return True
        now = time.monotonic()
        touched = os.fstat(lock).st_mtime_ns
        if touched != seen:
            seen, moved = touched, now
        if now - moved > STALE_S:
            say("the process that compiles for all has stopped; this one compiles for itself")
            return False
        if now - began >= SILENT_S and now - last_said >= TICK_S:
            last_said, aloud = now, backoff.is_due(now - began)
            _turn.tell(f"waiting for another process, which compiles ({now - began:.0f} s)", aloud=aloud)
        time.sleep(LOOK_S)


def _has_terminal() -> bool:
    """Return whether standard error is a terminal, where a line each second hides nothing else."""
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False


def _introduce() -> None:
    """Say what is being compiled."""
    say("compiling for this machine, once: later starts load it (`switchsum warm` does all of it beforehand)")
    user = os.environ.get("SUDO_USER", "")
    if user and os.geteuid() == 0:
        say(f"root compiles its own code, because it does not run {user}'s ({CACHE_VARIABLE} names where code is kept)")

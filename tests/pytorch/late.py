"""A stand-in for a GPU whose streams do nothing until somebody waits for them: it shows each wait that is missing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch


class Stream:
    """Does what it is given, in order, as far as a mark, when the mark is waited for."""

    def __init__(self, lock: Any) -> None:
        self._doing, self._giving = lock, threading.Lock()
        self._todo: list[Callable[[], object]] = []
        self._given = self._done = 0

    def give(self, work: Callable[[], object]) -> Mark:
        """Take a piece of work, and return the mark behind it."""
        with self._giving:
            self._todo.append(work)
            self._given += 1
            return Mark(self, self._given)

    def mark(self) -> Mark:
        """Return the mark behind everything that was given so far."""
        return Mark(self, self._given)

    def come_to(self, position: int) -> None:
        """Do the work before a mark."""
        with self._doing:
            while self._done < position:
                self._done += 1
                self._todo.pop(0)()


class Mark:
    """A point in a stream."""

    def __init__(self, stream: Stream, position: int) -> None:
        self._stream, self._position = stream, position

    def synchronize(self) -> None:
        """Have the stream come to it."""
        self._stream.come_to(self._position)


class LateDevice:
    """A rank's device: see `switchsum.torch.staging.Device`."""

    def __init__(self) -> None:
        lock = threading.RLock()
        self.stream, self._down, self._up = Stream(lock), Stream(lock), Stream(lock)
        self.ups = self.downs = 0
        self.given: list[torch.Tensor] = []

    def pinned(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return memory that holds what nobody asked for."""
        return torch.full(shape, 77, dtype=dtype)

    def now(self) -> Mark:
        """Mark what the caller's stream was given."""
        return self.stream.mark()

    def down(self, copies: Callable[[], object], after: Mark) -> Mark:
        """Copy down when the mark is waited for."""
        self.downs += 1
        return self._after(self._down, copies, after)

    def up(self, copies: Callable[[], object], after: Mark) -> Mark:
        """Copy up when the mark is waited for."""
        self.ups += 1
        return self._after(self._up, copies, after)

    def give(self, tensor: torch.Tensor, marked: Mark) -> None:
        """Note memory that is the caller's now."""
        self.given.append(tensor)

    @staticmethod
    def _after(stream: Stream, copies: Callable[[], object], after: Mark) -> Mark:
        stream.give(after.synchronize)
        return stream.give(copies)

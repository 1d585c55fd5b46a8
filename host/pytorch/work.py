"""Collectives under way, as c10d sees them: work objects, and the thread that completes their futures."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.futures import Future

from switchsum.host.handle import Handle

NO_TIMEOUT = timedelta(0)


class SwitchWork(dist.Work):
    """Collectives that were begun together; c10d waits for it, or for its future.

    The group's time-out decides when a collective has failed, so that all ranks agree on it; `wait` knows no other.
    """

    def __init__(self, handles: Sequence[Handle], tensors: list[torch.Tensor], finish: Callable[[], object]) -> None:
        super().__init__()
        self._handles = handles
        self._tensors = tensors
        self._finish = finish
        self._lock = threading.Lock()
        self._done = False
        self._error: Exception | None = None
        self._ended: Future[None] | None = None
        self._future: Future[list[torch.Tensor]] | None = None

    def complete(self) -> None:
        """Wait for the results and put them where they belong; once, whichever thread comes first."""
        with self._lock:
            if self._done:
                return
            try:
                for handle in self._handles:
                    handle.wait()
                self._finish()
            except Exception as error:
                self._error = error
            self._done = True
            ended = self._ended
        if ended is not None:
            ended.set_result(None)

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Return True once the results are there; raises what the collective failed with, every time."""
        self.complete()
        if self._error is not None:
            raise self._error.with_traceback(None)
        return True

    def get_future(self) -> Future[list[torch.Tensor]]:
        """Return a future of the tensors with the results."""
        with self._lock:
            if self._future is None:
                self._ended = Future()
                # An exception that is set on a future is a mere value to C++; one that a callback raises is an error.
                self._future = self._ended.then(self._outcome)
                if self._done:
                    self._ended.set_result(None)
            return self._future

    def _outcome(self, _: Any) -> list[torch.Tensor]:
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self._tensors

    def is_completed(self) -> bool:
        """Whether `wait` would return, or raise, at once."""
        return self._done or all(handle.is_done for handle in self._handles)

    def is_success(self) -> bool:
        """Whether the results are there."""
        return self._done and self._error is None

    def exception(self) -> Exception | None:
        """Return what the collective failed with."""
        return self._error

    def result(self) -> list[torch.Tensor]:
        """Return the tensors with the results."""
        self.wait()
        return self._tensors

    def synchronize(self) -> None:
        """Wait, as `wait` does."""
        self.wait()


class Completer:
    """A thread that completes the work whose collectives have ended, so that futures need nobody who waits."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[SwitchWork | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def watch(self, work: SwitchWork, last: Handle) -> None:
        """Complete `work` when its last collective has ended."""
        last.add_done_callback(lambda _: self._queue.put(work))

    def stop(self) -> None:
        """Complete what has ended, and end the thread."""
        self._queue.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            work.complete()
            del work  # its tensors are not kept while there is nothing to do

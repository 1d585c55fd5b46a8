"""Collectives under way, as c10d sees them: work objects, and the thread that completes their futures."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.futures import Future

from switchsum.host.handle import Handle
from switchsum.host.pytorch.graphs import kept_out_of_graphs

NO_TIMEOUT: Final = timedelta(0)
RELIEF_S: Final = 0.05
"""How long callbacks may keep the works behind theirs from being completed."""
STOP_S: Final = 5.0
"""How long callbacks that are running may keep a group from ending."""


@kept_out_of_graphs
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
        self.completer: Completer | None = None
        """Who completes it when nobody waits."""
        self.has_ended = False
        """Whether its collectives have ended; the completer's."""
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
        """Return a future of the tensors with the results.

        In a callback of another future it is complete already: the callback is likely to wait for it, on the very
        thread that completes futures, and C++ gives no notice of that.
        """
        if self.completer is not None and self.completer.is_own_thread():
            self.complete()
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
        """Whether the tensors hold the results, or the collective has failed."""
        if not self._done and all(handle.is_done for handle in self._handles):
            self.complete()
        return self._done

    @property
    def has_future(self) -> bool:
        """Whether callbacks may run when it is completed."""
        return self._ended is not None

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
    """Completes works whose collectives have ended, so that futures need no thread that waits for them.

    Works are completed in the order in which they were begun, one by one: what is chained to a future may begin
    further collectives, and these must come in the same order on all ranks.  A callback that waits for what comes after
    it would wait for ever; so another thread goes on when one has not come back from its callbacks for RELIEF_S.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._turn = threading.Condition()
        self._works: deque[SwitchWork] = deque()
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._busy_since: float | None = None
        """When the thread whose turn it is began with its work; None: it is the next one's turn."""
        self._holder: object = None
        self._is_stopped = False
        self._spawn()

    def watch(self, work: SwitchWork, last: Handle) -> None:
        """Complete `work` when its last collective has ended."""
        work.completer = self
        with self._turn:
            self._works.append(work)
        last.add_done_callback(lambda _: self._notify(work))

    def is_own_thread(self) -> bool:
        """Whether the caller is a callback of a future that this completer has completed."""
        return threading.current_thread() in self._threads

    def stop(self) -> None:
        """Complete what has ended, and end the threads."""
        with self._turn:
            self._is_stopped = True
            self._turn.notify_all()
            threads = [thread for thread in self._threads if thread is not threading.current_thread()]
        deadline = time.monotonic() + STOP_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _notify(self, work: SwitchWork) -> None:
        with self._turn:
            work.has_ended = True
            self._turn.notify()

    def _spawn(self) -> None:
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._threads.add(thread)
        thread.start()

    def _run(self) -> None:
        while (work := self._take()) is not None:
            work.complete()
            with self._turn:
                if self._holder is work:  # else another thread has gone on meanwhile
                    self._holder, self._busy_since = None, None
                    self._turn.notify()
            del work  # its tensors are not kept while there is nothing to do
        self._threads.discard(threading.current_thread())

    def _take(self) -> SwitchWork | None:
        """Wait for a turn; return the work that has ended, or None when there will be no more."""
        with self._turn:
            self._idle += 1
            try:
                while (patience_s := self._patience_s()) != 0:
                    if self._is_stopped and not (self._works and self._works[0].has_ended):
                        return None
                    self._turn.wait(patience_s)
                work = self._works.popleft()
                self._holder, self._busy_since = work, time.monotonic()
            finally:
                self._idle -= 1
            if self._idle == 0 and work.has_future:
                self._spawn()  # there must be one to go on if this work's callbacks do not come back
            return work

    def _patience_s(self) -> float | None:
        """Return for how long the first work must wait for its turn, 0 if not at all, None if it has not ended."""
        if not self._works or not self._works[0].has_ended:
            return None
        if self._busy_since is None:
            return 0
        return max(0.0, self._busy_since + RELIEF_S - time.monotonic())

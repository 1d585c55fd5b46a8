"""The thread that completes works, and with them their futures, in the order in which they were begun."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from switchsum_host.api.operation_queue import Handle

RELIEF_S: Final = 0.05
"""Seconds that callbacks may delay the completion of later works."""
STOP_S: Final = 5.0
"""Seconds that running callbacks may delay the end of a group."""
MOST_OF_ONE_VALUE: Final = 64
"""Works of one value that are kept, the latest ones: more than a step begins before its backward pass."""
_callbacks_of = threading.local()
"""Thread-local: the `completer` to which this thread's callbacks belong."""


class Completable(Protocol):
    """The methods of a work that a completer calls."""

    completer: Completer | None
    number: int
    """Number of works of the group that were begun before it."""
    has_ended: bool
    """True: its collectives have ended."""
    backward_is_over: threading.Event
    """Set when no collective of the backward pass is to come that its future was asked for in."""
    is_chained: threading.Event
    """Set when the caller that asked for the future in a backward pass has chained its callbacks."""

    @property
    def is_done(self) -> bool:
        """Whether the results are where they belong, or the collective has failed."""

    @property
    def is_of_one_value(self) -> bool:
        """Whether keeping it costs nothing."""

    @property
    def future_has_value(self) -> bool:
        """Whether there is no future that waits for its value."""

    @property
    def is_asked(self) -> bool:
        """Whether there is a future."""

    @property
    def has_future(self) -> bool:
        """Whether callbacks may run when it is completed."""

    def complete(self, is_patient: Callable[[], bool] = ...) -> None:
        """Wait for the results and put them where they belong; once, whichever thread comes first."""

    def tell(self) -> None:
        """Give the future its value, which runs what is chained to it."""


def keep_order() -> None:
    """Call before a collective is begun: in a callback it waits until what must come first on all ranks has begun."""
    completer: Completer | None = getattr(_callbacks_of, "completer", None)
    if completer is not None:
        completer.keep_order()


class Completer:
    """Completes works whose collectives have ended, so that futures need no thread that waits for them.

    Works are completed one by one, in the order in which they were begun.  A callback that is chained to a future may
    begin further collectives, and ranks' collectives are matched by their order.  So callbacks must run in the same
    order on all ranks.

    A callback that waits for a later work would wait for ever.  So another thread goes on when a callback has not come
    back for RELIEF_S.  The first thread may wait, or may only lack a processor: nobody can tell.  So callbacks on the
    other thread may do everything but begin collectives: `keep_order` lets them wait until the earlier callbacks have
    come back.  For the same reason the callbacks of a backward pass wait for its end, when the last of its own
    collectives has begun.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._pid = os.getpid()
        self._turn = threading.Condition()
        self._works: deque[Completable] = deque()
        self._begun = 0
        self._of_one_value: deque[Completable] = deque(maxlen=MOST_OF_ONE_VALUE)
        """Works that C++ may still hold: they are kept here, because C++ keeps no Python object alive.
        DistributedDataParallel holds such works in a join.
        """
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._running: dict[threading.Thread, Completable] = {}
        """Works whose callbacks have not come back, in the order of the works."""
        self._latest_since = 0.0
        """Time at which the latest of them was taken."""
        self.is_stopped = False
        self._spawn()

    def watch(self, work: Completable, last: Handle) -> None:
        """Complete `work` when its last collective has ended."""
        with self._turn:
            if work.completer is None:  # else a signal handler has interrupted this, and it is called again
                self._works.append(work)
                if work.is_of_one_value:
                    self._of_one_value.append(work)
                work.completer, work.number = self, self._begun
                self._begun += 1
                if not self.is_own_thread():
                    for earlier in (*self._works, *self._running.values()):
                        earlier.is_chained.set()
        last.add_done_callback(lambda _: self._notify(work))

    def keeps_turn(self, work: Completable) -> bool:
        """Whether callbacks of a work that is done must wait for a backward pass or for callbacks of earlier works."""
        if not work.is_chained.is_set():
            return True
        with self._turn:
            return not self.is_own_thread() and self._has_earlier(work, lambda one: one.is_asked)

    def tell_in_turn(self, work: Completable) -> None:
        """Tell a work's future, which was asked for when its turn had come already."""
        with self._turn:
            if work not in self._works and work not in self._running.values():
                self._works.append(work)
                self._works = deque(sorted(self._works, key=lambda one: one.number))
                self._turn.notify_all()

    def keep_order(self) -> None:
        """Wait, in a callback that is about to begin a collective, until those that must come before it have begun."""
        work = self.running_here()
        if work is None:
            return
        while not self.is_stopped and not work.backward_is_over.wait(RELIEF_S):
            pass
        with self._turn:
            while not self.is_stopped and self._has_earlier(work):
                self._turn.wait()

    def _has_earlier(self, work: Completable, counts: Callable[[Completable], bool] = lambda _: True) -> bool:
        return any(one.number < work.number and counts(one) for one in (*self._running.values(), *self._works))

    def running_here(self) -> Completable | None:
        """Return the work whose callbacks run on the caller's thread."""
        with self._turn:
            return self._running.get(threading.current_thread())

    def is_own_thread(self) -> bool:
        """Return whether the caller is a callback of a future that this completer has completed."""
        return getattr(_callbacks_of, "completer", None) is self

    def stop(self) -> None:
        """Complete what has ended, and end the threads; does nothing in a forked child, which has none of them.

        One of them may have held the lock there when the child was forked.
        """
        if os.getpid() != self._pid:
            return
        with self._turn:
            self.is_stopped = True
            self._turn.notify_all()
            threads = [thread for thread in self._threads if thread is not threading.current_thread()]
        deadline = time.monotonic() + STOP_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _notify(self, work: Completable) -> None:
        with self._turn:
            work.has_ended = True
            self._turn.notify_all()

    def _spawn(self) -> None:
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._threads.add(thread)
        thread.start()

    def _run(self) -> None:
        _callbacks_of.completer = self
        while (work := self._take()) is not None:
            while True:
                work.complete(functools.partial(self._waits_for, work))
                with self._turn:
                    if self._idle == 0 and work.has_future:
                        self._spawn()  # there must be one to go on if this work's callbacks do not come back
                if work.is_done:  # else another thread has its lock, and may wait for what comes after it
                    work.is_chained.wait(RELIEF_S)
                    work.tell()
                with self._turn:
                    # Else its future was asked for just now; where one is asked for later, `tell_in_turn` is called.
                    if work.future_has_value or (self.is_stopped and not work.is_done):
                        del self._running[threading.current_thread()]
                        self._turn.notify_all()
                        break
            del work  # its tensors are not kept while there is nothing to do
        self._threads.discard(threading.current_thread())

    def _waits_for(self, work: Completable) -> bool:
        """Return whether to wait for another thread that completes a work: only callbacks must be kept in order.

        That thread may be in a signal handler which waits for what comes after it, or which stops this.
        """
        return work.has_future and not self.is_stopped

    def _take(self) -> Completable | None:
        """Wait for a turn; return the work that has ended, or None when there will be no more."""
        with self._turn:
            self._idle += 1
            try:
                while (patience_s := self._patience_s()) != 0:
                    if self.is_stopped and not (self._works and self._works[0].has_ended):
                        return None
                    self._turn.wait(patience_s)
                work = self._works.popleft()
                self._running[threading.current_thread()], self._latest_since = work, time.monotonic()
            finally:
                self._idle -= 1
            return work

    def _patience_s(self) -> float | None:
        """Return for how long the first work must wait for its turn, 0 if not at all, None if it has not ended."""
        if not self._works or not self._works[0].has_ended:
            return None
        if not self._running:
            return 0
        return max(0.0, self._latest_since + RELIEF_S - time.monotonic())

"""Ctrl-C waits for the end of what is driven.

The other ranks wait for a collective that this rank has begun.  So while the main thread drives one, SIGINT only asks
for an end, and KeyboardInterrupt is raised when the collective has ended.  It is raised at once where nothing is
driven, `HOLD_BACK_S` after it was asked for, and when it is asked for a second time: then the communicator is broken.

This holds where Python's own handler was in place when `connect` was called in the main thread.
"""

from __future__ import annotations

import signal
import threading
import time
import weakref
from types import FrameType
from typing import Final, Protocol

HOLD_BACK_S: Final = 2.0
"""How long KeyboardInterrupt waits for a collective to end."""


class Driven(Protocol):
    """What a thread may be in the midst of."""

    interrupts: Interrupts

    def is_driven_by(self, thread: int) -> bool:
        """Whether this thread is."""
        ...


class Interrupts:
    """Whether somebody has pressed Ctrl-C while a queue was driven."""

    def __init__(self) -> None:
        self.is_asked_for = False
        self._due_s = 0.0

    def ask(self) -> None:
        """Note a KeyboardInterrupt; raises it the second time.

        It stays noted then, and due: what is raised where native code calls back may be lost.
        """
        if self.is_asked_for:
            self._due_s = 0.0
            raise KeyboardInterrupt
        self._due_s = time.monotonic() + HOLD_BACK_S
        self.is_asked_for = True

    def check(self) -> None:
        """Raise what was asked for, if it cannot wait any longer."""
        if time.monotonic() >= self._due_s:
            self.raise_now()

    def raise_now(self) -> None:
        """Raise what was asked for."""
        self.is_asked_for = False
        raise KeyboardInterrupt

    def give_back(self) -> None:
        """Forget a queue that is closed; with the last one Python's own handler comes back."""
        for driven in list(_driven):
            if driven.interrupts is self:
                _driven.discard(driven)
        is_main = threading.current_thread() is threading.main_thread()
        if not _driven and is_main and signal.getsignal(signal.SIGINT) is _on_interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)


_driven: weakref.WeakSet[Driven] = weakref.WeakSet()


def defer_interrupts(driven: Driven) -> None:
    """Have Ctrl-C wait while this is driven, unless somebody else handles SIGINT, or this is not the main thread."""
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _on_interrupt)
    _driven.add(driven)


def _on_interrupt(number: int, frame: FrameType | None) -> None:
    main = threading.main_thread().ident or 0
    for driven in list(_driven):
        if driven.is_driven_by(main):
            driven.interrupts.ask()
            return
    signal.default_int_handler(number, frame)

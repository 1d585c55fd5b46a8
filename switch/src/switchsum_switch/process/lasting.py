"""A thread that lives as long as its process, and starts children for threads that do not.

The kernel kills a child with `--pdeathsig` when the *thread* that started it ends, and not the process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

Result = TypeVar("Result")
_making = threading.Lock()
_made: list[_Lasting] = []
"""The latest one."""


class _Lasting:
    """The thread, and what it is given to do."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._tasks: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
        # A daemon: it is waited for by nobody, so that it is there until handlers at the end of the program have run.
        threading.Thread(target=self._work, name="switchsum children", daemon=True).start()

    def call(self, function: Callable[[], Result]) -> Result:
        """Have it call a function; return or raise what that does."""
        answer: Future[Result] = Future()
        self._tasks.put((function, answer))
        return answer.result()

    def _work(self) -> None:
        while True:
            function, answer = self._tasks.get()
            try:
                answer.set_result(function())
            except BaseException as error:
                answer.set_exception(error)
            del function, answer


def on_lasting_thread(function: Callable[[], Result]) -> Result:
    """Call a function on the main thread if that is the caller's, else on the thread that lasts."""
    if threading.current_thread() is threading.main_thread():
        return function()
    with _making:
        if not _made or _made[-1].pid != os.getpid():  # a forked child has no threads but its own
            _made[:] = [_Lasting()]
        thread = _made[-1]
    return thread.call(function)

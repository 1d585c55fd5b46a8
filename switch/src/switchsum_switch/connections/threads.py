"""Threads that daemons cannot do without: one that cannot be started ends the daemon.

A limit of memory or processes may leave no room for another thread.  gRPC's server would log that and be deaf from then
on, while the daemon's main thread goes on and its clients wait.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Thread
from typing import Any, Final

from switchsum_switch.connections.quiet_grpc import grpc

NO_THREAD: Final = "can't start new thread"
"""Python's text for a thread that got no memory, or one too many for the user. It has no class of its own."""

Exhausted = Callable[[Exception], object]
"""Called on any thread with the error when there is no thread or memory left; ends the daemon, and must not block."""


def is_exhausted(error: BaseException) -> bool:
    """Return whether an error says that no thread could be started."""
    return isinstance(error, RuntimeError) and NO_THREAD in str(error)


def start(thread: Thread, exhausted: Exhausted) -> bool:
    """Start a thread; return False, after `exhausted` was called, if it could not be."""
    try:
        thread.start()
    except RuntimeError as error:
        if not is_exhausted(error):
            raise
        exhausted(error)
        return False
    return True


class Pool(ThreadPoolExecutor):
    """An executor for gRPC's server: a call that finds no thread, and can get none, fails after `exhausted`."""

    def __init__(self, most: int, name: str, exhausted: Exhausted) -> None:
        super().__init__(most, thread_name_prefix=name)
        self._exhausted = exhausted

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have a function called by one of the pool's threads; does not raise to gRPC, whose own thread would end."""
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError as error:
            if not is_exhausted(error):
                raise
            self._exhausted(error)
            failed: Future[Any] = Future()
            failed.set_exception(error)
            return failed


def start_server(server: grpc.Server) -> None:
    """Start a gRPC server, or raise RuntimeError where no thread can be started.

    A server whose own thread cannot be started waits for it in `stop` and in its destructor, without end.  So another
    thread is tried first; the C library keeps its stack for the next one.
    """
    trial = Thread(target=lambda: None)
    trial.start()
    trial.join()
    server.start()


def stop_server(server: grpc.Server, grace_s: float) -> None:
    """Stop a gRPC server: end calls that still run after `grace_s` seconds, or at once where no thread can wait."""
    try:
        ended = server.stop(grace_s)
    except RuntimeError as error:
        if not is_exhausted(error):
            raise
        ended = server.stop(None)
    ended.wait()

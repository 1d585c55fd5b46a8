"""Starts the `switchsum` commands that a job needs beside its workers, a switch or a controller, and waits for them.

It imports little: rank 0 of a PyTorch job starts both before it imports anything else of this package.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from switchsum_protocol.errors import LocalError
from switchsum_switch.process.children import OURSELVES, Child, Children
from switchsum_switch.process.ready import READY_FD, await_ready
from switchsum_switch.process.start_limit import start_limit

READY_S: Final = 600.0
"""How long switch and controller may take to start.  If one of them ends, that is seen at once.  To compile everything
takes half a minute of one core; two minutes were too short on a machine where twenty processes wanted that core."""


class Daemon:
    """A `switchsum` command that runs in the background; others may be started before it is ready."""

    def __init__(
        self, children: Children, name: str, command: Sequence[str], environment: Mapping[str, str] = os.environ
    ) -> None:
        """Start it; raises LocalError."""
        self._children, self._pipe = children, -1
        try:
            self.child: Child = self._start(name, command, environment)
        except OSError as error:
            raise LocalError(f"cannot start {name}: {error}") from error

    def _start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> Child:
        self._pipe, writing = os.pipe()
        try:
            return self._children.start(
                name,
                [*OURSELVES, *command],
                # Whoever steps through a worker in plain Python still wants a switch that is quick.
                environment={**environment, READY_FD: str(writing), "NUMBA_DISABLE_JIT": "0"},
                prefix=True,
                pass_fds=[writing],
            )
        except BaseException:
            self.let_go()
            raise
        finally:
            os.close(writing)

    def ready(self) -> dict[str, object]:
        """Wait until it says that it is ready, and return what it says; raises LocalError.  Called once."""
        try:
            return await_ready(self.child, self._pipe, start_limit(READY_S), self._children)
        finally:
            self.let_go()

    def let_go(self) -> None:
        """Close the pipe, also where nobody waits any more."""
        pipe, self._pipe = self._pipe, -1
        if pipe >= 0:
            os.close(pipe)


def daemon(
    children: Children,
    name: str,
    command: Sequence[str],
    meanwhile: Callable[[], object] = bool,
    environment: Mapping[str, str] = os.environ,
) -> tuple[Child, dict[str, object]]:
    """Start a `switchsum` command, call `meanwhile`, and wait until it is ready; raises LocalError."""
    one = Daemon(children, name, command, environment)
    try:
        meanwhile()
        return one.child, one.ready()
    finally:
        one.let_go()

"""The ranks' processes of a job in virtual time: they hand their calls to the launcher, and wait for the answers."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Final, Self

import numpy as np

from switchsum_protocol.errors import LocalError

from .member import late
from .seam import Array, statistics_of
from .virtual import VirtualRun

_LOOK_S: Final = 0.2
"""How often the launcher looks whether a process has failed."""


class _Rank:
    """A rank that has come."""

    def __init__(self, number: int, connection: Connection[Any, Any]) -> None:
        self.number, self.connection = number, connection
        self.call = ""
        """Call that it waits for. Empty: it runs."""
        self.array: Array = np.zeros(0, np.float32)
        self.until_s = 0.0
        """When a computation ends, or patience."""


class VirtualRanks:
    """Virtual time stands still while a rank's process runs, and passes while all ranks wait."""

    def __init__(self, run: VirtualRun, path: str, *, timeout_s: float) -> None:
        self._run, self._timeout_s = run, timeout_s
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(run.world.workers)
        self._ranks: dict[int, _Rank] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._listener.close()
        for rank in self._ranks.values():
            rank.connection.close()

    def serve(self, has_failed: Callable[[], bool]) -> None:
        """Let time pass until all ranks have ended; raises LocalError and what the protocol raises."""
        if not self._await_ranks(has_failed):
            return
        while self._ranks:
            while running := [rank for rank in self._ranks.values() if not rank.call]:
                ready = wait([rank.connection for rank in running], _LOOK_S)
                for rank in running:
                    if rank.connection in ready:
                        self._hear(rank)
                if not ready and has_failed():
                    return
            if self._ranks:
                self._pass_time()

    def _await_ranks(self, has_failed: Callable[[], bool]) -> bool:
        deadline, workers = time.monotonic() + self._timeout_s, self._run.world.workers
        while len(self._ranks) < workers:
            if wait([self._listener], _LOOK_S):
                connection: Connection[Any, Any] = Connection(self._listener.accept()[0].detach())
                number = int(connection.recv())
                self._ranks[number] = _Rank(number, connection)
            elif has_failed():
                return False
            elif time.monotonic() > deadline:
                raise LocalError(f"virtual time has not begun: {workers - len(self._ranks)} ranks have not joined")
        return True

    def _hear(self, rank: _Rank) -> None:
        """Take what a rank wants."""
        try:
            name, *arguments = rank.connection.recv()
        except (EOFError, OSError):
            name, arguments = "end", []
        network = self._run.network
        if name == "end":
            del self._ranks[rank.number]
        elif name == "statistics":
            own = self._run.hosts[rank.number]
            counts = statistics_of(self._run.peers[rank.number])
            rank.connection.send({**counts, "frames": own.frames, "bytes": own.bytes})
        elif name == "now":
            rank.connection.send(network.now)
        elif name == "compute":
            rank.call, rank.until_s = name, network.now + arguments[0]
        else:
            peer = self._run.peers[rank.number]
            rank.array = np.frombuffer(arguments[0], np.float32).copy()
            steps = peer.allreduce(rank.array) if name == "allreduce" else peer.barrier()
            rank.call, rank.until_s = name, network.now + self._timeout_s
            self._run.begin(rank.number, steps)

    def _pass_time(self) -> None:
        """Let time pass until a rank can go on, and tell it."""
        calling = [rank for rank in self._ranks.values() if rank.call != "compute"]
        until = min(rank.until_s for rank in self._ranks.values())
        if calling:
            self._run.run([rank.number for rank in calling], until, first=True)
        else:
            self._run.network.run(until)
        now = self._run.network.now
        for rank in list(self._ranks.values()):
            if rank.call != "compute" and self._run.hosts[rank.number].driver.is_done:
                self._answer(rank, rank.array.tobytes())
            elif rank.until_s <= now + 1e-12:
                is_late = rank.call != "compute"
                self._answer(rank, late(self._run.baseline.name, rank.call, self._timeout_s) if is_late else None)

    def _answer(self, rank: _Rank, answer: object) -> None:
        rank.call = ""
        try:
            rank.connection.send(answer)
        except OSError:  # it has ended: the next look finds that out
            pass

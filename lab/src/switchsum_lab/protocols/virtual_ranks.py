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


class _Call:
    """What a rank has begun."""

    def __init__(self, name: str, priority: int, array: Array) -> None:
        self.name, self.priority, self.array = name, priority, array
        self.is_done = False


class _Rank:
    """A rank that has come."""

    def __init__(self, number: int, connection: Connection[Any, Any]) -> None:
        self.number, self.connection = number, connection
        self.state = ""
        """`wait` or `compute`. Empty: it runs."""
        self.serial = 0
        """Number of the call that it waits for."""
        self.calls: dict[int, _Call] = {}
        """Calls whose results it has not got yet, by their numbers."""
        self.begun = 0
        self.under_way: int | None = None
        """Number of the call that the protocol carries out for it."""
        self.next = 0
        """Its place in the order of calls."""
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
        self._order: list[int] = []
        """Numbers of calls as the protocol takes them, the same on all ranks."""
        self._ordered: set[int] = set()

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
            while running := [rank for rank in self._ranks.values() if not rank.state]:
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
            rank.state, rank.until_s = name, network.now + arguments[0]
        elif name == "begin":
            rank.calls[rank.begun] = _Call(arguments[0], arguments[1], np.frombuffer(arguments[2], np.float32).copy())
            rank.begun += 1
        else:
            rank.state, rank.serial, rank.until_s = name, arguments[0], network.now + self._timeout_s

    def _begin_calls(self) -> None:
        """Have the protocol take the next call of each rank for which it has none."""
        for rank in sorted(self._ranks.values(), key=lambda rank: rank.number):
            if rank.under_way is not None:
                continue
            if rank.next == len(self._order) and (chosen := self._chosen(rank)) is not None:
                self._order.append(chosen)
                self._ordered.add(chosen)
            if rank.next < len(self._order) and (serial := self._order[rank.next]) in rank.calls:
                call, peer = rank.calls[serial], self._run.peers[rank.number]
                steps = peer.allreduce(call.array) if call.name == "allreduce" else peer.barrier()
                rank.under_way, rank.next = serial, rank.next + 1
                self._run.begin(rank.number, steps)

    def _chosen(self, rank: _Rank) -> int | None:
        """Return the call that goes next, for all ranks; None: this one has begun no other.

        A call that other ranks have not begun yet never overtakes: they may wait for an earlier one before they begin
        it.
        """
        open_calls = sorted(rank.calls.keys() - self._ordered)
        if not open_calls:
            return None
        begun = min(other.begun for other in self._ranks.values())
        of_all = [serial for serial in open_calls if serial < begun]
        return max(of_all, key=lambda serial: (rank.calls[serial].priority, -serial), default=open_calls[0])

    def _pass_time(self) -> None:
        """Let time pass until a rank can go on, and tell it."""
        if self._answer_ended():
            return
        self._begin_calls()
        calling = [rank for rank in self._ranks.values() if rank.under_way is not None]
        until = min(rank.until_s for rank in self._ranks.values())
        if calling:
            self._run.run([rank.number for rank in calling], until, first=True)
        else:
            self._run.network.run(until)
        now = self._run.network.now
        for rank in calling:
            if self._run.hosts[rank.number].driver.is_done and rank.under_way is not None:
                rank.calls[rank.under_way].is_done, rank.under_way = True, None
        self._answer_ended()
        for rank in list(self._ranks.values()):
            if rank.state and rank.until_s <= now + 1e-12:
                is_late = rank.state == "wait"
                name = rank.calls[rank.serial].name if is_late else ""
                self._answer(rank, late(self._run.baseline.name, name, self._timeout_s) if is_late else None)

    def _answer_ended(self) -> bool:
        """Answer the ranks that wait for calls that have ended; tell whether there were any."""
        ended = [one for one in self._ranks.values() if one.state == "wait" and one.calls[one.serial].is_done]
        for rank in ended:
            self._answer(rank, rank.calls.pop(rank.serial).array.tobytes())
        return bool(ended)

    def _answer(self, rank: _Rank, answer: object) -> None:
        rank.state = ""
        try:
            rank.connection.send(answer)
        except OSError:  # it has ended: the next look finds that out
            pass

"""Processes of the user's in virtual time: each rank's collectives run here, on the engine of its simulated host.

Virtual time stands still while any rank runs.  It moves when each one is blocked, in a collective or in `compute`, or
has ended; and then until the first of them can go on.  What ranks begin is handed to their engines in the order of
ranks, so that it does not matter which process was quicker.
"""

from __future__ import annotations

import mmap
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from switchsum_controller.jobs.late_calls import Calls
from switchsum_host.api.report import ended_calls
from switchsum_host.engine.engine import Failed, Finished, Outcome
from switchsum_host.engine.operation import Operation
from switchsum_host.links.virtual import Answer, AskCounts, Begin, Compute, End, Join, Joined, Wait
from switchsum_protocol.errors import LocalError, RankTaken, SwitchsumError, WorkerLost, WorldSizeMismatch
from switchsum_switch.notices import say

from .jobs import Job

NAMED_AFTER_S: Final = 10.0
"""A rank that has not come back for so long, by the wall clock, is named."""
HEARD_AFTER_S: Final = 1e-3
"""Seconds of virtual time after which others hear that a rank has ended. Frames on their way to them come first."""
_LOOK_S: Final = 0.2
_INSTANT_S: Final = 0.5e-12


class State(Enum):
    """What a rank does, as far as it has said."""

    RUNS = "runs"
    WAITS = "waits"
    COMPUTES = "computes"
    HAS_ENDED = "has ended"


@dataclass(slots=True)
class Rank:
    """One of the user's processes."""

    number: int
    connection: Connection[Any, Any]
    state: State = State.RUNS
    until_s: float = 0.0
    """When its wait, or its computation, is over at the latest; or when the others hear that it has ended."""
    has_failed: bool = False
    begun: int = 0
    begins: list[Begin] = field(default_factory=list)
    """Operations that it has begun since time stands still."""
    under_way: set[int] = field(default_factory=set)
    heard_at: float = field(default_factory=time.monotonic)
    last: str = "connect"
    is_named: bool = False
    files: dict[str, mmap.mmap] = field(default_factory=dict)
    reported: int = 0
    """Number of the first of its calls that was not yet compared with the others'."""


class Ranks:
    """The ranks of a job, each of which is a process that has connected to a socket in a folder."""

    def __init__(self, job: Job, folder: str, *, clock_factor: float = 0.0, timeout_s: float = 1800.0) -> None:
        """Listen; a rank that does not come back for `timeout_s`, by the wall clock, ends the run."""
        self._job, self._world = job, job.network.world
        self._folder, self._factor, self._timeout_s = folder, clock_factor, timeout_s
        self.path = f"{folder}/virtual"
        """Path of the socket."""
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen(len(job.workers))
        self._ranks: dict[int, Rank] = {}
        self.calls = Calls(len(job.workers))
        """Figures of late ranks."""

    def serve(self, has_failed: Callable[[], bool], has_ended: Callable[[int], bool]) -> None:
        """Let time pass until all ranks have ended.

        Args:
            has_failed: Tells whether the run is over anyway, for a process has failed; it is asked now and then.
            has_ended: Tells whether the process of a rank has ended, which may never have connected.

        Raises:
            LocalError: A rank does not come back.

        """
        try:
            is_complete = self._await_ranks(has_failed, has_ended)
            while is_complete and not has_failed() and self._hear(has_failed):
                self._begin_all()
                self._pass_time()
        finally:
            self._listener.close()
            for rank in self._ranks.values():
                rank.connection.close()

    # Joining.

    def _await_ranks(self, has_failed: Callable[[], bool], has_ended: Callable[[int], bool]) -> bool:
        """Wait until all ranks have come; False: they cannot any more."""
        size, began, is_named = len(self._job.workers), time.monotonic(), False
        while len(self._ranks) < size and not has_failed():
            if wait([self._listener], _LOOK_S):
                self._take(Connection(self._listener.accept()[0].detach()))
                continue
            missing = [rank for rank in range(size) if rank not in self._ranks]
            if gone := [rank for rank in missing if has_ended(rank)]:
                self._welcome(WorkerLost(f"rank {gone[0]} has ended and never called connect", gone[0]))
                return False
            waited = time.monotonic() - began
            if waited > NAMED_AFTER_S and not is_named:
                is_named = True
                say(f"virtual time has not begun: {_names(missing)} not called connect for {waited:.0f} s")
            if waited > self._timeout_s:
                raise LocalError(f"virtual time has not begun: {_names(missing)} not called connect")
        self._welcome(None)
        return len(self._ranks) == size

    def _take(self, connection: Connection[Any, Any]) -> None:
        """Take a rank in, or refuse it."""
        try:
            message = connection.recv()
        except (EOFError, OSError):
            return
        size = len(self._job.workers)
        error: SwitchsumError | None = None
        assert isinstance(message, Join)
        if message.world_size != size:
            error = WorldSizeMismatch(f"this run has {size} ranks, not {message.world_size}")
        elif not 0 <= message.rank < size or message.rank in self._ranks:
            error = RankTaken(f"rank {message.rank} of {size} has joined before, or is none")
        if error is None:
            self._ranks[message.rank] = Rank(message.rank, connection)
        else:
            connection.send(self._joined(error))

    def _welcome(self, error: SwitchsumError | None) -> None:
        for rank in self._ranks.values():
            with suppress(OSError):
                rank.connection.send(self._joined(error))
            rank.heard_at = time.monotonic()

    def _joined(self, error: SwitchsumError | None) -> Joined:
        engine = self._job.workers[0].engine
        return Joined(
            lanes_per_frame=engine.lanes_per_frame,
            timeout_s=engine.timeout_s,
            clock_factor=self._factor,
            folder=self._folder,
            error=error,
        )

    # While time stands still.

    def _hear(self, has_failed: Callable[[], bool]) -> bool:
        """Hear the ranks that run until each is blocked or has ended; False: there is none any more."""
        while running := [rank for rank in self._ranks.values() if rank.state is State.RUNS]:
            ready = wait([self._listener, *(rank.connection for rank in running)], _LOOK_S)
            if self._listener in ready:
                self._take(Connection(self._listener.accept()[0].detach()))  # one too many: it is refused
            for rank in running:
                if rank.connection in ready:
                    self._take_message(rank)
            if not ready:
                if has_failed():
                    return False
                self._name_absent(running)
        return any(rank.state is not State.HAS_ENDED for rank in self._ranks.values())

    def _take_message(self, rank: Rank) -> None:
        try:
            message = rank.connection.recv()
        except (EOFError, OSError):
            message = End(failed=True)
        rank.heard_at, rank.is_named = time.monotonic(), False
        if not isinstance(message, AskCounts):
            rank.last = _about(message)
        if isinstance(message, Begin):
            rank.begins.append(message)
        elif isinstance(message, AskCounts):
            with suppress(OSError):
                rank.connection.send(self._job.workers[rank.number].engine.counts.tolist())
        elif isinstance(message, End):
            rank.state, rank.has_failed = State.HAS_ENDED, message.failed
            rank.until_s = self._world.now_s + HEARD_AFTER_S
        elif isinstance(message, Compute):
            rank.state, rank.until_s = State.COMPUTES, self._world.now_s + message.seconds
        else:
            assert isinstance(message, Wait)
            rank.state, rank.until_s = State.WAITS, self._world.now_s + message.most_s

    def _name_absent(self, running: list[Rank]) -> None:
        """Say which ranks have not come back for a long time; raises LocalError if it is too long."""
        now = time.monotonic()
        for rank in running:
            silent_s = now - rank.heard_at
            text = (
                f"virtual time stands still at {self._world.now_s:.9g} s: rank {rank.number} has not come back for "
                f"{silent_s:.0f} s; it went on after {rank.last}, and computes, sleeps, or polls"
            )
            if silent_s > NAMED_AFTER_S and not rank.is_named:
                rank.is_named = True
                say(text)
            if silent_s > self._timeout_s:
                raise LocalError(text)

    # While it passes.

    def _begin_all(self) -> None:
        """Hand what was begun to the engines, in the order of ranks."""
        for number in sorted(self._ranks):
            rank, worker = self._ranks[number], self._job.workers[number]
            for one in rank.begins:
                operation = Operation(**one.facts)
                rank.under_way.add(worker.begin(operation, self._values(rank, operation, one.file), self._world.now_s))
                rank.begun += 1
            if rank.begins:
                rank.begins.clear()
                self._world.wake(self._job.numbers[number])
            if rank.state is State.WAITS:
                worker.engine.state.core["calls"]["waits"] = 1

    def _values(self, rank: Rank, operation: Operation, name: str) -> npt.NDArray[Any] | None:
        """Return the values of an operation in the memory that the rank shares."""
        if operation.dtype is None:
            return None
        if not name:
            return np.zeros(0, operation.dtype)
        if name not in rank.files:
            descriptor = os.open(Path(self._folder) / name, os.O_RDWR)
            try:
                rank.files[name] = mmap.mmap(descriptor, 0)
            finally:
                os.close(descriptor)
        return np.frombuffer(rank.files[name], operation.dtype, operation.size)

    def _pass_time(self) -> None:
        """Let time pass until a rank can go on, and tell it."""
        blocked = [rank for _, rank in sorted(self._ranks.items()) if rank.state is not State.HAS_ENDED]
        waiting = [rank for rank in blocked if rank.state is State.WAITS]
        news = self._news(waiting)
        if not news:
            self._world.wait_for([self._job.numbers[rank.number] for rank in waiting], first=True)
            self._job.look_after()
            self._world.run(min(*(rank.until_s for rank in blocked), self._job.due_s))
            news = self._news(waiting)
        now_s = self._world.now_s
        for rank in blocked:
            if rank.number in news or rank.until_s <= now_s + _INSTANT_S:
                rank.state, rank.heard_at = State.RUNS, time.monotonic()
                with suppress(OSError):  # it has ended; the next look finds that out
                    rank.connection.send(Answer(now_s=now_s, events=news.get(rank.number, [])))

    def _news(self, waiting: list[Rank]) -> dict[int, list[Outcome]]:
        """Return what has happened to the ranks that wait."""
        found: dict[int, list[Outcome]] = {}
        for rank in waiting:
            engine = self._job.workers[rank.number].engine
            engine.note(self._world.now_s)
            events = engine.events()
            news = list(events)
            events.clear()
            rank.under_way -= {event.operation for event in news if isinstance(event, Finished)}
            rows, names, rank.reported = ended_calls(engine.state.core[0]["calls"], rank.reported)
            self.calls.take(rank.number, rows.tolist(), names, self._world.now_s)
            if not news and (lost := self._waits_in_vain(rank)) is not None:
                news = [Failed(error=lost)]
            if news:
                found[rank.number] = news
        return found

    def _waits_in_vain(self, rank: Rank) -> WorkerLost | None:
        """Return the error of a rank that waits for one that has ended."""
        oldest = min(rank.under_way, default=-1)
        for other in self._ranks.values():
            if other.state is not State.HAS_ENDED or other.until_s > self._world.now_s:
                continue
            if other.has_failed or other.begun <= oldest:
                how = "is gone" if other.has_failed else "has left in order and will not begin the collective"
                return WorkerLost(f"rank {other.number} {how}, for which rank {rank.number} waits", other.number)
        return None


def _names(ranks: list[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))} {'have' if len(ranks) > 1 else 'has'}"


def _about(message: Begin | Wait | Compute | End) -> str:
    """Say what a message is about, for the one who is told of a rank that does not come back."""
    if isinstance(message, Begin):
        return f"beginning {message.facts['kind']}"
    if isinstance(message, Wait):
        return message.what or "a wait"
    return f"compute({message.seconds:g})" if isinstance(message, Compute) else "its end"

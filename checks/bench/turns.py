"""Jobs that wait for their turn, so that what else the machine does in an hour meets all that are compared alike.

Ranks connect to their player's socket, and between runs each of them sleeps in a read of it: a job that is not its turn
takes no processor time, but for a heartbeat each second.
"""

from __future__ import annotations

import json
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, TypeVar

from checks.bench.allreduce_worker import Run

PATIENCE_S: Final = 600.0
"""How long a job may take to start, and each run of it."""
POLL_S: Final = 0.5
_Name = TypeVar("_Name")


class Plays(Protocol):
    """Something that is measured."""

    def play(self, size: int) -> Run:
        """Run once with arrays of so many bytes."""


class Player:
    """A job that runs once at each `play`, and ends with the block."""

    def __init__(self, command: Callable[[Path], Sequence[str]], ranks: int) -> None:
        """Start a job whose ranks connect to the path that its command is given; does not wait for them."""
        self._scratch = tempfile.TemporaryDirectory(prefix="switchsum-bench-")
        path = Path(self._scratch.name, "turns")
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen(ranks)
        self._listening.settimeout(POLL_S)
        self._command, self._count = command(path), ranks
        self._ranks: list[socket.socket] = []
        self._process = subprocess.Popen(self._command, start_new_session=True)

    def __enter__(self) -> Player:
        return self

    @property
    def session(self) -> int:
        """Session of all its processes."""
        return self._process.pid

    def play(self, size: int) -> Run:
        """Have all ranks run once together; raises CalledProcessError if the job ends instead."""
        self._await_ranks()
        for rank in self._ranks:
            rank.send(f"{size}\n".encode())
        said = [self._answer(rank) for rank in self._ranks]
        [first] = [answer["run"] for answer in said if answer["run"] is not None]
        return Run(**{**first, "worker_seconds": sum(answer["own_seconds"] for answer in said)})

    def _await_ranks(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while len(self._ranks) < self._count:
            try:
                rank, _ = self._listening.accept()
            except TimeoutError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self._fail()
                continue
            rank.settimeout(PATIENCE_S)
            self._ranks.append(rank)

    def _answer(self, rank: socket.socket) -> dict[str, Any]:
        text = b""
        while not text.endswith(b"\n"):
            piece = rank.recv(65536)
            if not piece:
                self._fail()
            text += piece
        answer: dict[str, Any] = json.loads(text)
        return answer

    def _fail(self) -> None:
        self._process.terminate()
        raise subprocess.CalledProcessError(self._process.wait() or 1, list(self._command))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for rank in self._ranks:
            rank.close()
        self._listening.close()
        if kind is not None:
            self._process.terminate()
        code = self._process.wait(PATIENCE_S)
        self._scratch.cleanup()
        if kind is None and code:
            raise subprocess.CalledProcessError(code, list(self._command))


def in_turn(
    players: Mapping[_Name, Plays], sizes: Mapping[_Name, Iterable[int]], runs: int
) -> dict[tuple[_Name, int], list[Run]]:
    """Run each player once with each of its sizes, in turn with the others, so many times; the first turn warms up."""
    taken: dict[tuple[_Name, int], list[Run]] = {}
    for size in sorted({size for own in sizes.values() for size in own}):
        for turn in range(1 + runs):
            for name, player in players.items():
                if size in sizes[name]:
                    run = player.play(size)
                    taken.setdefault((name, size), []).extend([run] if turn else [])
    return taken


def play(
    commands: Mapping[_Name, tuple[Callable[[Path], Sequence[str]], int, Iterable[int]]], runs: int
) -> dict[tuple[_Name, int], list[Run]]:
    """Start jobs (command, ranks, sizes) all at once, and run them in turn."""
    with ExitStack() as stack:
        players = {name: stack.enter_context(Player(command, ranks)) for name, (command, ranks, _) in commands.items()}
        return in_turn(players, {name: tuple(sizes) for name, (_, _, sizes) in commands.items()}, runs)

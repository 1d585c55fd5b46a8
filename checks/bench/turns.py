"""Jobs that wait for their turn, so that what else the machine does in an hour meets all that are compared alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol, TypeVar

from checks.bench.allreduce_worker import Run
from switchsum.laboratory.session import Session

_Name = TypeVar("_Name")


class Plays(Protocol):
    """Something that is measured."""

    def play(self, size: int) -> Run:
        """Run once with arrays of so many bytes."""


class Player(Session):
    """A job that runs once at each `play`, and ends with the block."""

    def __enter__(self) -> Player:
        return self

    @property
    def session(self) -> int:
        """Session of all its processes."""
        return self.process.pid

    def play(self, size: int) -> Run:
        """Have all ranks run once together; raises CalledProcessError if the job ends instead."""
        said = self.ask(str(size))
        [first] = [answer["run"] for answer in said if answer["run"] is not None]
        return Run(**{**first, "worker_seconds": sum(answer["own_seconds"] for answer in said)})


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

"""A program as a tree: blocks of statements, each of which may be left out of the printed text."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Statement:
    """A statement: its first line, and the blocks that it has."""

    number: int
    head: str
    """Text up to the first block, or the whole of a statement without blocks."""
    blocks: list[tuple[str, list[Statement]]] = field(default_factory=list)
    """Each block with the text in front of it, such as `else`."""

    def lines(self, dropped: Collection[int], indent: str) -> Iterator[str]:
        """Yield the lines of the statement, without those that are dropped."""
        if self.number in dropped:
            return
        if not self.blocks:
            yield indent + self.head
            return
        for place, (front, block) in enumerate(self.blocks):
            yield f"{indent}{self.head if not place else front} {{"
            for statement in block:
                yield from statement.lines(dropped, indent + "    ")
            yield indent + "}"

    def numbers(self) -> Iterator[int]:
        """Yield the numbers of this statement and of those within it."""
        yield self.number
        for _, block in self.blocks:
            for statement in block:
                yield from statement.numbers()


@dataclass(slots=True)
class Part:
    """A part of a program: text that stays, around a block of statements that may go."""

    before: str
    block: list[Statement] = field(default_factory=list)
    after: str = ""


@dataclass(slots=True)
class Program:
    """A program."""

    parts: list[Part] = field(default_factory=list)

    def text(self, dropped: Collection[int] = ()) -> str:
        """Return the P4 source, without the statements that are dropped."""
        lines: list[str] = []
        for part in self.parts:
            lines.append(part.before)
            for statement in part.block:
                lines += statement.lines(dropped, "        ")
            lines.append(part.after)
        return "\n".join(line for line in lines if line) + "\n"

    def numbers(self) -> list[int]:
        """Return the numbers of all statements."""
        return [number for part in self.parts for statement in part.block for number in statement.numbers()]

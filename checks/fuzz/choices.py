"""Decisions made from a fuzzer's bytes: the same bytes decide the same, and used up bytes read as zeros."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


class Choices:
    """Reads bytes from the front."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_over(self) -> bool:
        """Whether all bytes are used up."""
        return self._at >= len(self._data)

    def number(self, size: int) -> int:
        """Return a number of `size` bytes."""
        part = self._data[self._at : self._at + size]
        self._at += size
        return int.from_bytes(part.ljust(size, b"\0"))

    def below(self, bound: int) -> int:
        """Return a number from 0 to `bound` - 1; `bound` is at least 1 and at most 65,536."""
        return self.number(1 if bound <= 256 else 2) % bound

    def pick(self, items: Sequence[Item]) -> Item:
        """Return one of some items."""
        return items[self.below(len(items))]

    def rest(self) -> bytes:
        """Return what is left."""
        left = self._data[self._at :]
        self._at = len(self._data)
        return left


def damage(whole: bytes, choices: Choices, most: int = 8) -> bytes:
    """Overwrite, cut or lengthen bytes as long as choices last, at most so often."""
    made = bytearray(whole)
    for _ in range(most):
        if choices.is_over or not made:
            break
        match choices.below(8):
            case 0:
                del made[choices.below(min(len(made), 65536)) :]
            case 1:
                made += bytes(choices.below(256))
            case _:
                at = choices.below(min(len(made), 65536))
                size = choices.pick((1, 1, 2, 4))
                made[at : at + size] = choices.number(size).to_bytes(size)
    return bytes(made)

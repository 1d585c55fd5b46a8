"""A value of a BMv2 JSON file that knows its path in the file, so that errors say where something is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from ..errors import ProgramError
from . import model

_T = TypeVar("_T")

MAX_NUMBER_BITS: Final = 1 << 16
"""Longest number that is read.  p4c's widest field has 2,048 bits; a case of a select over many fields may be
longer."""


class Node:
    """A JSON value and its path in the file, for error texts."""

    def __init__(self, value: object, path: str) -> None:
        self.value = value
        self.path = path

    def _expect(self, kind: type[_T], what: str) -> _T:
        # In Python True is an int, in JSON it is no number.
        if not isinstance(self.value, kind) or (kind is int and isinstance(self.value, bool)):
            raise ProgramError(f"not a BMv2 program: {self.path} is not {what}")
        return self.value

    def __getitem__(self, key: str) -> Node:
        made = self.get(key)
        if made is None:
            raise ProgramError(f"not a BMv2 program: {self.path} has no {key}")
        return made

    def get(self, key: str) -> Node | None:
        """Return a member of an object; None if it is missing or null."""
        value = self._expect(dict, "an object").get(key)
        return None if value is None else Node(value, f"{self.path}.{key}")

    def items(self) -> Iterator[Node]:
        """Yield the items of an array."""
        for index, value in enumerate(self._expect(list, "an array")):
            yield Node(value, f"{self.path}[{index}]")

    def exactly(self, count: int) -> Sequence[Node]:
        """Return the items of an array that has `count` items, or at least `-count` if `count` is negative."""
        made = [*self.items()]
        if len(made) != count and (count >= 0 or len(made) < -count):
            raise ProgramError(f"not a BMv2 program: {self.path} has {len(made)} items, not {abs(count)}")
        return made

    def list(self, key: str, read: Callable[[Node], _T]) -> tuple[_T, ...]:
        """Return what `read` makes of each item of an array; an array that is missing counts as empty."""
        found = self.get(key)
        return tuple(read(item) for item in found.items()) if found else ()

    def items_of(self, key: str) -> Iterator[Node]:
        """Yield the items of an array that is a member; one that is missing has none."""
        if (found := self.get(key)) is not None:
            yield from found.items()

    def pairs(self) -> dict[str, object]:
        """Return all members of an object."""
        return self._expect(dict, "an object")

    def text(self) -> str:
        """Return a string."""
        return self._expect(str, "a string")

    def text_or_none(self, key: str) -> str | None:
        """Return a member that is a string; None if it is missing or null."""
        found = self.get(key)
        return found.text() if found else None

    def integer(self) -> int:
        """Return a number."""
        return self._expect(int, "a number")

    def natural(self) -> int:
        """Return a number from 0 to 2**32 - 1."""
        number = self.integer()
        if number < 0:
            raise ProgramError(f"not a BMv2 program: {self.path} is negative")
        if number >> 32:
            raise ProgramError(f"not a BMv2 program: {self.path} has more than 32 bits")
        return number

    def truth(self, key: str, default: bool = False) -> bool:
        """Return a member that is true or false; `default` if it is missing or null."""
        found = self.get(key)
        return found._expect(bool, "true or false") if found else default

    def hexadecimal(self) -> int:
        """Return the number that a string of hexadecimal digits stands for."""
        try:
            number = int(self.text(), 16)
        except ValueError:
            raise ProgramError(f"not a BMv2 program: {self.path} is not a hexadecimal number") from None
        if number.bit_length() > MAX_NUMBER_BITS:
            raise ProgramError(f"{self.path} is a number of {number.bit_length()} bits, not {MAX_NUMBER_BITS} at most")
        return number

    def source(self) -> model.Source | None:
        """Return the place in the P4 source that the value comes from; None if the file does not say."""
        info = self.get("source_info")
        if info is None:
            return None
        return model.Source(
            file=info["filename"].text(), line=info["line"].integer(), fragment=info["source_fragment"].text()
        )

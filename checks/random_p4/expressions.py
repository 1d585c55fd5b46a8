"""Random expressions over the fields that may be read: of odd widths, signed or not, and conditions."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

WIDTHS: Final = (1, 3, 4, 7, 8, 9, 12, 13, 16, 19, 24, 31, 32, 33, 40, 48, 63, 64, 65, 100, 128)
DEPTH: Final = 3
ERRORS: Final = ("NoError", "PacketTooShort", "NoMatch", "Odd")


@dataclass(frozen=True, slots=True)
class Variable:
    """A field or variable."""

    name: str
    width: int
    signed: bool = False
    fixed: bool = False
    """It may be read, and not written."""

    @property
    def type(self) -> str:
        """Return its type in P4."""
        return f"{'int' if self.signed else 'bit'}<{self.width}>"


class Expressions:
    """Makes expressions of what may be read."""

    def __init__(
        self,
        random: Random,
        readable: list[Variable],
        headers: list[str],
        *,
        functions: bool = False,
        errors: bool = False,
    ) -> None:
        self.random, self.readable, self.headers = random, readable, headers
        self.functions, self.errors = functions, errors

    def number(self, width: int) -> int:
        """Return a number of a width: mostly one at an edge, as random ones never are."""
        full = (1 << width) - 1
        edges = (0, 1, full, full >> 1, 1 << (width - 1), 5 & full)
        return self.random.choice((*edges, self.random.getrandbits(width)))

    def literal(self, width: int) -> str:
        """Return a number as a literal."""
        return f"{width}w{self.number(width):#x}"

    def leaf(self, width: int) -> str:
        """Return a literal or a field, cast to the width."""
        if self.random.random() < 0.25 or not self.readable:
            return self.literal(width)
        same = [place for place in self.readable if place.width == width and not place.signed]
        if same and self.random.random() < 0.6:
            return self.random.choice(same).name
        place = self.random.choice(self.readable)
        if place.signed:
            inner = f"(bit<{place.width}>){place.name}"
            if self.random.random() < 0.5:  # the sign is extended
                return f"(bit<{width}>)(int<{width}>){place.name}" if width > 1 else f"(bit<1>)({inner})"
            return f"(bit<{width}>)({inner})" if width != place.width else f"({inner})"
        if width < place.width and self.random.random() < 0.5:
            low = self.random.randrange(place.width - width + 1)
            return f"{place.name}[{low + width - 1}:{low}]"
        return place.name if width == place.width else f"(bit<{width}>){place.name}"

    def value(self, width: int, depth: int = DEPTH) -> str:
        """Return an expression of type bit<width>."""
        choose = self.random.random()
        if depth <= 0 or choose < 0.25:
            return self.leaf(width)
        if choose < 0.6:
            operator = self.random.choice(("+", "-", "*", "&", "|", "^", "|+|", "|-|"))
            return f"({self.value(width, depth - 1)} {operator} {self.value(width, depth - 1)})"
        if choose < 0.7:
            amount = self.value(self.random.choice((3, 8)), depth - 2)
            amount = amount if self.random.random() < 0.5 else str(self.random.randrange(width + 2))
            return f"({self.value(width, depth - 1)} {self.random.choice(('<<', '>>'))} {amount})"
        if choose < 0.78:
            return f"({self.condition(depth - 1)} ? {self.value(width, depth - 1)} : {self.value(width, depth - 1)})"
        if choose < 0.86:
            return f"({self.random.choice('~-')}{self.value(width, depth - 1)})"
        if choose < 0.93 and width > 1:
            low = self.random.randrange(1, width)
            return f"({self.value(width - low, depth - 1)} ++ {self.value(low, depth - 1)})"
        if width == 16 and self.functions and self.random.random() < 0.6:
            return f"fun({self.value(16, depth - 1)}, {self.value(8, depth - 1)})"
        if width > 1 and self.random.random() < 0.25:
            return f"({self.value(width + 3, depth - 1)})[{width + 1}:2]"
        if width > 1:
            return f"(bit<{width}>)({self.signed(width, depth)})"
        return f"(bit<1>)({self.condition(depth - 1)})"

    def signed(self, width: int, depth: int = DEPTH) -> str:
        """Return an expression of type int<width>."""
        random = self.random
        choose = random.random()
        if depth <= 0 or choose < 0.25:
            other = random.choice([place for place in self.readable if place.signed] or [None])
            if other is not None and random.random() < 0.7:  # the sign is extended, or cut off
                return other.name if other.width == width else f"(int<{width}>)({other.name})"
            return f"(int<{width}>)({self.leaf(width)})"
        if choose < 0.45:
            amount = (
                f"({self.value(random.choice((3, 6)), 0)})" if random.random() < 0.5 else random.randrange(width + 2)
            )
            return f"({self.signed(width, depth - 1)} {random.choice(('<<', '>>'))} {amount})"
        if choose < 0.52:
            return f"(-{self.signed(width, depth - 1)})"
        if choose < 0.6:
            return f"(int<{width}>)({self.value(width, depth - 1)})"
        operator = random.choice(("+", "-", "*", "|+|", "|-|", "&", "|", "^"))
        return f"({self.signed(width, depth - 1)} {operator} {self.signed(width, depth - 1)})"

    def condition(self, depth: int = DEPTH) -> str:
        """Return an expression of type bool."""
        choose = self.random.random()
        if self.headers and choose < 0.15:
            return f"{self.random.choice(self.headers)}.isValid()"
        if depth > 0 and choose < 0.35:
            operator = self.random.choice(("&&", "||"))
            return f"({self.condition(depth - 1)} {operator} {self.condition(depth - 1)})"
        if depth > 0 and choose < 0.45:
            return f"(!{self.condition(depth - 1)})"
        if choose > 0.97 and self.headers:
            return self.random.choice(("(h.x0 == h.y0)", "(h.x0 != m.copy)", "m.flag", "(m.state == K.TWO)"))
        if choose > 0.95 and self.errors:
            return f"(sm.parser_error {self.random.choice(('==', '!='))} error.{self.random.choice(ERRORS)})"
        width = self.random.choice(WIDTHS)
        operator = self.random.choice(("==", "!=", "<", "<=", ">", ">="))
        if width > 1 and self.random.random() < 0.25:
            return f"({self.signed(width, depth - 1)} {operator} {self.signed(width, depth - 1)})"
        left, right = self.value(width, depth - 1), self.value(width, depth - 1)
        return f"({left} {operator} {right})"

"""How a key field is compared with an entry: the kinds that P4 has, and one value for each.

Tables (`state.tables`), the P4Runtime server and its clients share these; `match_fields` writes them as messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class MatchKind(Enum):
    """How a key field is compared.  P4Runtime's OPTIONAL is a TERNARY whose mask is all ones or zero."""

    EXACT = "exact"
    LPM = "lpm"
    TERNARY = "ternary"
    RANGE = "range"


@dataclass(frozen=True, slots=True)
class Exact:
    """Matches `value`."""

    value: int

    def __str__(self) -> str:
        return f"{self.value:#x}"


@dataclass(frozen=True, slots=True)
class Lpm:
    """Matches values with the first `prefix_len` bits of `value`, whose other bits are 0; length 0 matches all."""

    value: int
    prefix_len: int

    def __str__(self) -> str:
        return f"{self.value:#x}/{self.prefix_len}"


@dataclass(frozen=True, slots=True)
class Ternary:
    """Matches values that are equal to `value` in the bits of `mask`; the other bits of `value` are 0."""

    value: int
    mask: int

    def __str__(self) -> str:
        return f"{self.value:#x} &&& {self.mask:#x}"


@dataclass(frozen=True, slots=True)
class Range:
    """Matches values from `low` to `high`, both included."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.low:#x}..{self.high:#x}"


Match = Exact | Lpm | Ternary | Range

"""What a case is, and how functions become cases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from .play import Play

Act = Callable[[Play], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One thing to play, and the rule that it is about."""

    rule: str
    title: str
    act: Act
    version: int = 0
    """Lowest bit of the numbers."""
    is_fresh: bool = False
    """Needs a slot whose cells were never used."""
    is_raw: bool = False
    """Needs frames whose lower headers arrive as the kit writes them."""


ENTERED: Final[list[Case]] = []
"""Cases that are functions, in the order of their modules."""


def case(rule: str, title: str, *, version: int = 0, is_fresh: bool = False, is_raw: bool = False) -> (
    Callable[[Act], Act]
):  # fmt: skip
    """Enter a function among the cases."""

    def enter(act: Act) -> Act:
        ENTERED.append(Case(rule=rule, title=title, act=act, version=version, is_fresh=is_fresh, is_raw=is_raw))
        return act

    return enter

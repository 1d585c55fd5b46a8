"""The orders of ranks: what one member does in one job of a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

STEPS: Final = 4
"""Steps of a job."""
INJURED: Final = 1
"""The member whom events are about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a member does in one job."""

    row: dict[str, str]
    number: int
    """Of the row: values and shapes follow from it."""
    turn: int
    """How many jobs of the row there were before."""
    members: tuple[int, ...]
    """Who takes part, by rank."""
    rank: int
    job: str = ""
    link: str = ""
    store: str = ""
    """File in which groups of PyTorch's meet."""

    @property
    def member(self) -> int:
        """Who this is: the same through all jobs of a row."""
        return self.members[self.rank]

"""A change of what must not be changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change in one place, and how to find out whether a check notices it."""

    side: str
    """What is changed."""
    name: str
    """How."""
    is_noticed: Callable[[], bool]

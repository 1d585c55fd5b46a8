"""The result of one check."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class State(enum.StrEnum):
    """How a check ended."""

    OK = "ok"
    LIMITED = "limited"
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check saw."""

    name: str
    """What was looked at, a word or two."""
    state: State
    """Whether it will do."""
    found: str
    """What was seen: a version, a count, or the reason of a failure."""
    purpose: str
    """What it is needed for."""
    remedy: str = ""
    """A shell command that mends it, or an address that says how; empty where nothing is wrong."""
    essential: bool = False
    """Whether switchsum cannot run at all without it."""

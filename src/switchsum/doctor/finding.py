"""The result of one check."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Verdict(enum.StrEnum):
    """The result of a check."""

    OK = "ok"
    LIMITED = "limited"
    """It works, but not for everything."""
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check has found."""

    name: str
    """The thing that was checked, in a word or two."""
    state: Verdict
    """Whether it is good enough."""
    found: str
    """What was found: a version, a count, or the reason of a failure."""
    purpose: str
    """What it is needed for."""
    remedy: str = ""
    """A shell command that mends it, or the address of a page that says how; empty if nothing is wrong."""
    essential: bool = False
    """Whether switchsum cannot run at all without it."""

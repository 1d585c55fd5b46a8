"""Runs tests in STF, the format in which p4c and p4testgen write tests of programs."""

from __future__ import annotations

from .embedded import Embedded, run_embedded, traces_of
from .language import StfError, Test, parse
from .names import Names
from .run import Left, Outcome, Problem, Target, run

__all__ = [
    "Embedded",
    "Left",
    "Names",
    "Outcome",
    "Problem",
    "StfError",
    "Target",
    "Test",
    "parse",
    "run",
    "run_embedded",
    "traces_of",
]

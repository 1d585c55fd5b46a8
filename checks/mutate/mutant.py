"""A change of what must not be changed."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change in one place, and how to find out whether a check notices it."""

    side: str
    """What is changed."""
    name: str
    """How."""
    is_noticed: Callable[[], bool]


def edited(module: types.ModuleType, before: str, after: str) -> types.ModuleType:
    """Return a module whose source has another text in one place."""
    source = Path(str(module.__file__)).read_text()
    if source.count(before) != 1:
        raise AssertionError(f"{module.__name__} has {before!r} {source.count(before)} times")
    made = types.ModuleType(f"{module.__name__}_edited")
    made.__package__ = module.__package__
    sys.modules[made.__name__] = made  # dataclasses look their module up
    exec(compile(source.replace(before, after), made.__name__, "exec"), made.__dict__)
    return made

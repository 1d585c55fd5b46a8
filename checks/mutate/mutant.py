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


def replaced(text: str, before: str, after: str, where: str) -> str:
    """Return a source text with another text in one place; raises ValueError where that place is not just one."""
    if text.count(before) != 1:
        raise ValueError(f"{where} has {before!r} {text.count(before)} times")
    return text.replace(before, after)


def edited(module: types.ModuleType, before: str, after: str) -> types.ModuleType:
    """Return a module whose source has another text in one place."""
    source = replaced(Path(str(module.__file__)).read_text(), before, after, module.__name__)
    made = types.ModuleType(f"{module.__name__}_edited")
    made.__package__ = module.__package__
    sys.modules[made.__name__] = made  # dataclasses look their module up
    exec(compile(source, made.__name__, "exec"), made.__dict__)
    return made

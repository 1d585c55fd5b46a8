"""Notices steps that a GradScaler skips: they are steps of that rank, as in a loop that counts.

A scaler does not call the optimizer where a gradient is infinite, so no hook of the optimizer hears of it.  Ranks skip
by themselves.  Without these steps, a rank that has skipped one would take its outer steps one batch later than others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

import torch


class Watch:
    """Calls a function after each step of an optimizer, also after one that a scaler skips."""

    def __init__(self, optimizer: torch.optim.Optimizer, after_step: Callable[[], object]) -> None:
        self._optimizer, self._after_step = optimizer, after_step
        self._taken = 0
        self._hook = optimizer.register_step_post_hook(lambda *_: self._note())
        _watches.setdefault(optimizer, []).append(self)
        _watch_scalers()

    def _note(self) -> None:
        self._taken += 1
        self._after_step()

    def remove(self) -> None:
        """Call the function no more."""
        self._hook.remove()
        if self in (others := _watches.get(self._optimizer, [])):
            others.remove(self)


_watches: WeakKeyDictionary[torch.optim.Optimizer, list[Watch]] = WeakKeyDictionary()


def innermost(optimizer: Any) -> Any:
    """Return the optimizer within Accelerate's or Lightning's."""
    inner = getattr(optimizer, "optimizer", None)
    return innermost(inner) if isinstance(inner, torch.optim.Optimizer) else optimizer


def _watch_scalers() -> None:
    """Have scalers tell of steps that they skip, once in a process."""
    kind: Any = torch.amp.GradScaler
    plain = kind.step
    if hasattr(plain, "tells_of_skipped_steps"):
        return

    @wraps(plain)
    def step(scaler: Any, optimizer: torch.optim.Optimizer, *arguments: Any, **options: Any) -> Any:
        watches = list(_watches.get(innermost(optimizer), ()))
        before = [one._taken for one in watches]
        result = plain(scaler, optimizer, *arguments, **options)
        for one, taken in zip(watches, before, strict=True):
            if one._taken == taken:
                one._note()
        return result

    vars(step)["tells_of_skipped_steps"] = True
    kind.step = step

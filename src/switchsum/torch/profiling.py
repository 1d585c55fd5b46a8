"""Ranges for torch.profiler: which collective a group was asked for and with how many bytes, and who waits for one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, Final, TypeVar

import torch

from switchsum.torch.devices import WITH_TENSORS
from switchsum.torch.work import SwitchWork

Kind = TypeVar("Kind", bound=type)

PREFIX: Final = "switchsum:"


def seen_by_profilers(kind: Kind) -> Kind:
    """Have a group's calls be ranges where a profiler runs; without one they cost a look at a flag."""
    for name in (*WITH_TENSORS, "barrier"):
        setattr(kind, name, _seen(getattr(kind, name)))
    return kind


def _seen(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(group: Any, *arguments: Any, **options: Any) -> Any:
        if not torch.autograd._profiler_enabled():
            return method(group, *arguments, **options)
        octets = max((bytes_of([one]) for one in (*arguments, *options.values())), default=0)
        name = f"{method.__name__} {octets} bytes" if octets else method.__name__
        with torch.profiler.record_function(PREFIX + name):
            work = method(group, *arguments, **options)
        if isinstance(work, SwitchWork):
            work.waiting = lambda: _waiting(name)
        return work

    return call


def _waiting(name: str) -> AbstractContextManager[object]:
    if not torch.autograd._profiler_enabled():
        return nullcontext()
    return torch.profiler.record_function(f"{PREFIX}wait for {name}")


def bytes_of(values: Iterable[Any]) -> int:
    """Return the bytes of all tensors in nested lists: a call's inputs or its outputs, whichever are more."""
    total = 0
    for value in values:
        if isinstance(value, torch.Tensor):
            plain = value._values() if value.layout == torch.sparse_coo else value
            total += plain.numel() * plain.element_size()
        elif isinstance(value, list | tuple):
            total += bytes_of(value)
    return total

"""Kit for tests of programs that use switchsum: ranks in one process, on a switch that is a Python object."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .local import communicators, on_ranks

__all__ = ["communicators", "on_ranks"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import local  # noqa: PLC0415 - other parts of the kit do without the worker

    return getattr(local, name)

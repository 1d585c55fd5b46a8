"""What kernels use of numba and LLVM: neither is imported before the first kernel that uses it is compiled."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cached_property
from typing import Any, ParamSpec, TypeVar

from .plain import PLAIN, array_at

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Deferred:
    """An object of numba's that is made only when the first kernel that uses it is compiled."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    @cached_property
    def real(self) -> Any:
        """The object itself, as numba knows it."""
        return self._make()

    def __call__(self, *arguments: Any) -> Any:
        """Call the object, as a kernel does."""
        return self.real(*arguments)


class _Late:
    """A module that is imported at the first use of one of its names."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


ir: Any = _Late("llvmlite.ir")
types: Any = _Late("numba.core.types")
cgutils: Any = _Late("numba.core.cgutils")
"""numba's module with which intrinsics are made."""


def intrinsic(native: Callable[..., Any]) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Let kernels use what `native` generates code for (see `numba.extending.intrinsic`).

    The decorated function does the same where kernels are Python.
    """

    def make() -> Any:
        from numba.extending import intrinsic as real  # noqa: PLC0415

        return real(native)

    return lambda function: function if PLAIN else Deferred(make)  # type: ignore[return-value]


def _carray() -> Any:
    from numba import carray  # noqa: PLC0415

    return carray


carray: Any = array_at if PLAIN else Deferred(_carray)
"""Function of numba that views memory at an address as an array."""


def _pointer(_context: Any, address: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


@intrinsic(_pointer)
def pointer(address: int) -> Any:
    """Turn an int64 address into a pointer."""
    return address

"""Kernels that are called by their address: by other kernels, and by Python.

A worker knows what it runs by module and name alone (`Native`): it imports the kernel (`Outlined`) only where the code
is not on disk.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from functools import cached_property
from importlib import import_module
from typing import Any

from . import plain
from .cache import Store
from .loading import kernel_store, load, store_of_new, stored
from .plain import PLAIN
from .signatures import C_TYPES, FLOAT, INTEGER, Made
from .turns import together


class Native:
    """A kernel that is called by its address, known by its module and name."""

    def __init__(self, module: str, name: str, store: Callable[[], Store | None] = kernel_store) -> None:
        self.__module__, self.__qualname__ = module, name
        self.store = store

    def written(self) -> Outlined:
        """Import the kernel."""
        kernel: Outlined = getattr(import_module(self.__module__), self.__qualname__)
        return kernel

    def find(self) -> bool:
        """Load the code from disk, unless that was done; False where it is not there."""
        if "_code" not in self.__dict__ and (found := stored(self, "")) is not None:
            self._code = found
        return "_code" in self.__dict__

    @cached_property
    def _code(self) -> tuple[Made, int]:
        def compile_it() -> tuple[Made, bytes]:
            from . import compiler  # noqa: PLC0415

            kernel = self.written()
            return compiler.outlined(kernel.py_func, kernel.tags, kernel.result)

        return load(self, "", compile_it)

    @cached_property
    def address(self) -> int:
        """Compile the function, or load it, unless that was done before, and return its address."""
        return self.written().address if PLAIN else self._code[1]

    @cached_property
    def function(self) -> Callable[..., int]:
        """The compiled function for Python, which calls it without the GIL."""
        if PLAIN:
            return self.written().function
        made, address = self._code
        return ctypes.CFUNCTYPE(C_TYPES[made.result], *(C_TYPES[kind] for kind in made.arguments))(address)

    def __call__(self, *arguments: float) -> int:
        """Call the compiled function."""
        return self.function(*arguments)


class Outlined(Native):
    """A kernel of ints and floats that returns an int, and that other kernels call by its address.

    If it was linked in, as other kernels are, it would be optimised anew at every level of callers.
    """

    def __init__(self, function: Callable[..., float]) -> None:
        super().__init__(function.__module__, function.__qualname__, store_of_new())
        self.py_func: Any = plain.wrapping(function)
        kinds = {"int": INTEGER, "float": FLOAT}
        arguments = dict(function.__annotations__)
        self.result = kinds[arguments.pop("return")]
        self.tags = tuple(kinds[kind] for kind in arguments.values())

    def written(self) -> Outlined:
        """Return this kernel."""
        return self

    @cached_property
    def address(self) -> int:
        """Compile the function, or load it, unless that was done before, and return its address."""
        if PLAIN:
            return plain.callback(self.py_func, C_TYPES[self.result], [C_TYPES[tag] for tag in self.tags])
        return self._code[1]

    @cached_property
    def function(self) -> Callable[..., int]:
        """The compiled function for Python, which calls it without the GIL."""
        return self.py_func if PLAIN else super().function


def prepare(natives: Iterable[Native]) -> None:
    """Load or compile kernels; of processes that start together, one compiles all that is missing."""
    missing = [] if PLAIN else [native for native in natives if not native.find()]
    if missing:
        with together():
            assert all(native.address for native in missing)

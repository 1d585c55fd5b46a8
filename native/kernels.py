"""The decorator of all hot loops: compiled by numba, without the GIL, and kept on disk as machine code.

A process that finds its kernels there loads them without numba, which takes longer to import than all else together.
What is kept is the code that Python calls (entries), each with everything that it calls in turn, under a digest of all
files that kernels are made of: any change compiles them anew.  (numba's own cache looks at the file of the function
alone and keeps calling yesterday's code of a callee that has changed in another file; and it is pickles.)
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, ParamSpec, TypeVar, overload

import numpy as np

from . import plain
from .cache import Store
from .natives import (
    BOOLEAN,
    C_TYPES,
    FLOAT,
    INTEGER,
    NOTHING,
    PLAIN,
    Made,
    Native,
    address_of,
    kernel_store,
    load,
)

_P = ParamSpec("_P")
_R = TypeVar("_R")

Tag = Any
"""What code depends on of an argument: INTEGER, FLOAT, BOOLEAN, NOTHING (None), `(dtype, dimensions)` of an array, or a
tuple's class (`tuple` itself, or a NamedTuple) and the tags of its items."""


class Deferred:
    """Something of numba's that is made when the first kernel that uses it is compiled."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    @cached_property
    def real(self) -> Any:
        """What numba knows."""
        return self._make()

    def __call__(self, *arguments: Any) -> Any:
        """Call it, as a kernel does."""
        return self.real(*arguments)


class _Late:
    """A module that is imported when something of it is needed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


ir: Any = _Late("llvmlite.ir")
types: Any = _Late("numba.core.types")
cgutils: Any = _Late("numba.core.cgutils")
"""What intrinsics are made with."""


def intrinsic(native: Callable[..., Any]) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Let kernels use what `native` generates code for (see `numba.extending.intrinsic`).

    What is decorated does the same where kernels are Python.
    """

    def make() -> Any:
        from numba.extending import intrinsic as real  # noqa: PLC0415

        return real(native)

    return lambda function: function if PLAIN else Deferred(make)  # type: ignore[return-value]


def _carray() -> Any:
    from numba import carray  # noqa: PLC0415

    return carray


carray: Any = plain.array_at if PLAIN else Deferred(_carray)
"""numba's: an array at an address."""


class Kernel(Deferred):
    """A function that Python and other kernels call, compiled for each combination of types that it is called with."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        super().__init__(self._make_dispatcher)
        self.py_func = function
        self.options = options
        self.store = _find
        self.signatures: dict[tuple[Tag, ...], Callable[[list[Any]], Any]] = {}
        self.__name__, self.__qualname__ = function.__name__, function.__qualname__
        self.__module__, self.__doc__ = function.__module__, function.__doc__

    def _make_dispatcher(self) -> Any:
        """Return what numba compiles into callers: without wrappers, which take a third of the time."""
        from . import compiler  # noqa: PLC0415

        return compiler.dispatcher(self.py_func, {**self.options, "no_cpython_wrapper": True, "no_cfunc_wrapper": True})

    @cached_property
    def _ordinary(self) -> Any:
        """Return what takes arguments that an entry does not, such as arrays with gaps; it is compiled each time."""
        from . import compiler  # noqa: PLC0415

        return compiler.dispatcher(self.py_func, self.options)

    def __call__(self, *arguments: Any) -> Any:
        """Call the compiled function."""
        tags: list[Tag] = []
        words: list[Any] = []
        try:
            for argument in arguments:
                _flatten(argument, tags, words)
        except TypeError:
            return self._ordinary(*arguments)
        key = tuple(tags)
        return (self.signatures.get(key) or self._keep_entry(key))(words)

    def prepare(self, arguments: tuple[Any, ...]) -> None:
        """Have the code for arguments of such types ready."""
        tags: list[Tag] = []
        for argument in arguments:
            _flatten(argument, tags, [])
        if tuple(tags) not in self.signatures:
            self._keep_entry(tuple(tags))

    def _keep_entry(self, tags: tuple[Tag, ...]) -> Callable[[list[Any]], Any]:
        entry = self.signatures[tags] = self._entry(tags)
        return entry

    def _entry(self, tags: tuple[Tag, ...]) -> Callable[[list[Any]], Any]:
        """Load the code for such arguments, or compile it."""

        def compile_it() -> tuple[Made, bytes]:
            from . import compiler  # noqa: PLC0415

            return compiler.entry(self, tags)

        made, address = load(self, repr(tags), compile_it)
        return _caller(made, address, [kind for tag in tags for kind in _words_of(tag)])


@overload
def kernel(function: Callable[_P, _R], /) -> Callable[_P, _R]: ...
@overload
def kernel(**options: Any) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]: ...
def kernel(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Compile a function at its first call, or load it; `options` go to `numba.njit`.

    Divisions by zero follow numpy (no exception), and constants of other modules are frozen in, as numba does.  Python
    calls it with numbers, C-contiguous arrays, None, and tuples of these; what is under `if argument is not None` is
    compiled only where it is not.  It returns numbers, a tuple of integers, or None.
    """
    if function is None:
        return lambda wrapped: kernel(wrapped) if PLAIN else Kernel(wrapped, options)
    return function if PLAIN else Kernel(function, options)


def inner(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile a function that only kernels call."""
    return function if PLAIN else Kernel(function, {})  # type: ignore[return-value]


def prepare(function: Callable[_P, object], *arguments: _P.args, **_none: _P.kwargs) -> None:
    """Have the code of a kernel for arguments of such types ready, without calling it."""
    if not PLAIN:
        assert isinstance(function, Kernel)
        function.prepare(arguments)


class Outlined(Native):
    """A kernel of ints and floats that returns an int, and that other kernels call by its address.

    Linked in, as kernels are, a callee is optimised anew at every level of callers.
    """

    def __init__(self, function: Callable[..., float]) -> None:
        super().__init__(function.__module__, function.__qualname__, _find)
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


@contextmanager
def kept_in(find: Callable[[], Store | None]) -> Iterator[None]:
    """Keep what is compiled of the kernels that are defined meanwhile elsewhere: where `find` says."""
    global _find  # noqa: PLW0603
    before, _find = _find, find
    try:
        yield
    finally:
        _find = before


_find: Callable[[], Store | None] = kernel_store


def _flatten(value: Any, tags: list[Tag], words: list[Any]) -> None:
    """Add an argument's tag, and what its entry takes for it: numbers, address and shape of arrays, items of tuples.

    Raises TypeError for what no entry takes.
    """
    if isinstance(value, np.ndarray):
        if not (value.flags.c_contiguous and value.flags.aligned and value.dtype.isnative):
            raise TypeError("an array with gaps")
        tags.append((value.dtype, value.ndim))
        words.append(address_of(value))
        words.extend(value.shape)
    elif isinstance(value, (bool, np.bool_)):
        tags.append(BOOLEAN)
        words.append(int(value))
    elif isinstance(value, (int, np.integer)):
        tags.append(INTEGER)
        words.append(int(value))
    elif isinstance(value, (float, np.floating)):
        tags.append(FLOAT)
        words.append(float(value))
    elif isinstance(value, tuple):
        inside: list[Tag] = []
        for item in value:
            _flatten(item, inside, words)
        tags.append((type(value), *inside))
    elif value is None:
        tags.append(NOTHING)
    else:
        raise TypeError(f"an entry takes no {type(value).__name__}")


def _words_of(tag: Tag) -> list[str]:
    """Return INTEGER or FLOAT for each word that `_flatten` makes of an argument."""
    if isinstance(tag, str):
        return [] if tag == NOTHING else [FLOAT if tag == FLOAT else INTEGER]
    if isinstance(tag[0], np.dtype):
        return [INTEGER] * (1 + tag[1])
    return [word for item in tag[1:] for word in _words_of(item)]


def _caller(made: Made, address: int, words: list[str]) -> Callable[[list[Any]], Any]:
    """Return what calls an entry with the words of its arguments."""
    result = C_TYPES.get(made.result, ctypes.c_int64)
    function = ctypes.CFUNCTYPE(result, *(C_TYPES[word] for word in words), ctypes.c_void_p)(address)
    if made.results:
        kinds, buffer = [bool if kind == BOOLEAN else int for kind in made.results], ctypes.c_int64 * len(made.results)

        def call_for_many(arguments: list[Any]) -> Any:
            results = buffer()
            function(*arguments, ctypes.addressof(results))
            return tuple(kind(word) for kind, word in zip(kinds, results, strict=True))

        return call_for_many
    if made.result == NOTHING:

        def call_for_nothing(arguments: list[Any]) -> Any:
            function(*arguments, None)

        return call_for_nothing
    if made.result == BOOLEAN:
        return lambda arguments: function(*arguments, None) != 0
    return lambda arguments: function(*arguments, None)

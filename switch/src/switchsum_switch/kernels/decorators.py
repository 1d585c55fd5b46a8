"""The decorators of hot loops: compiled by numba, without the GIL, and kept on disk as machine code (`loading.py`).

The files hold entries, which Python calls, each with the code of everything that it calls in turn.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cached_property
from typing import Any, ParamSpec, TypeVar, overload

import numpy as np

from .intrinsics import Deferred
from .loading import address_of, load, store_of_new
from .plain import PLAIN
from .signatures import BOOLEAN, C_TYPES, FLOAT, INTEGER, NOTHING, Made, Tag

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Kernel(Deferred):
    """A function that Python and other kernels call, compiled for each combination of types that it is called with."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        super().__init__(self._make_dispatcher)
        self.py_func = function
        self.options = options
        self.store = store_of_new()
        self.signatures: dict[tuple[Tag, ...], Callable[[list[Any]], Any]] = {}
        self.__name__, self.__qualname__ = function.__name__, function.__qualname__
        self.__module__, self.__doc__ = function.__module__, function.__doc__

    def _make_dispatcher(self) -> Any:
        """Return the function that numba compiles into callers, without wrappers, which take a third of the time."""
        from . import compiler  # noqa: PLC0415

        return compiler.dispatcher(self.py_func, {**self.options, "no_cpython_wrapper": True, "no_cfunc_wrapper": True})

    @cached_property
    def _ordinary(self) -> Any:
        """Return a function for arguments that entries do not take, such as arrays with gaps; never on disk."""
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
        """Load or compile the code for arguments of such types."""
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

            return compiler.entry(self.real, tags)

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
    """Load or compile the code of a kernel for arguments of such types, without calling it."""
    if not PLAIN:
        assert isinstance(function, Kernel)
        function.prepare(arguments)


def _flatten(value: Any, tags: list[Tag], words: list[Any]) -> None:
    """Add an argument's tag and its words: a number itself, address and shape of an array, the items of a tuple.

    Raises TypeError for an argument that no entry takes.
    """
    if isinstance(value, np.ndarray):
        flags = value.flags
        if not (flags.c_contiguous and flags.aligned and value.dtype.isnative):
            raise TypeError("a kernel takes only contiguous, aligned arrays of native byte order")
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
        raise TypeError(f"a kernel takes no {type(value).__name__}")


def _words_of(tag: Tag) -> list[str]:
    """Return INTEGER or FLOAT for each word that `_flatten` makes of an argument."""
    if isinstance(tag, str):
        return [] if tag == NOTHING else [FLOAT if tag == FLOAT else INTEGER]
    if isinstance(tag[0], np.dtype):
        return [INTEGER] * (1 + tag[1])
    return [word for item in tag[1:] for word in _words_of(item)]


def _caller(made: Made, address: int, words: list[str]) -> Callable[[list[Any]], Any]:
    """Return a function that calls an entry with the words of its arguments."""
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

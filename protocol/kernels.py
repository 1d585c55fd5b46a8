"""The decorator of all hot loops: numba, without the GIL, cached on disk under a digest of every kernel's source.

numba's own cache looks at the file of the function alone and keeps calling yesterday's code of a callee that has
changed in another file.  Here the directory is named by a digest of all files that kernels are made of, so that any
change compiles them anew, and one lock keeps processes that start together from mixing up their entries.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar, overload

import llvmlite
import numba
from numba.core.caching import FunctionCache
from numba.core.ccallback import CFunc

from switchsum.protocol.cache import cache_directory

_P = ParamSpec("_P")
_R = TypeVar("_R")

_PACKAGES: Final = ("switchsum.protocol", "switchsum.host", "switchsum.switch")
"""Where kernels are written."""
_USES_KERNELS: Final = re.compile(r"^(?:from|import) (?:numba|switchsum\.protocol\.kernels)\b", re.MULTILINE)
_IMPORT: Final = re.compile(
    r"^from (switchsum[\w.]*) import (?:\(([^)]*)\)|(.*))|^import (switchsum[\w.]*)", re.MULTILINE
)


@overload
def kernel(function: Callable[_P, _R], /) -> Callable[_P, _R]: ...
@overload
def kernel(**options: Any) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]: ...
def kernel(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Compile a function at its first call, or load it; `options` go to `numba.njit`.

    Divisions by zero follow numpy (no exception), and constants of other modules are frozen in, as numba does.
    """
    if function is None:
        return lambda wrapped: kernel(wrapped, **options)
    dispatcher = numba.njit(nogil=True, error_model="numpy", **options)(function)
    directory = kernel_directory()
    if directory is not None:
        dispatcher._cache = _locked_cache(function, directory)  # what Dispatcher.enable_caching does, with our class
    return dispatcher


def inner(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile a function that only kernels call: without its wrapper for Python, which takes a third of the time."""
    return kernel(no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)


def _locked_cache(function: Callable[..., Any], directory: Path) -> _LockedCache:
    previous, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(directory)
    try:
        return _LockedCache(function)
    finally:
        numba.config.CACHE_DIR = previous


class Outlined:
    """A kernel of ints and floats that returns an int, and that other kernels call by its address.

    Linked in, as kernels are, a callee is optimised anew at every level of callers.
    """

    def __init__(self, function: Callable[..., int]) -> None:
        kinds = {"int": numba.int64, "float": numba.float64}
        arguments = dict(function.__annotations__)
        result = kinds[arguments.pop("return")]
        signature = tuple(kinds[kind] for kind in arguments.values()), result
        self._made: Any = CFunc(function, signature, locals={}, options={"error_model": "numpy"})
        self._function = function

    @property
    def address(self) -> int:
        """Compile the function, or load it, unless that was done before, and return its address."""
        if self._made.address is None:
            directory = kernel_directory()
            if directory is not None:
                self._made._cache = _locked_cache(self._function, directory)
            self._made.compile()
        address: int = self._made.address
        return address

    @property
    def function(self) -> Callable[..., int]:
        """The compiled function for Python, which calls it without the GIL."""
        assert self.address
        function: Callable[..., int] = self._made.ctypes
        return function

    def __call__(self, *arguments: float) -> int:
        """Call the compiled function."""
        return self.function(*arguments)


@cache
def kernel_directory() -> Path | None:
    """Return the directory of this version's compiled kernels; None when nothing can be written."""
    return cache_directory("kernels", source_digest())


@cache
def source_digest() -> str:
    """Return a digest of the files that hold kernels and of all of ours that they import, and of the compilers."""
    sources = _sources()
    wanted = {name for name, text in sources.items() if _USES_KERNELS.search(text)}
    reached: set[str] = set()
    while wanted:
        name = wanted.pop()
        reached.add(name)
        wanted |= _imports(sources[name]) & sources.keys() - reached
    digest = hashlib.sha256(f"{sys.version} {numba.__version__} {llvmlite.__version__}".encode())
    for name in sorted(reached):
        digest.update(f"{name} {len(sources[name])} {sources[name]}".encode())
    return digest.hexdigest()[:20]


def _sources() -> dict[str, str]:
    """Read every module of the packages that may hold kernels, by its dotted name."""
    sources = {}
    for package in _PACKAGES:
        spec = importlib.util.find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            for path in Path(folder).rglob("*.py"):
                inner = ".".join(path.relative_to(folder).with_suffix("").parts)
                sources[f"{package}.{inner}".removesuffix(".__init__")] = path.read_text(encoding="utf-8")
    return sources


def _imports(text: str) -> set[str]:
    """Return the dotted names of ours that a module imports at its top level, modules and names in them alike."""
    names = set()
    for module, lines, line, plain in _IMPORT.findall(re.sub(r"#.*", "", text)):
        names.add(module or plain)
        names |= {f"{module}.{name.split()[0]}" for name in (lines or line).split(",") if name.strip()}
    return names


class _LockedCache(FunctionCache):  # type: ignore[misc]
    """numba's cache of one function, for one process at a time; a file that cannot be read or written is no error."""

    def load_overload(self, sig: object, target_context: object) -> Any:
        try:
            with self._lock():
                return super().load_overload(sig, target_context)
        except (OSError, EOFError):
            return None

    def save_overload(self, sig: object, data: object) -> None:
        try:
            with self._lock():
                super().save_overload(sig, data)
        except (OSError, EOFError):
            return

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with Path(self.cache_path, "lock").open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

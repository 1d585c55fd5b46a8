"""Machine code of kernels: from the cache on disk, or compiled and put there.

Numba takes longer to import than all else together; a process that finds its kernels on disk does without it.  What is
kept lies under a digest of all files that kernels are made of: any change compiles them anew.  (numba's own cache looks
at the file of the function alone and keeps calling yesterday's code of a callee that has changed in another file; and
it is pickles.)
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Protocol

import numpy as np

from .cache import Store, keep, open_store
from .machinecode import Library, fingerprint
from .packages import is_ours
from .signatures import Made
from .sources import source_digest
from .turns import compiling


class Named(Protocol):
    """A kernel, as far as its code on disk goes."""

    __module__: str
    __qualname__: str
    store: Callable[[], Store | None]


@cache
def kernel_store() -> Store | None:
    """Return where this version's compiled kernels are kept; None when nothing can be."""
    return open_store("kernels", source_digest())


_find: Callable[[], Store | None] = kernel_store


def store_of_new() -> Callable[[], Store | None]:
    """Return the function that says where the code of a kernel that is defined now is kept."""
    return _find


@contextmanager
def kept_in(find: Callable[[], Store | None]) -> Iterator[None]:
    """Keep the code of the kernels that are defined meanwhile where `find` says, and not in the usual place."""
    global _find  # noqa: PLW0603
    before, _find = _find, find
    try:
        yield
    finally:
        _find = before


def name_of(kernel: Named) -> str:
    """Return the beginning of the names of files with compiled code."""
    return f"{kernel.__module__.removeprefix('switchsum').lstrip('._')}.{kernel.__qualname__}"


def stored(kernel: Named, types: str) -> tuple[Made, int] | None:
    """Return the code that is on disk for a kernel, and its address; None if there is none."""
    return _from_store(kernel.store(), _file_of(kernel, types))


def load(kernel: Named, types: str, compile_it: Callable[[], tuple[Made, bytes]]) -> tuple[Made, int]:
    """Return the code of a kernel, from the store or compiled now, and its address."""
    store, file = kernel.store(), _file_of(kernel, types)
    loaded = _from_store(store, file)
    if loaded is not None:
        return loaded
    with compiling(store, name_of(kernel)):
        loaded = _from_store(store, file)  # others may have compiled it meanwhile
        if loaded is not None:
            return loaded
        made, code = compile_it()
        if store is not None:
            keep(store, file, json.dumps(asdict(made)).encode() + b"\n" + code)
        return made, _link(made, code)


def address_of(array: np.ndarray[Any, Any]) -> int:
    """Return the address of an array's first byte."""
    try:
        return ctypes.addressof(_FROM_BUFFER(array.data))
    except (ValueError, TypeError, BufferError):  # empty, read-only, or of a dtype that a buffer does not have
        address: int = array.__array_interface__["data"][0]
        return address


_FROM_BUFFER: Final = ctypes.c_char.from_buffer
_libraries: list[Library] = []
"""Loaded code. It stays loaded, for anybody may have kept an address in it."""


def _file_of(kernel: Named, types: str) -> str:
    """Return the name of the file with the code for arguments of some types."""
    name = name_of(kernel)
    theirs = "" if is_ours(kernel.__module__) else _text_of(getattr(kernel, "py_func", None), set())
    digest = sha256("\n".join((fingerprint(), name, types, theirs)).encode()).hexdigest()[:16]
    return f"{name}.{digest}.object"


def _text_of(function: Any, seen: set[int]) -> str:
    """Return what a user's kernel is made of: its file, and whatever its code names of its module.

    The functions that it calls are included.  Our own kernels' files are in the store's digest.
    """
    code = getattr(function, "__code__", None)
    if code is None or id(code) in seen or is_ours(function.__module__):
        return ""
    seen.add(id(code))
    parts = [_file_text(code.co_filename)]
    for name in sorted(code.co_names):
        value = function.__globals__.get(name)
        if isinstance(value, ModuleType):
            theirs = getattr(value, "__file__", None) or ""
            parts.append(_file_text(theirs) if not is_ours(value.__name__) else "")
        else:
            called = getattr(value, "py_func", value)
            parts.append(_text_of(called, seen) if callable(called) else f"{name} = {_constant(value)}")
    return "\n".join(parts)


def _constant(value: Any) -> str:
    """Return a value that a kernel's code holds as a constant."""
    return f"{value.dtype} {value.tobytes()!r}" if isinstance(value, np.ndarray) else repr(value)


def _file_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return ""  # what was typed at a prompt has no file


def _from_store(store: Store | None, file: str) -> tuple[Made, int] | None:
    content = None if store is None else store.load(file)
    if content is None:
        return None
    head, _, code = content.partition(b"\n")
    made = Made(**json.loads(head))
    try:
        return made, _link(made, code)
    except RuntimeError:  # it uses what this process does not have
        return None


def _link(made: Made, code: bytes) -> int:
    given = dict.fromkeys(made.given, ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p).value or 0)
    library = Library(code, (made.symbol,), given)
    _libraries.append(library)
    return library.address(made.symbol)

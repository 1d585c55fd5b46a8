"""Compiled kernels by their names: machine code that is on disk is loaded without the modules that it is written in.

A worker begins so: it imports neither kernels nor numba, which takes longer to import than all else together.  What is
kept lies under a digest of all files that kernels are made of: any change compiles them anew.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from hashlib import sha256
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .cache import Store, open_store
from .machinecode import Library, fingerprint
from .sources import source_digest

if TYPE_CHECKING:
    from .kernels import Kernel, Outlined

VARIABLE: Final = "NUMBA_DISABLE_JIT"
"""Environment variable, which numba has, too."""
PLAIN: Final = os.environ.get(VARIABLE, "0") not in ("", "0")
"""Whether kernels are Python in this process."""

INTEGER: Final = "int"
FLOAT: Final = "float"
BOOLEAN: Final = "bool"
NOTHING: Final = "None"
C_TYPES: Final[dict[str, Any]] = {INTEGER: ctypes.c_int64, FLOAT: ctypes.c_double, BOOLEAN: ctypes.c_int64}


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What comes with the code of a kernel."""

    symbol: str
    """The function: of the arguments' words (see `kernels.flatten`) and, unless it is outlined, of the address of the
    results."""
    result: str
    """INTEGER, FLOAT, BOOLEAN or NOTHING; where there is no tuple."""
    results: tuple[str, ...] = ()
    """INTEGER or BOOLEAN each, of a tuple."""
    arguments: tuple[str, ...] = ()
    """INTEGER or FLOAT each, of what is outlined."""
    given: tuple[str, ...] = ()
    """What it uses of numba's where a kernel raises an exception, which none does."""


class Native:
    """A kernel that is called by its address (`kernels.Outlined`), known by its module and name."""

    def __init__(self, module: str, name: str, store: Callable[[], Store | None] | None = None) -> None:
        self.__module__, self.__qualname__ = module, name
        self.store = store or kernel_store

    def written(self) -> Outlined:
        """Import the kernel."""
        kernel: Outlined = getattr(import_module(self.__module__), self.__qualname__)
        return kernel

    def find(self) -> bool:
        """Load the code from disk, unless that was done; False where it is not there."""
        if "_code" not in self.__dict__ and (found := _from_store(self.store(), _file_of(self, ""))) is not None:
            self._code = found
        return "_code" in self.__dict__

    @cached_property
    def _code(self) -> tuple[Made, int]:
        def compile_it() -> tuple[Made, bytes]:
            from . import compiler  # noqa: PLC0415

            return compiler.outlined(self.written())

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


def prepare(natives: Iterable[Native]) -> None:
    """Have the code of kernels ready; of processes that start together one compiles all that is missing."""
    missing = [] if PLAIN else [native for native in natives if not native.find()]
    if missing:
        from .compiling import together  # noqa: PLC0415

        with together():
            assert all(native.address for native in missing)


@cache
def kernel_store() -> Store | None:
    """Return where this version's compiled kernels are kept; None when nothing can be."""
    return open_store("kernels", source_digest())


def name_of(kernel: Kernel | Native) -> str:
    """Return how the names begin under which what was compiled is stored."""
    return f"{kernel.__module__.removeprefix('switchsum.')}.{kernel.__qualname__}"


def load(kernel: Kernel | Native, types: str, compile_it: Callable[[], tuple[Made, bytes]]) -> tuple[Made, int]:
    """Return what was made for a kernel, from the store or compiled now, and its address."""
    store, file = kernel.store(), _file_of(kernel, types)
    loaded = _from_store(store, file)
    if loaded is not None:
        return loaded
    from .cache_writing import keep  # noqa: PLC0415
    from .compiling import compiling  # noqa: PLC0415

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
"""Code stays loaded: who knows an address of it."""


def _file_of(kernel: Kernel | Native, types: str) -> str:
    """Return the name of the file with the code for arguments of some types."""
    name = name_of(kernel)
    digest = sha256("\n".join((fingerprint(), name, types)).encode()).hexdigest()[:16]
    return f"{name}.{digest}.object"


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

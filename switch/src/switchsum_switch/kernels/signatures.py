"""What compiled code takes and returns: kinds of numbers, and what is kept beside the code."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Final

INTEGER: Final = "int"
FLOAT: Final = "float"
BOOLEAN: Final = "bool"
NOTHING: Final = "None"
C_TYPES: Final[dict[str, Any]] = {INTEGER: ctypes.c_int64, FLOAT: ctypes.c_double, BOOLEAN: ctypes.c_int64}
"""Kinds of arguments and results; a boolean comes as a word."""

Tag = Any
"""Kind of an argument, for which code is compiled: INTEGER, FLOAT, BOOLEAN, NOTHING (None), `(dtype, dimensions)` of an
array, or a tuple's class (`tuple` itself, or a NamedTuple) and the tags of its items."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What comes with the code of a kernel."""

    symbol: str
    """Name of the function.  Its arguments are words (see `decorators.py`) and, unless it is outlined, the address
    of the results."""
    result: str
    """Kind of the result, if it is no tuple: INTEGER, FLOAT, BOOLEAN or NOTHING."""
    results: tuple[str, ...] = ()
    """Kinds of the items of a result that is a tuple, INTEGER or BOOLEAN."""
    arguments: tuple[str, ...] = ()
    """Kinds of the arguments of an outlined kernel, INTEGER or FLOAT."""
    given: tuple[str, ...] = ()
    """numba's parts that are used if a kernel raises an exception, which none does."""

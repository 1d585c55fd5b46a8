"""What a collective is to the engine: an array, how it is added, and a digest that all members must agree in."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from switchsum.host.kernels import BFLOAT16, FLOAT16, FLOAT32, INT32, NO_DTYPE
from switchsum.protocol.errors import UnsupportedDtype, UsageError

_CODES: Final = {
    np.dtype(np.float32): FLOAT32,
    np.dtype(np.float16): FLOAT16,
    np.dtype(ml_dtypes.bfloat16): BFLOAT16,
    np.dtype(np.int32): INT32,
}
_WAYS_OUT: Final = {
    "float64": "allow narrow=True, or cast it to float32 first: array.astype(np.float32)",
    "longdouble": "cast it to float32 first: array.astype(np.float32)",
    "complex64": "reduce array.view(np.float32) instead",
    "complex128": "reduce array.astype(np.complex64).view(np.float32) instead",
    "bool": "cast it to int32 first: array.astype(np.int32)",
    "int8": "cast it to int32 first: array.astype(np.int32)",
    "uint8": "cast it to int32 first: array.astype(np.int32)",
    "int16": "cast it to int32 first: array.astype(np.int32)",
    "uint16": "cast it to int32 first: array.astype(np.int32)",
    "uint32": "cast it to int32 first where its values fit",
    "int64": "cast it to int32 first where its values fit",
    "uint64": "cast it to int32 first where its values fit",
}
OPERATORS: Final = ("sum", "average")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One collective; two members' are the same if kind, operator, dtype and shape are."""

    kind: str
    """The collective, and the root if it has one."""
    operator: str = "sum"
    """One of `OPERATORS`."""
    values: npt.NDArray[Any] | None = None
    """One-dimensional, contiguous, aligned, native and writable; reduced in place.  None: no values."""
    shape: tuple[int, ...] = ()
    """Of the caller's array."""
    dtype: str = ""
    """Likewise, where it is not that of `values`."""

    @property
    def code(self) -> int:
        """The kernels' number of the dtype."""
        return NO_DTYPE if self.values is None else _CODES[self.values.dtype]

    @property
    def size(self) -> int:
        """Number of values."""
        return 0 if self.values is None else self.values.size

    @property
    def dtype_name(self) -> str:
        """Name of the dtype of the caller's array."""
        return self.dtype or ("" if self.values is None else self.values.dtype.name)

    def digest(self, counter: int) -> int:
        """Return the 32-bit digest of the `counter`-th operation of a communicator."""
        return zlib.crc32(f"{counter} {self.kind} {self.operator} {self.dtype_name} {self.shape}".encode())

    def __str__(self) -> str:
        if self.values is None:
            return self.kind
        return f"{self.kind} ({self.operator}) of {self.dtype_name}{list(self.shape)}"


def check(dtype: np.dtype[Any], operator: str) -> None:
    """Refuse what the switch cannot add; raises UsageError or UnsupportedDtype."""
    if operator not in OPERATORS:
        raise UsageError(f"op must be one of {', '.join(OPERATORS)}, not {operator!r}")
    if dtype.newbyteorder("=") not in _CODES:
        names = ", ".join(known.name for known in _CODES)
        way_out = _WAYS_OUT.get(dtype.name, "cast it to one of these first")
        raise UnsupportedDtype(f"the switch adds {names}, not {dtype.name}: {way_out}")
    if operator == "average" and dtype.kind == "i":
        raise UnsupportedDtype(f"an average of {dtype.name} is no {dtype.name}: use op='sum' and divide as you need")

"""What a collective is to the engine: an array, how it is combined, and what all members must agree in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from switchsum.protocol.errors import UnsupportedDtype, UsageError
from switchsum.protocol.frame import LaneFormat, Operator

from . import integers
from .kernels import BFLOAT16, EXACT, FLOAT16, FLOAT32, NO_DTYPE

_FLOATS: Final = {
    np.dtype(np.float32): FLOAT32,
    np.dtype(np.float16): FLOAT16,
    np.dtype(ml_dtypes.bfloat16): BFLOAT16,
}
_INFINITIES: Final = {
    np.dtype(np.float64): 0x7FF0_0000_0000_0000,
    np.dtype(np.float32): 0x7F80_0000,
    np.dtype(np.float16): 0x7C00,
    np.dtype(ml_dtypes.bfloat16): 0x7F80,
}
"""Bits of infinity; those of NaN are greater."""
_INTEGERS: Final = {1: integers.INT8, 2: integers.INT16, 4: integers.INT32, 8: integers.INT64}
"""Number of the dtype by size in bytes."""
_INTEGER_LANES: Final = {
    integers.INT8: LaneFormat.INT8,
    integers.INT16: LaneFormat.INT16,
    integers.INT32: LaneFormat.INT32,
    integers.INT64: LaneFormat.INT64,
}
_OPERATORS: Final = {"average": Operator.SUM, **{operator.name.lower(): operator for operator in Operator}}
OPERATORS: Final = ("sum", *(name for name in _OPERATORS if name != "sum"))
BITWISE: Final = tuple(name for name, operator in _OPERATORS.items() if operator.is_bitwise)
SKIP_ZEROS: Final = tuple(name for name in OPERATORS if _OPERATORS[name].skips_zeros)
"""Those of which zero is the identity."""
FLOAT_LANES: Final = {"int32": LaneFormat.INT32, "int16": LaneFormat.INT16, "int8": LaneFormat.INT8}
"""What sums of floats may travel as."""
_WAYS_OUT: Final = {
    "float64": "allow narrow=True, or cast it to float32 first: array.astype(np.float32)",
    "complex64": "reduce array.view(np.float32) instead",
    "complex128": "reduce array.astype(np.complex64).view(np.float32) instead",
    "bool": "use op='or' or op='max', or cast it to int32 first: array.astype(np.int32)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One collective; two members' are the same if kind, operator, dtype, lanes and shape are."""

    kind: str
    """The collective, and the root if it has one."""
    operator: str = "sum"
    """One of `OPERATORS`."""
    lanes: str = "int32"
    """One of `FLOAT_LANES`: what floats that are added travel as; others travel as themselves."""
    values: npt.NDArray[Any] | None = None
    """One-dimensional, contiguous, aligned, native and writable; reduced in place.  None: no values."""
    shape: tuple[int, ...] = ()
    """Of the caller's array."""
    dtype: str = ""
    """Likewise, where it is not that of `values`."""
    exact: bool = False
    """Float32, so few that one frame holds them without loss: see `switchsum.host.engine.exact`."""
    part: int = 0
    """Values of which each rank has its own part; 0: all values are all ranks'."""
    root: int = 0
    """Rank of which the first part is."""
    gathers: bool = False
    """Whether a part is what its rank gives to all others, and not what it gets of them."""

    @property
    def code(self) -> int:
        """The kernels' number of the dtype: how a value lies in memory and what is done to it."""
        if self.values is None:
            return NO_DTYPE
        if self.exact:
            return EXACT
        if self.wire_operator is Operator.SUM and self.values.dtype in _FLOATS:
            return _FLOATS[self.values.dtype]
        return _INTEGERS[self.values.dtype.itemsize]

    @property
    def size(self) -> int:
        """Number of values."""
        return 0 if self.values is None else self.values.size

    @property
    def wire_operator(self) -> Operator:
        """What the switch does."""
        return _OPERATORS[self.operator]

    @property
    def format(self) -> LaneFormat:
        """How lanes are divided."""
        return _INTEGER_LANES.get(self.code, FLOAT_LANES[self.lanes])

    @property
    def is_dense(self) -> bool:
        """Whether blocks of zeros must travel, zero being no identity of the operator."""
        return not self.wire_operator.skips_zeros

    @property
    def is_unsigned(self) -> bool:
        """Whether values are integers without sign."""
        return self.values is not None and self.values.dtype.kind == "u"

    @property
    def is_split(self) -> bool:
        """Whether blocks are added in parts from the start: the switch sees overflows of signed lanes only."""
        return self.is_unsigned and self.wire_operator is Operator.SUM

    @property
    def mapping(self) -> int:
        """What a lane holds of an integer, or of a float's bits."""
        is_ordered = self.wire_operator in (Operator.MAX, Operator.MIN)
        if not is_ordered or self.values is None or self.values.dtype.kind == "i":
            return integers.AS_IS
        if self.values.dtype in _INFINITIES:
            return integers.FLOAT_MAX if self.wire_operator is Operator.MAX else integers.FLOAT_MIN
        return integers.UNSIGNED

    @property
    def infinity(self) -> int:
        """Bits of infinity, of floats."""
        return 0 if self.values is None else _INFINITIES.get(self.values.dtype, 0)

    @property
    def dtype_name(self) -> str:
        """Name of the dtype of the caller's array."""
        return self.dtype or ("" if self.values is None else self.values.dtype.name)

    @property
    def text(self) -> str:
        """What all members must agree in."""
        return f"{self.kind} {self.operator} {self.lanes} {self.dtype_name} {self.shape}"

    def __str__(self) -> str:
        if self.values is None:
            return self.kind
        lanes = "" if self.lanes == "int32" else f", {self.lanes} lanes"
        return f"{self.kind} ({self.operator}{lanes}) of {self.dtype_name}{list(self.shape)}"


def check(dtype: np.dtype[Any], operator: str, lanes: str) -> None:
    """Refuse what the switch cannot combine; raises UsageError or UnsupportedDtype."""
    if operator not in OPERATORS:
        raise UsageError(f"op must be one of {', '.join(OPERATORS)}, not {operator!r}")
    if lanes not in tuple(FLOAT_LANES):
        raise UsageError(f"lanes must be one of {', '.join(FLOAT_LANES)}, not {lanes!r}")
    native = dtype.newbyteorder("=")
    is_float, is_integer = native in _FLOATS, native.kind in "iu"
    is_bool = native.kind == "b"
    if operator in BITWISE and not (is_integer or is_bool):
        raise UnsupportedDtype(f"op={operator!r} takes integers and bool, not {dtype.name}")
    if operator in ("max", "min") and not (is_integer or is_bool or native in _INFINITIES):
        raise UnsupportedDtype(f"op={operator!r} takes integers, bool and real floats, not {dtype.name}")
    if operator in ("sum", "average") and not (is_float or is_integer):
        way_out = _WAYS_OUT.get(dtype.name, "cast it to one of these first")
        raise UnsupportedDtype(f"the switch adds float32, float16, bfloat16 and integers, not {dtype.name}: {way_out}")
    if operator == "average" and is_integer:
        raise UnsupportedDtype(f"an average of {dtype.name} is no {dtype.name}: use op='sum' and divide as you need")
    if lanes != "int32" and not (is_float and operator in ("sum", "average")):
        raise UsageError(f"{lanes} lanes are for sums and averages of floats, not for {operator} of {dtype.name}")

"""Describes a collective to the engine: its values, how to combine them, and what all members must agree in."""

from __future__ import annotations

import zlib
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from switchsum_protocol.errors import UnsupportedDtype, UsageError
from switchsum_protocol.frame import FLOAT_FORMATS, NO_BLOCK, LaneFormat, Operator
from switchsum_protocol.lane_scales import NARROW_SUM_BITS, full_scale
from switchsum_switch.kernels.loading import address_of

from .dtypes import (
    AS_IS,
    BFLOAT16,
    EXACT,
    FLOAT16,
    FLOAT32,
    FLOAT_MAX,
    FLOAT_MIN,
    INT8,
    INT16,
    INT32,
    INT64,
    NO_DTYPE,
    UNSIGNED,
    has_marks,
    most_values,
)
from .state import OPERATION

Array = npt.NDArray[Any]

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
_INTEGERS: Final = {1: INT8, 2: INT16, 4: INT32, 8: INT64}
"""Number of the dtype by size in bytes."""
_INTEGER_LANES: Final = {
    INT8: LaneFormat.INT8,
    INT16: LaneFormat.INT16,
    INT32: LaneFormat.INT32,
    INT64: LaneFormat.INT64,
}
_OPERATORS: Final = {"average": Operator.SUM, **{operator.name.lower(): operator for operator in Operator}}
OPERATORS: Final = ("sum", *(name for name in _OPERATORS if name != "sum"))
BITWISE: Final = tuple(name for name, operator in _OPERATORS.items() if operator.is_bitwise)
SKIP_ZEROS: Final = tuple(name for name in OPERATORS if _OPERATORS[name].skips_zeros)
"""Operators of which zero is the identity."""
EACH: Final = "each"  # each value has its own exponent: switchsum_host.api.each
FLOAT_LANES: Final = {**FLOAT_FORMATS, EACH: LaneFormat.INT32}
"""Lane formats for sums of floats, by the name that users write."""
INT4: Final = "int4"  # for sums of int8 whose values are -8 to 7: half a lane travels up
INT4_LEAST: Final = -8
INT4_MOST: Final = 7
INT4_MOST_WORKERS: Final = 16
"""Most workers: 16 times -8 is the least number of a lane of 8 bits."""
LANES: Final = (*FLOAT_LANES, INT4)
"""All lanes that users may name."""
_WAYS_OUT: Final = {
    "float64": "pass narrow=True, or make it float32 before the call: array = array.astype(np.float32)",
    "complex64": "reduce array.view(np.float32) instead",
    "complex128": "reduce array.astype(np.complex64).view(np.float32) instead",
    "bool": "use op='or' or op='max', or make it int32 before the call: array = array.astype(np.int32)",
}
MARKS: Final = int(OPERATION.fields["marks"][1]) // 8  # type: ignore[index]
"""Index of the field `marks` among the 64-bit words of an `OPERATION`; word 0 is the array's address."""
_NO_RECORD: Final = memoryview(b"")
_MOST_KNOWN: Final = 1024
KNOWN: Final[OrderedDict[int, Operation]] = OrderedDict()
"""The latest operations that were made, by the digest of what members must agree in: reports name them."""


@dataclass(slots=True, kw_only=True)
class Operation:
    """One collective.  Two members' collectives are the same if their `text` is; its digest is in every frame.

    Describes a collective without its array, so that it can be begun on every array of the same shape and dtype.  To
    add a loss of one value, for instance, takes less time than to describe it: it is described once.
    """

    kind: str
    """The collective, and the root if it has one."""
    operator: str = "sum"
    """One of `OPERATORS`."""
    lanes: str = "int32"
    """One of `LANES`: what floats that are added travel as, or int8 of so few bits; others travel as themselves."""
    dtype: np.dtype[Any] | None = None
    """Dtype of the values that are added. None: there are none."""
    size: int = 0
    """Number of values."""
    shape: tuple[int, ...] = ()
    """Shape of the caller's array."""
    dtype_name: str = ""
    """Dtype of the caller's array, as `described` writes it."""
    options: tuple[str, ...] = ()
    """Names of the caller's options that are on: "narrow", "saturate"."""
    label: str = ""
    """Label of the caller, and whatever else members must agree in. Errors call the operation so."""
    words: str = ""
    """Name of the operation in errors, if members need not agree in it."""
    exact: bool = False
    """Float32, so few that one frame holds them without loss: see `switchsum_host.engine.exact`."""
    part: int = 0
    """Number of values in each rank's part; 0: there are no parts, all values belong to all ranks."""
    root: int = 0
    """Rank that the first part belongs to."""
    gathers: bool = False
    """True: a rank gives its part to all others. False: it gets its part from them."""
    steps: tuple[Operation, ...] = field(default=(), init=False, repr=False)  # see EACH
    blocks: int = field(default=0, init=False)
    """Number of blocks. A block has as many values as a frame holds."""
    has_marks: bool = field(default=False, init=False)
    """Whether an array is begun with a byte for each block of integers, in which the engine notes an overflow."""
    address: int = field(default=0, init=False)
    """Address of the `OPERATION` record, once `make_record` was called."""
    addresses: memoryview = field(default=_NO_RECORD, init=False, repr=False)
    """The record as 64-bit words. The first is the address of the array that it is begun on; one is `MARKS`."""

    @classmethod
    def of(cls, values: Array, kind: str = "allreduce", **facts: Any) -> Operation:
        """Return an operation on `values`, which are the caller's array if `facts` do not say otherwise."""
        known: dict[str, Any] = {"dtype": values.dtype, "size": values.size}
        known |= {"shape": values.shape, "dtype_name": values.dtype.name, **facts}
        return cls(kind=kind, **known)

    def make_record(self, lanes_per_frame: int, world_size: int) -> None:
        """Divide the array into blocks, for frames of so many 32-bit lanes, and make the record; raises UsageError."""
        if self.address:
            return
        code, format_ = self.code, self.format
        if self.lanes == INT4 and world_size > INT4_MOST_WORKERS:
            raise UsageError(f"int4 lanes add at most {INT4_MOST_WORKERS} ranks, not {world_size}: leave lanes= out")
        per_block = lanes_per_frame * LaneFormat.INT32.bits // format_.bits
        if code == EXACT:
            per_block = most_values(lanes_per_frame)
        if per_block == 0:
            raise UsageError(f"frames of {lanes_per_frame} lanes cannot hold {self.dtype_name}")
        self.blocks = -(-self.size // per_block)
        if self.blocks >= NO_BLOCK:
            raise UsageError(f"{self.size} values are too many for blocks of {per_block}")
        self.has_marks = has_marks(code)
        share = 1.0 / world_size if self.operator == "average" else 1.0
        scale = full_scale(world_size, format_.value_bits, max(format_.bits, NARROW_SUM_BITS))
        record = np.zeros(1, OPERATION)
        facts = {
            "size": self.size,
            "dtype": code,
            "operator": self.wire_operator,
            "format": format_,
            "per_block": per_block,
            "mapping": self.mapping,
            "infinity": self.infinity,
            "unsigned": self.is_unsigned,
            "split": self.is_split,
            "dense": self.is_dense,
            "blocks": self.blocks,
            "share": share,
            "scale": scale,
            "step": 1.0 / scale * share,
            "part": self.part,
            "root": self.root,
            "gathers": self.gathers,
            "digest": zlib.crc32(self.text.encode()),  # all members agree in it but for the operation's number
        }
        for name, value in facts.items():
            record[name] = value
        KNOWN[int(record[0]["digest"])] = self
        if len(KNOWN) > _MOST_KNOWN:
            KNOWN.popitem(last=False)
        self.addresses = memoryview(record.view(np.uint8).data).cast("q")
        self.address = address_of(record.view(np.int64))

    @property
    def code(self) -> int:
        """The kernels' number of the dtype: how a value lies in memory and what is done to it."""
        if self.dtype is None:
            return NO_DTYPE
        if self.exact:
            return EXACT
        if self.wire_operator is Operator.SUM and self.dtype in _FLOATS:
            return _FLOATS[self.dtype]
        return _INTEGERS[self.dtype.itemsize]

    @property
    def wire_operator(self) -> Operator:
        """Operator with which the switch combines lanes."""
        return _OPERATORS[self.operator]

    @property
    def format(self) -> LaneFormat:
        """Format of the lanes that values travel in."""
        if self.lanes == INT4:
            return LaneFormat.NIBBLES
        return _INTEGER_LANES.get(self.code, FLOAT_LANES[self.lanes])

    @property
    def is_dense(self) -> bool:
        """Whether blocks of zeros must travel, zero being no identity of the operator."""
        is_least = self.wire_operator is Operator.MAX and self.is_unsigned
        return not (self.wire_operator.skips_zeros or is_least)

    @property
    def is_unsigned(self) -> bool:
        """Whether values are integers without sign."""
        return self.dtype is not None and self.dtype.kind == "u"

    @property
    def is_split(self) -> bool:
        """Whether blocks are added in parts from the start: the switch sees overflows of signed lanes only."""
        return self.is_unsigned and self.wire_operator is Operator.SUM

    @property
    def mapping(self) -> int:
        """Mapping from an integer, or from a float's bits, to its lane."""
        is_ordered = self.wire_operator in (Operator.MAX, Operator.MIN)
        if not is_ordered or self.dtype is None or self.dtype.kind == "i":
            return AS_IS
        if self.dtype in _INFINITIES:
            return FLOAT_MAX if self.wire_operator is Operator.MAX else FLOAT_MIN
        return UNSIGNED

    @property
    def infinity(self) -> int:
        """Bits of a float's infinity."""
        return 0 if self.dtype is None else _INFINITIES.get(self.dtype, 0)

    @property
    def text(self) -> str:
        """What all members must agree in."""
        facts = self.kind, self.operator, self.lanes, self.dtype_name, self.shape, *self.options, self.label
        return " ".join(map(str, facts))

    def __str__(self) -> str:
        lanes = () if self.lanes == "int32" else (f"{self.lanes} lanes",)
        if called := self.words or self.label:
            return ", ".join([called, *lanes])
        if self.dtype is None:
            return self.kind
        how = "" if self.gathers else f" ({', '.join([self.operator, *lanes, *self.options])})"
        return f"{self.kind}{how} of {self.dtype_name}{list(self.shape)}"


def described(dtype: np.dtype[Any]) -> str:
    """Describe a dtype: two with the same description have the same bits for the same value.

    >>> described(np.dtype([("a", "<i2"), ("b", ">f8", (3,))]))
    '{a: int16 at 0, b: float64>[3] at 2, 26 bytes}'
    """
    if dtype.names is not None:
        fields = [(name, *dtype.fields[name][:2]) for name in dtype.names]  # type: ignore[index]
        parts = [f"{name}: {described(part)} at {offset}" for name, part, offset in fields]
        return f"{{{', '.join([*parts, f'{dtype.itemsize} bytes'])}}}"
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return f"{described(base)}{list(shape)}"
    return dtype.name + dtype.byteorder.replace("=", "").replace("|", "")


def check(dtype: np.dtype[Any], operator: str, lanes: str) -> None:
    """Refuse what the switch cannot combine; raises UsageError or UnsupportedDtype."""
    if operator not in OPERATORS:
        raise UsageError(f"op must be one of {', '.join(OPERATORS)}, not {operator!r}")
    if lanes not in LANES:
        raise UsageError(f"lanes must be one of {', '.join(LANES)}, not {lanes!r}")
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
        raise UnsupportedDtype(f"{dtype.name} cannot be averaged: use op='sum', and divide the sum yourself")
    if lanes == INT4:
        if native != np.int8 or operator != "sum":
            raise UsageError(f"int4 lanes are for sums of int8, not for {operator} of {dtype.name}")
    elif lanes != "int32" and not (is_float and operator in ("sum", "average")):
        raise UsageError(f"{lanes} lanes are for sums and averages of floats, not for {operator} of {dtype.name}")

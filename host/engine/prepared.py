"""An operation as the engine's kernels see it, but for its array and its number: a small one is not described twice.

What comes back again and again, a loss or a norm of one value, takes less time to add than to describe.
"""

from __future__ import annotations

import zlib
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from switchsum.native.memory import address_of
from switchsum.protocol.errors import UsageError
from switchsum.protocol.frame import MAX_WORKERS, NO_BLOCK, LaneFormat

from .exact import most_values
from .kernels import BFLOAT16, EXACT, FLOAT16, FLOAT32, has_marks
from .operation import Operation
from .state import OPERATION

_MARKS: Final = int(OPERATION.fields["marks"][1]) // 8  # type: ignore[index]
"""Which 64-bit word of an `OPERATION` that is; the array's address is the first one."""


class Prepared:
    """What operations have in common that differ in their arrays alone."""

    def __init__(self, operation: Operation, lanes_per_frame: int, world_size: int) -> None:
        """Prepare an operation for frames of so many 32-bit lanes; raises UsageError."""
        per_block = lanes_per_frame * LaneFormat.INT32.bits // operation.format.bits
        if world_size > MAX_WORKERS and operation.code in (FLOAT32, FLOAT16, BFLOAT16):
            from switchsum.protocol.world import check_lanes  # noqa: PLC0415

            check_lanes(operation.lanes, world_size)
        if operation.code == EXACT:
            per_block = most_values(lanes_per_frame)
        if per_block == 0:
            raise UsageError(f"frames of {lanes_per_frame} lanes cannot hold {operation.dtype_name}")
        self.blocks = -(-operation.size // per_block)
        if self.blocks >= NO_BLOCK:
            raise UsageError(f"{operation.size} values are too many for blocks of {per_block}")
        self.name = str(operation)
        """What it is called in messages."""
        self.dtype_name = operation.dtype_name
        """Name of the dtype of the callers' arrays."""
        self.has_marks = has_marks(operation.code)
        self.marks: npt.NDArray[np.uint8] | None = None
        """A byte for each block of integers, zero before the operation: of the last array that was filled in."""
        record = np.zeros(1, OPERATION)
        facts = {
            "size": operation.size,
            "dtype": operation.code,
            "operator": operation.wire_operator,
            "format": operation.format,
            "per_block": per_block,
            "mapping": operation.mapping,
            "infinity": operation.infinity,
            "unsigned": operation.is_unsigned,
            "split": operation.is_split,
            "dense": operation.is_dense,
            "blocks": self.blocks,
            "share": 1.0 / world_size if operation.operator == "average" else 1.0,
            "part": operation.part,
            "root": operation.root,
            "gathers": operation.gathers,
            "digest": zlib.crc32(operation.text.encode()),  # all members agree in it but for the operation's number
        }
        for name, value in facts.items():
            record[name] = value
        self._words = memoryview(record.view(np.int64).data)
        self.record = memoryview(record.view(np.uint8).data)
        """One `OPERATION`, as bytes, ready to be submitted."""
        self.address = address_of(record.view(np.int64))
        """Of the record."""

    def fill(self, array: npt.NDArray[Any] | None) -> None:
        """Fill in an array, which is added in place."""
        self.marks = np.zeros(self.blocks, np.uint8) if self.has_marks else None
        self._words[0] = 0 if array is None else address_of(array)
        self._words[_MARKS] = 0 if self.marks is None else address_of(self.marks)

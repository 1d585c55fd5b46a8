"""An operation as the engine's kernels see it, but for its array and its number: a small one is not described twice.

What comes back again and again, a loss or a norm of one value, takes less time to add than to describe.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final

from switchsum.protocol.errors import UsageError
from switchsum.protocol.frame import NO_BLOCK, LaneFormat

from .operation import Operation
from .state import OPERATION

_OWN: Final = [OPERATION[name] for name in OPERATION.names[: OPERATION.names.index("columns")]]  # type: ignore[index,union-attr]
_FORMAT: Final = struct.Struct("".join("d" if kind.kind == "f" else "q" for kind in _OWN))
"""What an `OPERATION` begins with: the fields that `submit` does not fill in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What operations have in common that differ in their arrays alone."""

    name: str
    """What they are called in messages."""
    dtype_name: str
    """Name of the dtype of the callers' arrays."""
    size: int
    """Values of an array."""
    blocks: int
    """Blocks of an array."""
    facts: tuple[int | float, ...]
    """Fields of `OPERATION` from `dtype` to `share`."""
    digest: int
    """32 bits, of what all members must agree in but the operation's number."""

    def fill(self, records: memoryview | bytearray, index: int, array: int, marks: int) -> None:
        """Fill in a record of `records`, of bytes, but for what `submit` does; with the addresses of array and marks.

        The array is what is added; the marks are a zero for each block, if it is of integers.
        """
        _FORMAT.pack_into(records, index * OPERATION.itemsize, array, self.size, *self.facts, marks, self.digest)


def prepare(operation: Operation, lanes: int, world_size: int) -> Prepared:
    """Prepare an operation for frames of so many 32-bit lanes; raises UsageError."""
    per_block = lanes * LaneFormat.INT32.bits // operation.format.bits
    if per_block == 0:
        raise UsageError(f"frames of {lanes} lanes cannot hold {operation.dtype_name}")
    blocks = -(-operation.size // per_block)
    if blocks >= NO_BLOCK:
        raise UsageError(f"{operation.size} values are too many for blocks of {per_block}")
    return Prepared(
        name=str(operation),
        dtype_name=operation.dtype_name,
        size=operation.size,
        blocks=blocks,
        facts=(
            operation.code,
            operation.wire_operator,
            operation.format,
            per_block,
            operation.mapping,
            operation.infinity,
            operation.is_unsigned,
            operation.is_split,
            operation.is_dense,
            blocks,
            operation.urgent,
            1.0 / world_size if operation.operator == "average" else 1.0,
        ),
        digest=zlib.crc32(operation.text.encode()),
    )

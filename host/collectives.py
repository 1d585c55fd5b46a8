"""Callers' arrays as the engine wants them, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from switchsum.host.operation import Operation, check
from switchsum.protocol.errors import UsageError

BARRIER = Operation(kind="barrier")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """An allreduce of a caller's array."""

    array: npt.NDArray[Any]
    """The caller's."""
    operation: Operation
    """What the engine runs: on the array itself if it can be, else on a copy."""

    def deliver(self) -> None:
        """Write the result to the caller's array, where it is not already."""
        values = self.operation.values
        if values is not None and not np.may_share_memory(values, self.array):
            self.array[...] = values.reshape(self.array.shape)


def allreduce(array: npt.NDArray[Any], operator: str) -> Reduction:
    """Prepare an allreduce; raises UsageError or UnsupportedDtype.

    An array that is contiguous in C's order, aligned and in the machine's byte order is reduced where it is; any other
    one is copied, so that all ranks add the same elements whatever their arrays' layout.
    """
    if not isinstance(array, np.ndarray):
        raise UsageError(f"allreduce takes a numpy array, not {type(array).__name__}")
    check(array.dtype, operator)
    if not array.flags.writeable:
        raise UsageError("allreduce works in place, and this array is read-only")
    if array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative:
        values = array.reshape(-1)
    else:
        values = np.array(array, dtype=array.dtype.newbyteorder("="), order="C").reshape(-1)
    operation = Operation(kind="allreduce", operator=operator, values=values.view(np.ndarray), shape=array.shape)
    return Reduction(array=array, operation=operation)

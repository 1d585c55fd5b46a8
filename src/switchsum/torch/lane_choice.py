"""Chooses the lanes of a tensor's sum, since torch's calls have no argument for them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from switchsum_host.api.communicator import Communicator
from switchsum_host.engine.operation import EACH, FLOAT_LANES
from switchsum_protocol.errors import UsageError

VARIABLE: Final = "SWITCHSUM_LANES"
FEW_BYTES: Final = 16 * 1024
"""Tensors up to this size travel in lanes of 32 bits in any case: there is little to save, and counts stay exact."""
WIDEST: Final = "int32"
MOST_RANKS: Final = {128: 8, 256: 8, 2048: 4}
"""Most ranks with which sums of bfloat16 in lanes of 16 bits are no worse than gloo's ring, by lanes in a frame. That
ring rounds to bfloat16: docs/accuracy.md. Sums of float16, which has three bits more, are worse.
"""

_BFLOAT16: Final = np.dtype(ml_dtypes.bfloat16)
_of_thread = threading.local()
"""Thread-local: `lanes`, the lane format of this thread's calls."""


def check_lanes(lanes: str | None, name: str) -> str | None:
    """Return lanes that floats can travel as, or None; raises UsageError."""
    if lanes is not None and lanes not in tuple(FLOAT_LANES):
        raise UsageError(f"{name} is {lanes!r}: it must be one of {', '.join(FLOAT_LANES)}, or not set")
    return lanes


def asked_for() -> str | None:
    """Return the lanes of all sums of a group that is made now, by the environment; raises UsageError."""
    return check_lanes(os.environ.get(VARIABLE) or None, VARIABLE)


@contextmanager
def lanes(kind: str) -> Iterator[None]:
    """Set what sums of floats travel as, for all calls that this thread makes within the block.

    All ranks do so for the same calls.  Tensors up to 16 KiB travel in lanes of 32 bits all the same, unless the lanes
    are "each": then the bits of a sum do not depend on what it travels with.  The block comes before the group's own
    `lanes`, and before `SWITCHSUM_LANES`.

    Args:
        kind: "int32", "int16", "int8" or "each", as in `Communicator.allreduce`.

    Returns:
        A context manager.

    Raises:
        UsageError: There are no such lanes.

    Example:
        >>> import torch
        >>> import torch.distributed as dist
        >>> import switchsum.torch
        >>> dist.init_process_group("switchsum", store=dist.HashStore(), rank=0, world_size=1)
        >>> activations = torch.ones(10_000)
        >>> with switchsum.torch.lanes("int16"):
        ...     dist.all_reduce(activations)
        >>> dist.destroy_process_group()

    """
    check_lanes(kind, "lanes")
    before, _of_thread.lanes = of_call(), kind
    try:
        yield
    finally:
        _of_thread.lanes = before


def of_call() -> str | None:
    """Return what this thread's calls are to travel as, by `lanes`."""
    return getattr(_of_thread, "lanes", None)


def lanes_for(values: npt.NDArray[Any], operator: str, communicator: Communicator, asked: str | None) -> str:
    """Return what values travel as: the same on all ranks that reduce the same."""
    is_float = values.dtype == _BFLOAT16 or values.dtype.kind == "f"
    if operator not in ("sum", "average") or not is_float:
        return WIDEST
    if values.nbytes <= FEW_BYTES and asked != EACH:
        return WIDEST
    if asked is not None:
        return asked
    is_narrow = values.dtype == _BFLOAT16 and communicator.world_size <= MOST_RANKS.get(communicator.lanes_per_frame, 0)
    return "int16" if is_narrow else WIDEST


def rows_lanes(asked: str | None) -> str:
    """Return what rows of sparse tensors travel as."""
    return EACH if asked == EACH else WIDEST

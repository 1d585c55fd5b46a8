"""What a tensor's sum travels as: torch's calls have no argument for it."""

from __future__ import annotations

import os
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from switchsum.host.api.communicator import Communicator
from switchsum.host.engine.operation import FLOAT_LANES
from switchsum.protocol.errors import UsageError

VARIABLE: Final = "SWITCHSUM_LANES"
FEW_BYTES: Final = 16 * 1024
"""Tensors up to this size travel in lanes of 32 bits in any case: there is little to save, and counts stay exact."""
WIDEST: Final = "int32"
MOST_RANKS: Final = {128: 8, 256: 8, 2048: 4}
"""By lanes in a frame, up to how many ranks sums of bfloat16 in lanes of 16 bits are no worse than gloo's ring.

That is one that rounds to bfloat16: docs/accuracy.md.  Sums of float16, which has three bits more, are worse."""

_BFLOAT16: Final = np.dtype(ml_dtypes.bfloat16)


def asked_for() -> str | None:
    """Return what all large sums of floats are to travel as, by the environment; raises UsageError."""
    lanes = os.environ.get(VARIABLE) or None
    if lanes is not None and lanes not in tuple(FLOAT_LANES):
        raise UsageError(f"{VARIABLE} is {lanes!r}: it must be one of {', '.join(FLOAT_LANES)}, or not set")
    return lanes


def lanes_for(values: npt.NDArray[Any], operator: str, communicator: Communicator, asked: str | None) -> str:
    """Return what values travel as: the same on all ranks that reduce the same."""
    is_float = values.dtype == _BFLOAT16 or values.dtype.kind == "f"
    if operator not in ("sum", "average") or not is_float or values.nbytes <= FEW_BYTES:
        return WIDEST
    if asked is not None:
        return asked
    is_narrow = values.dtype == _BFLOAT16 and communicator.world_size <= MOST_RANKS.get(communicator.lanes_per_frame, 0)
    return "int16" if is_narrow else WIDEST

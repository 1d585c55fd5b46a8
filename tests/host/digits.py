"""Exact lanes of a few floats, as arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from switchsum_host.engine import dtypes, exact
from switchsum_switch.kernels.loading import address_of


def digits_of(values: npt.NDArray[np.float32]) -> npt.NDArray[np.int32]:
    """Return the lanes of values, as the switch sees them."""
    frame = np.full(values.size * dtypes.DIGITS + 1, 7, ">i4")
    exact.pack_exact(address_of(values), values.size, address_of(frame.view(np.uint8)), frame.size)
    return frame.astype(np.int32)


def put_sums(digits: npt.NDArray[np.int32], share: float, values: npt.NDArray[np.float32]) -> None:
    """Write the sums that lanes have come to."""
    frame = digits.astype(">i4")
    exact.unpack_exact(address_of(frame.view(np.uint8)), values.size, address_of(values), share)

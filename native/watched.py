"""Descriptors that kernels sleep on (`system.poll`)."""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

Watched = npt.NDArray[np.int32]
"""Descriptors to sleep on, `[n, 2]`: `struct pollfd` as two words."""

READY: Final = (select.POLLIN | select.POLLHUP | select.POLLERR) << 16
"""Bits of a watched descriptor's second word that `sleep` sets: something came, or it was hung up."""


def watch(descriptors: Sequence[int]) -> Watched:
    """Return what `sleep` takes, for descriptors that become readable."""
    return np.array([(descriptor, select.POLLIN) for descriptor in descriptors], np.int32).reshape(-1, 2)

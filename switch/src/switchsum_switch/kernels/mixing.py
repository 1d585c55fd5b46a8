"""Numbers that are drawn by counting, for kernels that round at random: what is drawn depends on seed and index alone.

So ranks, processes and the order of loops make no difference.  `switchsum_protocol.lanes.mixed` is the definition.
"""

from __future__ import annotations

import numpy as np

from switchsum_switch.kernels.constants import GOLDEN

from .decorators import inner
from .memory import Scalar
from .plain import wrapping


@inner
@wrapping
def drawn_at(seed: Scalar, index: Scalar) -> Scalar:
    """Return the 32 random bits that belong to a seed of 32 bits and an index."""
    return mixed(np.uint32(np.uint32(seed) + np.uint32(np.uint32(index) * np.uint32(GOLDEN))))


@inner
@wrapping
def turned_at(seed: Scalar, index: Scalar, turn: Scalar) -> Scalar:
    """Return the bits of `drawn_at` plus a `turn`, modulo 2**32: spread as evenly, but other bits."""
    return np.uint32(drawn_at(seed, index) + np.uint32(turn))


@inner
@wrapping
def mixed(word: Scalar) -> Scalar:
    """Mix the bits of a uint32 (the finaliser of MurmurHash3, which is in the public domain)."""
    word = np.uint32(word ^ (word >> np.uint32(16)))
    word = np.uint32(word * np.uint32(0x85EB_CA6B))
    word = np.uint32(word ^ (word >> np.uint32(13)))
    word = np.uint32(word * np.uint32(0xC2B2_AE35))
    return np.uint32(word ^ (word >> np.uint32(16)))

"""Hashes of keys: `rows.py` places rows by them, and `lookups.py` writes native code that computes the same."""

from __future__ import annotations

from typing import Final

HASH_FACTOR: Final = 0x9E3779B97F4A7C15
"""2**64 divided by the golden ratio (Knuth, volume 3, section 6.4); odd, so that no information is lost."""
_WORD: Final = (1 << 64) - 1


def hash_key(key: int, bits: int, seed: int = 0) -> int:
    """Return the hash of a key of `bits` bits, a multiple of 64; native code computes the same."""
    state = seed
    for shift in range(0, bits, 64):
        state = ((state ^ (key >> shift & _WORD)) * HASH_FACTOR) & _WORD
        state ^= state >> 32
    return state


def tag_of(state: int) -> int:
    """Return the tag of a slot whose key has that hash."""
    return state >> 56 | 1

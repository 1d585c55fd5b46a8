"""Constants that kernels and their definitions in plain Python share."""

from __future__ import annotations

from typing import Final

GOLDEN: Final = 0x9E37_79B9
"""2**32 over the golden ratio: its multiples are spread evenly."""

"""Counts calls that go over gloo because the switch does not do them, and warns of them."""

from __future__ import annotations

import os
import sys
import warnings
from collections import Counter
from typing import Final

import torch

from switchsum_protocol.errors import UnsupportedDtype

STRICT = "SWITCHSUM_STRICT"
"""Environment variable: set to 1, what the switch cannot reduce raises."""
GLOOS: Final = {
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool),
}
"""The dtypes that every call of gloo takes, complex numbers apart; of others it says "Invalid scalar type"."""
_OURS: Final = ("switchsum.", "torch.")


class Detours:
    """Counts a group's calls that gloo serves, warns of the first reduction among them, and refuses them if told to."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._has_warned = False

    def note(self, call: str) -> None:
        """Count a call that is gloo's by design: from one rank to another, or to all a value of its own."""
        self.counts[call] += 1

    def take(self, call: str, dtype: torch.dtype | None = None) -> None:
        """Count a call that is gloo's because the switch cannot do it.

        Raises UnsupportedDtype if that is forbidden, or if gloo cannot add values of `dtype`.
        """
        text = f"the switch cannot do {call}"
        if dtype is not None and dtype not in GLOOS and not dtype.is_complex:
            raise UnsupportedDtype(
                f"{text}, and gloo cannot either: convert the tensor, for example with .to(torch.float32)"
            )
        if os.environ.get(STRICT, "") not in ("", "0"):
            raise UnsupportedDtype(f"{text}, and {STRICT} forbids to use gloo instead")
        self.counts[call] += 1
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"{text}. It goes over gloo, as whatever the switch cannot do in this group will; "
                f"switchsum.torch.statistics() counts it, {STRICT}=1 raises instead.",
                stacklevel=_depth_of_caller(),
            )


def _depth_of_caller() -> int:
    """Return the `stacklevel` with which the function that calls this one warns of the line that called torch."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_OURS):
        depth, frame = depth + 1, frame.f_back
    return depth

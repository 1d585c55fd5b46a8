"""What goes over gloo because the switch does not do it: never unseen."""

from __future__ import annotations

import os
import warnings
from collections import Counter

from switchsum.protocol.errors import UnsupportedDtype

STRICT = "SWITCHSUM_STRICT"
"""Environment variable: set to 1, what the switch cannot reduce raises."""


class Detours:
    """Counts a group's calls that gloo serves, warns of the first reduction among them, and refuses them if told to."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._has_warned = False

    def note(self, call: str) -> None:
        """Count a call that is gloo's by design: from one rank to another, or to all a value of its own."""
        self.counts[call] += 1

    def take(self, call: str) -> None:
        """Count a call that is gloo's because the switch cannot do it; raises UnsupportedDtype if that is forbidden."""
        text = f"the switch cannot do {call}"
        if os.environ.get(STRICT, "") not in ("", "0"):
            raise UnsupportedDtype(f"{text} ({STRICT} is set)")
        self.counts[call] += 1
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"{text}. It goes over gloo, as whatever the switch cannot do in this group will; "
                f"switchsum.torch.statistics() counts it, {STRICT}=1 raises instead.",
                stacklevel=7,
            )

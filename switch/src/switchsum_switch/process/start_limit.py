"""How long a start waits for each thing that it needs: a default of its own, or what the user says."""

from __future__ import annotations

import math
import os
from typing import Final

from switchsum_switch.errors import UsageError

VARIABLE: Final = "SWITCHSUM_START_TIMEOUT"
"""Environment variable with the seconds that a start waits for each thing; each has a default of its own."""
HINT: Final = f"{VARIABLE}=SECONDS changes how long"


def start_limit(default_s: float) -> float:
    """Return how long to wait for something that starts; raises UsageError."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return default_s
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise UsageError(f"{VARIABLE} must be a positive number of seconds, not {text!r}")
    return seconds

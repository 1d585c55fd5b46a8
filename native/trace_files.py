"""Where processes put their traces, and how one is made of them: by the launcher, which loads no compiler."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

PROFILE_VARIABLE: Final = "SWITCHSUM_PROFILE"
"""Directory into which processes write their spans; unset: none does."""


def merge(directory: Path, target: Path) -> int:
    """Put what processes have written into one file, times counted from the first; return how many events there are."""
    events = [event for path in sorted(directory.glob("*.json")) for event in json.loads(path.read_text())]
    start = min(_times(events), default=0.0)
    for event in events:
        if "ts" in event:
            event["ts"] -= start
    target.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))
    return len(events)


def _times(events: Iterable[dict[str, Any]]) -> Iterable[float]:
    return (event["ts"] for event in events if "ts" in event)

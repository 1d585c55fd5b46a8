"""Where processes put their traces, and how one is made of them: by the launcher, which loads no compiler."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from switchsum_switch.errors import LocalError


def merge(directory: Path, target: Path) -> int:
    """Put what processes have written into one file, times counted from the first; return how many events there are.

    A file that a killed process had not finished is left out.  Raises LocalError if the file cannot be written.
    """
    events = [event for path in sorted(directory.glob("*.json")) for event in _read(path)]
    start = min(_times(events), default=0.0)
    for event in events:
        if "ts" in event:
            event["ts"] -= start
    try:
        target.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))
    except OSError as error:
        raise LocalError(f"the profile {target} cannot be written: {error.strerror}") from error
    return len(events)


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        events: list[dict[str, Any]] = json.loads(path.read_text())
    except (OSError, ValueError):
        return []
    return events


def _times(events: Iterable[dict[str, Any]]) -> Iterable[float]:
    return (event["ts"] for event in events if "ts" in event)

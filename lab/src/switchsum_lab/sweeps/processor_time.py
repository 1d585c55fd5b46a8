"""For how long processors have worked for a job."""

from __future__ import annotations

import os
from pathlib import Path


def session_seconds() -> float:
    """Return for how long the processes of this one's session have worked: ranks, switch and what starts them."""
    session, total = str(os.getsid(0)), 0
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if (path / "stat").read_text().rpartition(")")[2].split()[3] != session:
                continue
            total += sum(int(task.read_text().split()[0]) for task in path.glob("task/*/schedstat"))
        except OSError:  # it has ended
            continue
    return total / 1e9

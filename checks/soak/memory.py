"""How much memory processes have, and whether it grows."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


def resident_bytes(pid: int | str) -> int:
    """Return a process's resident memory; 0 when there is no such process any more."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("VmRSS:")), 0)


@dataclass(slots=True)
class Growth:
    """Memory of one process from some moment on."""

    first_bytes: int = 0
    last_bytes: int = 0
    most_bytes: int = 0
    samples: int = field(default=0)

    def note(self, count_bytes: int) -> None:
        """Take a sample."""
        self.first_bytes = self.first_bytes or count_bytes
        self.last_bytes = count_bytes
        self.most_bytes = max(self.most_bytes, count_bytes)
        self.samples += 1

    @property
    def ratio(self) -> float:
        """How much more it is now than at first; 0: the same."""
        return self.last_bytes / self.first_bytes - 1 if self.first_bytes else 0.0

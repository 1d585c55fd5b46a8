"""What the comparison has trained and measured, and the file that keeps it."""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

RESULTS: Final = Path(__file__).parent / "results" / "convergence.json"
RANKS: Final = 4
Rows = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """All figures."""

    trained: Rows
    """Losses by step, and bytes, by task, way and seed: `gpt/int16/1`."""
    times: Rows
    """Milliseconds of steps by way, and where they were taken, by task and rate: `gpt/200mbit`."""

    @classmethod
    def read(cls, path: Path = RESULTS) -> Results:
        """Return what a file keeps; nothing where there is none."""
        kept = json.loads(path.read_text()) if path.exists() else {}
        return cls(trained=kept.get("trained", {}), times=kept.get("times", {}))

    def write(self, path: Path = RESULTS) -> None:
        """Keep it, an entry a line."""
        path.parent.mkdir(exist_ok=True)
        written = path.with_name(f"{path.name}.{os.getpid()}")
        written.write_text(f'{{"trained":{_lines(self.trained)},\n"times":{_lines(self.times)}}}\n')
        written.replace(path)  # whoever reads it meanwhile has all of it


@contextmanager
def added_to(path: Path) -> Iterator[Results]:
    """Let results be changed and keep them; other processes wait, so that nothing is lost of what each adds."""
    path.parent.mkdir(exist_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        results = Results.read(path)
        yield results
        results.write(path)
    finally:
        os.close(folder)


def _lines(rows: Rows) -> str:
    """Return an object of JSON."""
    lines = (f"{json.dumps(name)}:{json.dumps(row, separators=(',', ':'))}" for name, row in rows.items())
    return "{\n" + ",\n".join(lines) + "\n}"


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()

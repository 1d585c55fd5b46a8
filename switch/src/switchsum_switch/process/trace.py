"""What a process did when, for a trace that Perfetto or chrome://tracing shows.

Loops that are kernels note spans in an array that was made beforehand: a few nanoseconds each, and one comparison where
nobody wants a trace.  A process writes its spans to a file of its own when it ends (`trace_files.py`).
Times are of the clock that all processes of a machine share.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..kernels.decorators import kernel
from .runtime_directory import PROFILE_VARIABLE

CAPACITY: Final = 200_000
"""Spans of one process; further ones are counted, and left out."""

Spans = npt.NDArray[np.int64]
"""`[1 + capacity, 5]`: in the first row how many there are and how many were left out; then `Span`, begin and end in
nanoseconds, and two numbers whose meaning follows from the kind."""


class Span(IntEnum):
    """Kinds of spans."""

    WAIT = 0
    """The loop slept until frames came or the time was over."""
    RESULTS = 1
    """Frames were taken: how many; rounds that ended with them.  Results are unpacked, what follows them is packed."""
    SEND = 2
    """Frames were handed to the link: how many."""
    PROGRAM = 3
    """Frames went through the switch's program, and what came of them to the ports: how many went in, how many out."""


_SHOWN: Final[dict[Span, tuple[str, tuple[str, ...]]]] = {
    Span.WAIT: ("wait", ()),
    Span.RESULTS: ("unpack, pack", ("frames", "rounds")),
    Span.SEND: ("send", ("frames",)),
    Span.PROGRAM: ("program", ("frames in", "frames out")),
}
NO_SPANS: Final[Spans] = np.zeros((1, 5), np.int64)
"""Empty trace, for loops that need none."""


@kernel
def is_traced(spans: Spans) -> bool:
    """Tell whether spans are to be noted."""
    return len(spans) > 1


@kernel
def note(spans: Spans, kind: int, begin: float, end: float, first: int, second: int) -> None:
    """Note a span from second to second; `first` and `second` are its numbers."""
    number = spans[0, 0] + 1
    if number >= len(spans):
        spans[0, 1] += 1
        return
    row = spans[number]
    row[0], row[1], row[2], row[3], row[4] = kind, np.int64(begin * 1e9), np.int64(end * 1e9), first, second
    spans[0, 0] = number


class Trace:
    """The spans of one process."""

    def __init__(self, name: str, directory: Path, capacity: int = CAPACITY) -> None:
        """Record spans of a process called `name`; `write` puts a file into the directory."""
        self.spans: Spans = np.zeros((1 + capacity, 5), np.int64)
        self._name = name
        self._directory = directory
        self._calls: list[tuple[str, float, float]] = []

    @classmethod
    def wanted(cls, name: str) -> Trace | None:
        """Return a trace if the environment asks for one."""
        directory = os.environ.get(PROFILE_VARIABLE)
        return cls(name, Path(directory)) if directory else None

    def called(self, name: str, begin: float, end: float) -> None:
        """Note a call of the user's, from second to second."""
        self._calls.append((name, begin, end))

    def events(self) -> list[dict[str, Any]]:
        """Return everything as trace events (Chrome's JSON format), times in microseconds."""
        pid = os.getpid()
        common = {"ph": "X", "pid": pid}
        shown: list[dict[str, Any]] = [
            {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": self._name}},
            {"ph": "M", "pid": pid, "tid": 0, "name": "thread_name", "args": {"name": "collectives"}},
            {"ph": "M", "pid": pid, "tid": 1, "name": "thread_name", "args": {"name": "frames"}},
        ]
        for name, begin, end in self._calls:
            shown.append({**common, "tid": 0, "name": name, "ts": begin * 1e6, "dur": (end - begin) * 1e6})
        count, left_out = self.spans[0, :2].tolist()
        for kind, begin, end, *numbers in self.spans[1 : 1 + count].tolist():
            name, titles = _SHOWN[Span(kind)]
            arguments = dict(zip(titles, numbers, strict=False))
            span = {"tid": 1, "name": name, "ts": begin / 1e3, "dur": (end - begin) / 1e3, "args": arguments}
            shown.append({**common, **span})
        if left_out:
            last = max(int(self.spans[count, 2]), 0) / 1e3
            text = f"{left_out} further spans were left out"
            shown.append({"ph": "i", "pid": pid, "tid": 1, "s": "p", "name": text, "ts": last})
        return shown

    def write(self) -> None:
        """Write the events to a file named after this process; a directory that is gone is no error."""
        path = Path(self._directory, f"{os.getpid()}.json")
        try:
            path.write_text(json.dumps(self.events()))
        except FileNotFoundError:
            return
        except OSError as error:
            sys.stderr.write(f"switchsum: {self._name} is not in the profile: {error.strerror}\n")
            with suppress(OSError):
                path.unlink()  # a part of it is there

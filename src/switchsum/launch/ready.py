"""How a daemon tells the launcher that it is ready: a line of JSON on a pipe that it inherits.

Before that come lines with PROGRESS alone while it compiles, each of which begins the launcher's patience anew.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
from typing import Any, Final

from switchsum.launch.children import Child
from switchsum.protocol.compiling import tell_too
from switchsum.protocol.errors import LocalError

READY_FD: Final = "SWITCHSUM_READY_FD"
"""Environment variable that names the pipe's descriptor in the daemon."""
PROGRESS: Final = "progress"
"""Key of a line that says what a daemon is doing before it is ready."""
END_S: Final = 5.0
"""How long a process may take to end once it has closed the pipe without a word."""


def is_launched() -> bool:
    """Whether a launcher waits for this process to announce itself."""
    return READY_FD in os.environ


def report_progress() -> None:
    """Tell the launcher, if there is one, how compiling goes."""
    number = int(os.environ.get(READY_FD, "-1"))

    def pass_on(text: str) -> None:
        if READY_FD in os.environ:  # else the pipe is closed
            with contextlib.suppress(OSError):
                os.write(number, json.dumps({PROGRESS: text}).encode() + b"\n")

    if number >= 0:
        tell_too(pass_on)


def announce(**facts: Any) -> None:
    """Say that this process is ready, and what there is to know (addresses); nothing happens without a launcher."""
    number = os.environ.pop(READY_FD, None)
    if number is None:
        return
    with os.fdopen(int(number), "w") as pipe:
        pipe.write(json.dumps(facts) + "\n")


def await_ready(child: Child, descriptor: int, timeout_s: float) -> dict[str, Any]:
    """Wait for the child's announcement on the reading end of its pipe; raises LocalError when none comes."""
    deadline = time.monotonic() + timeout_s
    line, last = b"", ""
    while True:
        *whole, line = line.split(b"\n")
        for facts in map(json.loads, whole):
            if PROGRESS not in facts:
                assert isinstance(facts, dict)
                return facts
            deadline, last = time.monotonic() + timeout_s, f", last: {facts[PROGRESS]}"
        readable, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        chunk = os.read(descriptor, 65536) if readable else b""
        if not chunk:
            try:  # who has closed the pipe is about to end
                code = child.process.wait(END_S) if readable else child.process.poll()
            except subprocess.TimeoutExpired:
                code = None
            reason = (
                f"ended with exit code {code}" if code is not None else f"was not ready after {timeout_s:.0f} s{last}"
            )
            raise LocalError(f"the {child.name} {reason}")
        line += chunk

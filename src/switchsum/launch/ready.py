"""How a daemon tells the launcher that it is ready: one line of JSON on a pipe that it inherits."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from typing import Any, Final

from switchsum.launch.children import Child
from switchsum.protocol.errors import LocalError

READY_FD: Final = "SWITCHSUM_READY_FD"
"""Environment variable that names the pipe's descriptor in the daemon."""
END_S: Final = 5.0
"""How long a process may take to end once it has closed the pipe without a word."""


def is_launched() -> bool:
    """Whether a launcher waits for this process to announce itself."""
    return READY_FD in os.environ


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
    line = b""
    while not line.endswith(b"\n"):
        readable, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        chunk = os.read(descriptor, 65536) if readable else b""
        if not chunk:
            try:  # who has closed the pipe is about to end
                code = child.process.wait(END_S) if readable else child.process.poll()
            except subprocess.TimeoutExpired:
                code = None
            reason = f"ended with exit code {code}" if code is not None else f"was not ready after {timeout_s:.0f} s"
            raise LocalError(f"the {child.name} {reason}")
        line += chunk
    facts = json.loads(line)
    assert isinstance(facts, dict)
    return facts

"""Lets a daemon tell the launcher that it is ready, by a line of JSON on a pipe that it inherits.

While it compiles it writes lines with the key PROGRESS.  After each of these the launcher waits for the full time
again, so that a slow machine is not taken for a daemon that hangs.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
from typing import Any, Final

from switchsum_switch.errors import LocalError
from switchsum_switch.kernels.turns import tell_too
from switchsum_switch.notices import waiting_for
from switchsum_switch.process.children import POLL_S, Child, Children
from switchsum_switch.process.start_limit import HINT

READY_FD: Final = "SWITCHSUM_READY_FD"
"""Environment variable with the descriptor of the pipe in the daemon."""
PROGRESS: Final = "progress"
"""Key of a line that tells what a daemon does before it is ready."""
END_S: Final = 5.0
"""Seconds that a process may take to end after it has closed the pipe without saying that it is ready."""


def is_launched() -> bool:
    """Return whether a launcher waits for this process to say that it is ready."""
    return READY_FD in os.environ


def report_progress() -> None:
    """From now on tell the launcher, if there is one, what this process compiles."""
    number = int(os.environ.get(READY_FD, "-1"))

    def pass_on(text: str) -> None:
        if READY_FD in os.environ:  # otherwise `announce` has closed the pipe
            with contextlib.suppress(OSError):
                os.write(number, json.dumps({PROGRESS: text}).encode() + b"\n")

    if number >= 0:
        tell_too(pass_on)


def announce(**facts: Any) -> None:
    """Tell the launcher that this process is ready, and the addresses that it has; without a launcher do nothing."""
    number = os.environ.pop(READY_FD, None)
    if number is None:
        return
    with os.fdopen(int(number), "w") as pipe:
        pipe.write(json.dumps({name: fact for name, fact in facts.items() if fact is not None}) + "\n")


def await_ready(child: Child, descriptor: int, timeout_s: float, children: Children | None = None) -> dict[str, Any]:
    """Wait until a child says that it is ready, on the reading end of its pipe; raises LocalError if it does not.

    Also if another one of `children` ends meanwhile, which the child may need.
    """
    with waiting_for(f"the {child.name} to be ready"):
        return _await(child, descriptor, timeout_s, children)


def _await(child: Child, descriptor: int, timeout_s: float, children: Children | None) -> dict[str, Any]:
    deadline = time.monotonic() + timeout_s
    line, last = b"", ""
    while True:
        *whole, line = line.split(b"\n")
        for facts in map(json.loads, whole):
            if PROGRESS not in facts:
                assert isinstance(facts, dict)
                return facts
            deadline, last = time.monotonic() + timeout_s, f", last: {facts[PROGRESS]}"
        left_s = deadline - time.monotonic()
        readable, _, _ = select.select([descriptor], [], [], max(0.0, min(left_s, POLL_S)))
        if not readable and left_s > 0:
            if children is not None and (failed := children.failed()) is not None and failed[0] is not child:
                raise LocalError(_ended(failed[0].name, failed[1]))
            continue
        chunk = os.read(descriptor, 65536) if readable else b""
        if not chunk:
            try:  # a child that has closed the pipe is about to end
                code = child.process.wait(END_S) if readable else child.process.poll()
            except subprocess.TimeoutExpired:
                code = None
            if code is not None:
                raise LocalError(_ended(child.name, code))
            raise LocalError(f"the {child.name} was not ready after {timeout_s:g} s{last} ({HINT})")
        line += chunk


def _ended(name: str, code: int) -> str:
    return f"the {name} ended with exit code {code}: its lines above say why"

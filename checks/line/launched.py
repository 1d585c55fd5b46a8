"""`switchsum run` on links whose queues hold another time.

Run as root: python -m checks.line.launched SECONDS run ...
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from switchsum.cli.app import main as run
from switchsum.launch import wires


def with_queue(given: Sequence[str], queue_s: float) -> list[str]:
    """Return a command of tc with another time for which the queue holds frames; others as they are.

    Example:
        >>> with_queue(["tc", "qdisc", "latency", "100ms"], 1.5)
        ['tc', 'qdisc', 'latency', '1500ms']

    """
    words = list(given)
    if "latency" in words:
        words[words.index("latency") + 1] = f"{1e3 * queue_s:g}ms"
    return words


def main() -> int:
    """Enter a network namespace, and run the command there."""
    if os.environ.get(wires.ENTERED) is None:
        here = [sys.executable, "-m", "checks.line.launched", *sys.argv[1:]]
        entered = {**os.environ, wires.ENTERED: "1"}
        return subprocess.run(["unshare", "--net", "--", *here], env=entered, check=False).returncode
    lay = wires.run
    queue_s = float(sys.argv[1])
    wires.run = lambda command: lay(with_queue(command, queue_s))
    sys.argv[:] = ["switchsum", *sys.argv[2:]]
    run()
    return 0


if __name__ == "__main__":
    sys.exit(main())

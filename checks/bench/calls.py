"""Whole calls beside plain work of the same processes: ratios that hold on busy machines, too.

Run: python -m checks.bench.calls

Two ranks share memory with a switch.  They add four bytes after pauses, so that each call has to wake the switch and
the other rank, and a large array.  On links of 1 Gbit/s, which need root, the processor's time of a frame counts, and
that nothing is sent twice.  The best of all calls is taken: a busy machine makes most of them longer, but hardly all.
Exits with 1 if one exceeds its limit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from checks.bench.calls_worker import LANES, LARGE_BYTES, LINK_BYTES
from checks.bench.records import Record, exceeded, show
from checks.line.cells import REPEATS, Cell
from switchsum_protocol.errors import LocalError
from switchsum_protocol.frame import payload_bytes
from switchsum_switch.notices import waiting_for

RANKS: Final = 2
LINK: Final = Cell(name="1 Gbit/s", workers=RANKS, mbit=1000, lanes=LANES)
LIMITS: Final = {
    "calls.small": 40.0,
    "calls.large": 12.0,
    "calls.memory": 0.1,
    "calls.frames": 0.7,
    "calls.repeats": REPEATS,
}
"""What a call may take before `--small` fails.

Small and large calls and frames have three times and more of what an AMD EPYC of 2 cores takes, and what it took beside
eight busy processes was within these, too.  `calls.line`, the share of the line, is only printed.
"""
LONGEST_S: Final = 180.0


def run() -> list[Record]:
    """Measure; without root only what shares memory; raises LocalError."""
    return [*shared(job("memory")), *(linked(job("link")) if os.geteuid() == 0 else [])]


def job(kind: str) -> list[dict[str, Any]]:
    """Run a job; return what each rank has found; raises LocalError."""
    options = ["-n", str(RANKS)] if kind == "memory" else LINK.options("")
    with tempfile.TemporaryDirectory(prefix="switchsum-calls-") as scratch:
        worker = [sys.executable, "-m", "checks.bench.calls_worker", kind, scratch]
        command = [sys.executable, "-m", "switchsum", "run", *options, "--", *worker]
        try:
            with waiting_for(f"two ranks, {kind}"):
                done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise LocalError(f"calls, {kind}: not done within {LONGEST_S:g} s") from error
        if done.returncode:
            raise LocalError(f"calls, {kind}: {(done.stderr or done.stdout).strip()[-500:]}")
        return [json.loads(Path(scratch, f"{rank}.json").read_text()) for rank in range(RANKS)]


def shared(ranks: Sequence[dict[str, Any]]) -> list[Record]:
    """Return the records of ranks that share memory: small calls, large ones, and the memory beside these.

    A small call lasts from the last rank's entering to the last one's leaving.
    """
    ends = zip(*(rank["left"] for rank in ranks), strict=True)
    begins = zip(*(rank["entered"] for rank in ranks), strict=True)
    small = min(max(left) - max(entered) for left, entered in zip(ends, begins, strict=True))
    ping = min(min(rank["pings"]) for rank in ranks)
    large = min(min(rank["calls"]) / min(rank["copies"]) for rank in ranks)
    grown = [octets / LARGE_BYTES for rank in ranks for octets in rank["grown"]]
    conditions = f"{RANKS} ranks, shared memory"
    size = f"{LARGE_BYTES // 10**6} MB"
    made = partial(_record, conditions)
    return [
        made("small", small / ping, "pings", "4 bytes after a pause, best; a byte to a process and back is 1"),
        made("large", large, "copies", f"{size}, processor time, best; a plain copy is 1"),
        *([made("memory", min(grown), "arrays", f"{size}, the most memory beside the array")] if grown else []),
    ]


def linked(ranks: Sequence[dict[str, Any]]) -> list[Record]:
    """Return the records of ranks on links: processor time of a frame, repeats, and the share of the line."""
    frames = min(min(rank["frames"]) / min(rank["datagrams"]) for rank in ranks)
    contributions = sum(len(rank["frames"]) for rank in ranks) * LINK_BYTES / payload_bytes(LINK.lanes)
    repeats = sum(rank["repeats"] for rank in ranks) / contributions
    line = LINK_BYTES / min(ranks[0]["seconds"]) / LINK.bytes_per_s
    made = partial(_record, f"{RANKS} ranks, links of {LINK.name}, MTU 1,500, {LINK_BYTES // 10**6} MB")
    return [
        made("frames", frames, "datagrams", "processor time, best; one to oneself, sent and taken alone, is 1"),
        made("repeats", repeats, "frames", "repeats for each contribution"),
        made("line", line, "lines", "share of the line, best"),
    ]


def _record(conditions: str, name: str, value: float, unit: str, what: str) -> Record:
    return Record(name=f"calls.{name}", value=value, unit=unit, conditions=f"{conditions}; {what}", runs=1)


def main() -> int:
    """Measure, and print what is too slow."""
    console = Console()
    show(console, "calls", records := run())
    slow = exceeded(records, LIMITS)
    for text in slow:
        print(f"too slow: {text}")
    return int(bool(slow))


if __name__ == "__main__":
    sys.exit(main())

"""What is promised of slow links, row by row: speed on real links beside a bound.

Run as root: python -m checks.line.targets [--only NAME] [--jobs 10] [--list]

Rows with links of 2 to 10 Mbit/s do not depend on the processor; the others want a quiet machine.  Each line says
whether a row holds, with its figures; the last line says at what load.  Exits with 1 where a row does not hold.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from checks.lab.convergence_ways import ALONE

from . import machines
from .cells import SPENT_BYTES, Cell

LONGEST_S: Final = 900.0
PLAIN_BYTES: Final = 10_000_000
PLAIN_S: Final = 0.87
"""What the line takes for these bytes at 100 Mbit/s with an MTU of 1,500."""
PLAIN_PART: Final = 0.05
PLAIN_CALLS: Final = 5
JUMBO_MEDIAN, JUMBO_LEAST = 12.1, 11.0
"""MB/s of eight workers with jumbo frames at 100 Mbit/s: the line carries 12.36."""
JUMBO_CALLS: Final = 10
SMALL_S: Final = 3e-3
SMALL_CALLS: Final = 3000
SHARE: Final = 0.93
"""Of the line, at 2 to 10 Mbit/s, with queues of any length."""
QUEUES_S: Final = (0.1, 0.4, 1.5)
QUEUE_PART: Final = 1.1
"""So many times may a step take with a queue of 100 ms what it takes with one of 1.5 s."""
TRIP_S: Final = 0.08
STEPS: Final = 6
PAIRS: Final = {
    "dense": "gloo",
    "int10": "gloo, fp16 hook",
    "powersgd:4": "gloo, PowerSGD 4",
    "streaming 50, int10": "gloo, streaming 50",
}
"""Ways here, and those of gloo that each has to be ahead of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A promise."""

    name: str
    measure: Callable[[], tuple[bool, str]]
    """Returns whether it holds, and figures."""


def calls(options: Sequence[str], octets: int, count: int, queue_s: float | None = None) -> list[float]:
    """Run a job; return the seconds of its calls."""
    with tempfile.TemporaryDirectory(prefix="switchsum-line-") as scratch:
        path = Path(scratch, "calls.json")
        worker = [sys.executable, "-m", "checks.line.calls", str(octets), str(count), str(path)]
        _run(["run", *options, "--", *worker], queue_s)
        seconds: list[float] = json.loads(path.read_text())
    return seconds


def _run(arguments: Sequence[str], queue_s: float | None) -> None:
    own = ["-m", "switchsum"] if queue_s is None else ["-m", "checks.line.launched", f"{queue_s:g}"]
    done = subprocess.run(
        [sys.executable, *own, *arguments], capture_output=True, text=True, timeout=LONGEST_S, check=False
    )
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")


def plainest(jobs: int) -> tuple[bool, str]:
    """Add 10 MB with four workers at 100 Mbit/s, MTU 1,500, in some jobs."""
    options = ["-n", "4", "--lanes", "256", "--links", "veth", "--rate", "100mbit"]
    taken = [calls(options, PLAIN_BYTES, PLAIN_CALLS) for _ in range(jobs)]
    flat = [seconds for job in taken for seconds in job]
    outside = [f"{seconds:.3f}" for seconds in flat if abs(seconds / PLAIN_S - 1) > PLAIN_PART]
    says = f"{len(flat)} calls of {jobs} jobs: {min(flat):.3f} to {max(flat):.3f} s, {PLAIN_S} s +- 5 % asked"
    return not outside, f"{says}; not so: {', '.join(outside) or 'none'}"


def jumbo(slots: str) -> tuple[bool, str]:
    """Add 10 MB with eight workers and jumbo frames; the first call spends the bucket."""
    options = ["-n", "8", "--lanes", "2048", "--slots", slots, "--links", "veth", "--rate", "100mbit"]
    rates = [PLAIN_BYTES / 1e6 / seconds for seconds in calls(options, PLAIN_BYTES, 1 + JUMBO_CALLS)[1:]]
    median = statistics.median(rates)
    holds = median >= JUMBO_MEDIAN and min(rates) >= JUMBO_LEAST
    asked = f"{JUMBO_MEDIAN} and {JUMBO_LEAST} asked"
    return holds, f"{len(rates)} calls: median {median:.2f} MB/s, least {min(rates):.2f}, {asked}"


def small(links: str) -> tuple[bool, str]:
    """Add 4 bytes while 1 % is lost."""
    options = ["-n", "4", "--links", links, "--loss", "0.01"]
    taken = sorted(1e3 * seconds for seconds in calls(options, 4, SMALL_CALLS))
    late = taken[math.ceil(0.99 * len(taken)) - 1]
    says = f"{len(taken)} sums: median {statistics.median(taken):.3f} ms, 99 % within {late:.2f}, most {taken[-1]:.1f}"
    return late < 1e3 * SMALL_S, f"{says}; {1e3 * SMALL_S:g} asked"


def queue(mbit: float, lanes: int, queue_s: float) -> tuple[bool, str]:
    """Add on slow links whose queues hold so many seconds, two calls in a row and one after a pause."""
    cell = Cell(name="queue", workers=4, mbit=mbit, lanes=lanes)
    with tempfile.TemporaryDirectory(prefix="switchsum-line-") as scratch:
        path = Path(scratch, "calls.json")
        worker = [sys.executable, "-m", "checks.line.worker", str(cell.call_bytes), str(SPENT_BYTES), str(path)]
        _run(["run", *cell.options(""), "--", *worker], queue_s)
        taken: list[dict[str, Any]] = json.loads(path.read_text())
    shares = [cell.call_bytes / cell.bytes_per_s / call["seconds"] for call in taken]
    repeats = sum(call["repeats"] for call in taken) / sum(call["contributions"] for call in taken)
    percent = " ".join(f"{100 * share:.0f}" for share in shares)
    return min(shares) >= SHARE, f"{percent} % of the line, repeats {repeats:.3f}; {100 * SHARE:.0f} % asked"


def short_queue() -> tuple[bool, str]:
    """Train on four machines at 10 Mbit/s with int10, with a short queue and a long one."""
    short, long = (
        machines.steps("switchsum", ["int10"], STEPS, rate="10mbit", queue_s=queue_s, trip_s=0.0)["int10"]
        for queue_s in (QUEUES_S[0], QUEUES_S[-1])
    )
    says = f"int10, ms a step: queue of 100 ms {short:,.0f}, of 1.5 s {long:,.0f}; {QUEUE_PART} times asked"
    return short <= QUEUE_PART * long, says


def far(queue_s: float) -> tuple[bool, str]:
    """Train on four machines at 10 Mbit/s with a trip of 80 ms, here and over gloo."""
    there: dict[str, Any] = {"rate": "10mbit", "queue_s": queue_s, "trip_s": TRIP_S}
    theirs = machines.steps("gloo", [*PAIRS.values()], STEPS, **there)
    ours = machines.steps("switchsum", [ALONE, *PAIRS], STEPS, **there)
    pairs = [(way, ours[way], theirs[other]) for way, other in PAIRS.items()]
    says = [f"{way} {own:,.0f}, {PAIRS[way]} {other:,.0f}" for way, own, other in pairs]
    says.append(f"computing {ours[ALONE]:,.0f}")
    return all(own < other for _, own, other in pairs), f"ms a step: {'; '.join(says)}"


def rows(jobs: int) -> Iterator[Row]:
    """Yield all promises; those that do not depend on the processor come first."""
    for mbit in (2.0, 5.0, 10.0):
        for lanes, mtu in ((256, "1,500"), (2048, "9,000")):
            for queue_s in QUEUES_S:
                name = f"queue {mbit:g} Mbit/s, MTU {mtu}, {queue_s:g} s"
                yield Row(name=name, measure=partial(queue, mbit, lanes, queue_s))
    yield Row(name="machines, queue of 100 ms and of 1.5 s", measure=short_queue)
    yield Row(name="machines, trip of 80 ms, queue of 200 ms", measure=partial(far, 0.2))
    yield Row(name="machines, trip of 80 ms, queue of 1.5 s", measure=partial(far, 1.5))
    yield Row(name="plainest", measure=partial(plainest, jobs))
    for slots in ("32", "64", "128", "auto"):
        yield Row(name=f"jumbo, slots {slots}", measure=partial(jumbo, slots))
    for links in ("shm", "udp"):
        yield Row(name=f"4 bytes, loss 1 %, {links}", measure=partial(small, links))


def main() -> int:
    """Measure the rows; return 1 if one does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose names match this regular expression")
    parser.add_argument("--jobs", type=int, default=10, help="of the plainest row")
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    options = parser.parse_args()
    chosen = [row for row in rows(options.jobs) if re.search(options.only, row.name)]
    if options.list:
        print(*(row.name for row in chosen), sep="\n")
        return 0
    if os.geteuid() != 0:
        raise SystemExit("laying links needs root")
    load, began, held = os.getloadavg()[0], time.monotonic(), 0
    for row in chosen:
        try:
            holds, says = row.measure()
        except (RuntimeError, subprocess.SubprocessError) as error:
            holds, says = False, f"{type(error).__name__}: {error}"
        held += holds
        print(f"{'holds' if holds else 'FALLS'}  {row.name}: {says} (load {os.getloadavg()[0]:.1f})", flush=True)
    seconds = time.monotonic() - began
    print(f"{held} of {len(chosen)} hold, in {seconds:.0f} s; load {load:.1f} to {os.getloadavg()[0]:.1f}")
    return int(held < len(chosen))


if __name__ == "__main__":
    sys.exit(main())

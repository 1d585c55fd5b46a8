"""What it costs an allreduce that others look: page and metrics on and off, workers' reports on and off, in turn.

python -m checks.observed [--pairs 20] [--seconds 2]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import switchsum
from switchsum.launch.bmv2 import free_port

VALUES = 250_000
WORKERS = 4


def main() -> None:
    """Start a job that measures itself, or be one of its ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=20, help="how often each is measured with and without")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--page", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.page:
        measure(given.page, given.pairs, given.seconds)
        return
    place = f"127.0.0.1:{free_port()}"
    own = [sys.executable, "-m", "checks.observed", "--page", f"http://{place}/"]
    own += ["--pairs", str(given.pairs), "--seconds", str(given.seconds)]
    command = [sys.executable, "-m", "switchsum", "run", "-n", str(WORKERS), "--web", place, "--", *own]
    sys.exit(subprocess.run(command, check=False).returncode)


def measure(page: str, pairs: int, seconds: float) -> None:
    """Measure both as one rank; rank 0 looks at the page and says what came out."""
    with switchsum.connect() as communicator:
        watcher = Watcher(page)
        lifeline: Any = communicator.queue.membership
        report = lifeline.report

        def set_reports(on: bool) -> None:
            lifeline.report = report if on else lambda job, nonce: None

        def set_page(on: bool) -> None:
            if communicator.rank == 0:
                watcher.watch(on)

        for name, switch in (("page and metrics", set_page), ("workers' reports", set_reports)):
            rates: dict[bool, list[float]] = {True: [], False: []}
            shares: dict[bool, list[float]] = {True: [], False: []}
            for pair in range(pairs):
                for on in (pair % 2 == 0, pair % 2 != 0):  # neither is always the first
                    switch(on)
                    began, used = time.perf_counter(), controller_s()
                    rates[on].append(rate(communicator, seconds))
                    shares[on].append((controller_s() - used) / (time.perf_counter() - began))
            switch(name != "page and metrics")
            if communicator.rank == 0:
                tell(name, rates)
                with_it, without = (100 * statistics.median(shares[on]) for on in (True, False))
                print(f"  the controller used {with_it:.1f} % of a core with, {without:.1f} % without", flush=True)


def controller_s() -> float:
    """Return the processor time of the controller that the launcher has started; 0 if it is not found.

    It says what looking costs where rates differ by more from one second to the next.
    """
    launcher = os.getppid()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            command = stat.with_name("cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        if int(fields[1]) == launcher and b"controller" in command:
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def rate(communicator: switchsum.Communicator, seconds: float) -> float:
    """Return allreduces a second; all ranks make as many."""
    values, over = np.ones(VALUES, np.float32), np.zeros(1, np.float32)
    communicator.barrier()
    began, count = time.perf_counter(), 0
    while not over[0]:
        for _ in range(10):
            communicator.allreduce(values)
        count += 10
        over[0] = time.perf_counter() - began > seconds
        communicator.allreduce(over)
    return count / (time.perf_counter() - began)


def tell(name: str, rates: dict[bool, list[float]]) -> None:
    """Print by how much the rate is less with than without, from pairs, and between what that lies."""
    costs = sorted(100 * (1 - on / off) for on, off in zip(rates[True], rates[False], strict=True))
    draws = np.random.default_rng(0).choice(costs, (2000, len(costs))).tolist()
    low, high = np.percentile([statistics.median(draw) for draw in draws], [2.5, 97.5])
    print(
        f"{name}: {statistics.median(rates[True]):.1f} allreduces a second of {VALUES} floats with, "
        f"{statistics.median(rates[False]):.1f} without; {len(costs)} pairs: {statistics.median(costs):+.2f} % slower "
        f"(95 %: {low:+.2f} to {high:+.2f}); load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


LOOKING = """
import sys, threading, time, urllib.request

def scrape():
    while True:
        urllib.request.urlopen(sys.argv[1] + "metrics").read()
        time.sleep(1)

threading.Thread(target=scrape, daemon=True).start()
for line in urllib.request.urlopen(sys.argv[1] + "events"):
    if line.startswith(b"data"):
        print(flush=True)
"""


class Watcher:
    """A process that has the page open and scrapes once a second, while it is wanted."""

    def __init__(self, page: str) -> None:
        self._page = page
        self._process: subprocess.Popen[bytes] | None = None

    def watch(self, on: bool) -> None:
        """Begin, and wait until the first picture has come, or end."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
        if on:
            command = [sys.executable, "-c", LOOKING, self._page]
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
            assert self._process.stdout is not None
            self._process.stdout.readline()


if __name__ == "__main__":
    main()

"""What it costs an allreduce that others look: page and metrics, shares of waiting, or all reports of workers.

python -m checks.observed [--only page|shares|reports] [--pairs 200] [--seconds 0.6] [--times 10]

The costs are smaller than the differences between one second and the next.  So a job adds all the time, and looks and
reports happen `--times` as often as they do in earnest, in one half of many short spans: of two spans, in one that is
drawn.  What allreduces are slower by in these is divided by that.  `--times 1` shows it undivided.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import sys
import threading
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

import switchsum
from support.parts import JOB, SWITCHSUM, Parts, Process
from switchsum_host.api import report
from switchsum_protocol import rpc
from switchsum_switch.bmv2.process import free_port

VALUES: Final = 250_000
WORKERS: Final = 4
WHAT: Final = {"page": "page and metrics", "shares": "shares of waiting", "reports": "workers' reports"}
SETTLE_S: Final = 0.25
"""Between a change and the span that is measured."""
CALL_S: Final = 5.0


class Board:
    """What the processes of a measurement tell each other, in a file that all have mapped."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(3 * 8))
        self._cells = np.memmap(path, np.float64, "r+", shape=(3,))

    def is_on(self) -> bool:
        """Return whether others look now."""
        return bool(self._cells[0])

    def turn(self, on: bool) -> None:
        """Have others look from now on, or no more."""
        self._cells[0] = on

    def count(self) -> None:
        """Note that an allreduce has ended."""
        self._cells[2] = time.perf_counter()
        self._cells[1] += 1

    def read(self) -> tuple[float, float]:
        """Return how many have ended, and when the last one has."""
        while True:
            count, at = float(self._cells[1]), float(self._cells[2])
            if self._cells[1] == count and self._cells[2] == at:
                return count, at


def main() -> None:
    """Measure, or be a part of what is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=WHAT, help="what to measure; default: page and shares")
    parser.add_argument("--pairs", type=int, default=200, help="of spans with and without")
    parser.add_argument("--seconds", type=float, default=0.6, help="of each span")
    parser.add_argument("--times", type=int, default=10, help="looks and reports happen so many times as often")
    parser.add_argument("--part", choices=("controller", "worker", "watcher"), help=argparse.SUPPRESS)
    parser.add_argument("--board", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("rest", nargs="*", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        parts = {"controller": control, "worker": work, "watcher": watch}
        parts[given.part](Board(given.board), given)
        return
    for what in [given.only] if given.only else ["page", "shares"]:
        measure(what, given)


def measure(what: str, given: argparse.Namespace) -> None:
    """Start a switch, a controller and workers, compare, and print what came out."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(TemporaryDirectory(prefix="switchsum-")))
        parts, place, board = Parts(stack, scratch, size=WORKERS), f"127.0.0.1:{free_port()}", Board(scratch / "board")

        def part(name: str, *rest: str, **variables: str) -> Process:
            own = [sys.executable, "-m", "checks.observed", "--part", name, "--only", what]
            own += ["--times", str(given.times), "--board", str(scratch / "board"), "--", *rest]
            return parts.spawn(*own, **variables)

        parts.switch()
        listens = f"unix:{scratch}/controller"
        controller = part("controller", "--switch", parts.p4runtime, "--listen", listens, "--web", place)
        parts.ask(lambda client: client.create_job(rpc.CreateJobRequest(job=JOB, workers=WORKERS)))
        workers = [part("worker", RANK=str(rank)) for rank in range(WORKERS)]
        if what == "page":
            part("watcher", f"http://{place}/")
        while board.read()[0] < 1000:
            if any(one.poll() is not None for one in workers):
                raise SystemExit("a worker has ended")
            time.sleep(0.1)
        rates, used = compare(board, given, controller.pid)
    tell(what, given, rates, used)


def compare(board: Board, given: argparse.Namespace, controller: int) -> tuple[dict[bool, list[float]], list[float]]:
    """Return allreduces a second of each span, with and without, and shares of a core that the controller used."""
    rates: dict[bool, list[float]] = {True: [], False: []}
    used: dict[bool, list[float]] = {True: [], False: []}
    chance = random.Random(0)
    for _ in range(given.pairs):
        for on in chance.sample((True, False), 2):
            board.turn(on)
            time.sleep(SETTLE_S)
            (count, at), cpu_s = board.read(), used_s(controller)
            time.sleep(given.seconds)
            later, end = board.read()
            rates[on].append((later - count) / (end - at))
            used[on].append((used_s(controller) - cpu_s) / (end - at))
    return rates, [statistics.mean(used[on]) for on in (True, False)]


def tell(what: str, given: argparse.Namespace, rates: dict[bool, list[float]], used: list[float]) -> None:
    """Print by how much the rate is less with than without, and between what that lies."""
    costs = np.array([math.log(off / on) for on, off in zip(rates[True], rates[False], strict=True)])
    draws = np.median(np.random.default_rng(0).choice(costs, (5000, len(costs))), axis=1)
    slower, low, high = (100 * one for one in (np.median(costs), *np.percentile(draws, [2.5, 97.5])))
    with_it, without = (statistics.median(rates[on]) for on in (True, False))
    print(
        f"{WHAT[what]}, {given.times} times as often as in earnest: {with_it:.1f} allreduces a second of {VALUES} "
        f"floats with, {without:.1f} without; {len(costs)} pairs: {slower:+.2f} % slower (95 %: {low:+.2f} to "
        f"{high:+.2f}). The controller used {100 * used[0]:.1f} % of a core with, {100 * used[1]:.1f} % without.\n"
        f"In earnest: {slower / given.times:+.2f} % slower (95 %: {low / given.times:+.2f} to "
        f"{high / given.times:+.2f}); load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def used_s(process: int) -> float:
    """Return the processor time of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def control(board: Board, given: argparse.Namespace) -> None:
    """Be the controller, which looks more often, or not at all while nobody else does."""
    from switchsum.__main__ import main as command
    from switchsum.view import pace
    from switchsum.web import looks

    kinds: Any = looks.Looks
    if given.only == "page":
        note, kinds._note = kinds._note, lambda one: note(one) if board.is_on() else None
        looks.EVERY_S /= given.times  # type: ignore[misc]
        pace.SHARE *= given.times  # type: ignore[misc]
    sys.argv = [*SWITCHSUM[-1:], "controller", *given.rest]
    command()


def work(board: Board, given: argparse.Namespace) -> None:
    """Be a rank."""
    values = np.ones(VALUES, np.float32)
    with switchsum.connect() as communicator:
        if given.only != "page":
            threading.Thread(target=report_often, args=(communicator, board, given), daemon=True).start()
        while True:
            communicator.allreduce(values)
            if communicator.rank == 0:
                board.count()


def report_often(communicator: switchsum.Communicator, board: Board, given: argparse.Namespace) -> None:
    """Report in the place of the thread of heartbeats, while the board says so with calls, or at all."""
    membership: Any = communicator.queue.membership
    driver: Any = communicator.queue.driver
    reporter: Any = report.Reporter(communicator, driver.engine, host="here", link="shm")
    membership.report = lambda job, nonce: None
    report.MOST_CALLS *= given.times  # type: ignore[misc]
    tell_calls = reporter._calls

    def leave_calls_out(kept: Any, *_: Any) -> tuple[str, list[str]]:
        reporter._reported = int(kept["count"])
        return "", []

    while True:
        time.sleep(1 / given.times)
        if given.only == "reports" and not board.is_on():
            continue
        reporter._calls = tell_calls if board.is_on() else leave_calls_out
        made = reporter(membership.job, membership.reply.nonce)
        membership._client.report(made, CALL_S)


def watch(board: Board, given: argparse.Namespace) -> None:
    """Be a browser that takes each picture, and a scraper that asks as often, while the board says so."""
    [page] = given.rest
    while True:
        while not board.is_on():
            time.sleep(0.01)
        with urllib.request.urlopen(f"{page}events") as stream:
            for line in stream:
                if not board.is_on():
                    break
                if line.startswith(b"data"):
                    urllib.request.urlopen(f"{page}metrics").read()


if __name__ == "__main__":
    main()

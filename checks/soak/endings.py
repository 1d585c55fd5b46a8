"""Endings: `python -m checks.soak.endings` starts PyTorch jobs of two ranks and ends them in each way there is.

Rank 0 starts switch and controller, as on one machine without a launcher.  A job is well if its ranks end by themselves
with the exit codes that they should have, and if then no process, file or socket of it is left.  Prints a table; the
exit code is 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table

import switchsum.torch.groups  # noqa: F401 - what ranks need, imported once
from checks.soak.world import processes_with

RANKS: Final = 2
MARK: Final = "SWITCHSUM_ENDING"
"""Environment variable by which the processes of a job are found; ranks hand it on to all that they start."""
LEFT_S: Final = 60.0
"""How long what is about to end may take."""
POLL_S: Final = 0.02


class Rank(BaseException):
    """Raised in a forked rank, to leave the loop that it was forked in."""

    def __init__(self, kind: str, rank: int, folder: Path) -> None:
        super().__init__()
        self.kind, self.rank, self.folder = kind, rank, folder


def add() -> None:
    """Add ones over the ranks."""
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    assert tensor[0] == dist.get_world_size()


def leave_it(rank: int, folder: Path) -> None:
    """End without destroy_process_group."""
    dist.init_process_group("switchsum")
    add()


def destroy(rank: int, folder: Path) -> None:
    """End as torch's documentation says."""
    leave_it(rank, folder)
    dist.destroy_process_group()


def begin_again(rank: int, folder: Path) -> None:
    """Make the group anew once it has been destroyed."""
    destroy(rank, folder)
    # A port of its own: torch may connect to the store that rank 0 is about to close, with every backend alike.
    os.environ["MASTER_PORT"] = os.environ["SECOND_PORT"]
    destroy(rank, folder)


def go_on(rank: int, folder: Path) -> None:
    """Add until something happens."""
    leave_it(rank, folder)
    (folder / f"ready-{rank}").touch()
    while True:
        add()


def fail(rank: int, folder: Path) -> None:
    """Raise on the rank that the folder names, while the other one waits for it."""
    leave_it(rank, folder)
    if (folder / f"victim-{rank}").exists():
        raise RuntimeError("this rank fails, as it is meant to")
    add()
    add()


def give_up(rank: int, folder: Path) -> None:
    """End with an exit code on the rank that the folder names, while the other one waits for it."""
    leave_it(rank, folder)
    if (folder / f"victim-{rank}").exists():
        sys.exit(1)
    add()
    add()


KINDS: Final[dict[str, Callable[[int, Path], None]]] = {
    "exit": leave_it,
    "destroy": destroy,
    "again": begin_again,
    "sigterm": go_on,
    "exception": fail,
    "code": give_up,
}


@dataclass(slots=True)
class Tally:
    """What came of the jobs of one kind."""

    seconds: list[float] = field(default_factory=list)
    hung: int = 0
    problems: list[str] = field(default_factory=list)


def start(kind: str, rank: int, folder: Path, ports: Sequence[int]) -> int:
    """Fork a rank; returns its process, and raises Rank in it."""
    pid = os.fork()
    if pid:
        return pid
    os.setpgid(0, 0)
    output = os.open(folder / f"output-{rank}", os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    place = folder / "tmp"
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": RANKS, "LOCAL_WORLD_SIZE": RANKS}
    names |= {"MASTER_PORT": ports[0], "SECOND_PORT": ports[1]}
    os.environ |= {name: str(value) for name, value in names.items()}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "TMPDIR": str(place), MARK: folder.name}
    tempfile.tempdir = None
    raise Rank(kind, rank, folder)


def await_all(pids: Sequence[int], limit_s: float, each: Callable[[], None]) -> list[int | None]:
    """Return exit codes; None for who was still there after `limit_s`, and has been killed."""
    codes: list[int | None] = [None] * len(pids)
    deadline = time.monotonic() + limit_s
    while None in codes and time.monotonic() < deadline:
        each()
        for index, pid in enumerate(pids):
            if codes[index] is None:
                ended, status = os.waitpid(pid, os.WNOHANG)
                codes[index] = os.waitstatus_to_exitcode(status) if ended else None
        time.sleep(POLL_S)
    for code, pid in zip(codes, pids, strict=True):
        if code is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return codes


def left(folder: Path) -> list[str]:
    """Return what is left of a job."""
    found = [f"process {pid}" for pid in processes_with(f"{MARK}={folder.name}")]
    found += [line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if folder.name in line]
    return found + [str(path) for path in (folder / "tmp").iterdir()]


def run(kind: str, number: int, limit_s: float, tally: Tally) -> None:
    """Run one job and look what is left of it."""
    folder = Path(tempfile.mkdtemp(prefix="switchsum-endings-"))
    (folder / "tmp").mkdir()
    victim = number % RANKS
    (folder / f"victim-{victim}").touch()
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        ports = [first.getsockname()[1], second.getsockname()[1]]
    shared = set(os.listdir("/dev/shm"))
    began = time.monotonic()
    pids = [start(kind, rank, folder, ports) for rank in range(RANKS)]
    reported = False

    def end_one() -> None:
        nonlocal reported
        if kind == "sigterm" and not reported and all((folder / f"ready-{rank}").exists() for rank in range(RANKS)):
            os.kill(pids[victim], signal.SIGTERM)
            reported = True

    codes = await_all(pids, limit_s, end_one)
    tally.seconds.append(time.monotonic() - began)
    expected = [0] * RANKS if kind not in ("sigterm", "exception", "code") else [1] * RANKS
    if kind == "sigterm":
        expected[victim] = -signal.SIGTERM
    deadline = time.monotonic() + LEFT_S
    while (remains := left(folder)) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    remains += [f"/dev/shm/{name}" for name in set(os.listdir("/dev/shm")) - shared if "switchsum" in name]
    tally.hung += codes.count(None)
    if codes != expected or remains:
        text = "\n".join((folder / f"output-{rank}").read_text() for rank in range(RANKS))
        tally.problems.append(
            f"{kind} {number}: exit codes {codes}, not {expected}; left: {remains or 'nothing'}\n{text}"
        )
    shutil.rmtree(folder, ignore_errors=True)


def soak(arguments: argparse.Namespace) -> int:
    """Run all jobs; returns the exit code."""
    tallies = {kind: Tally() for kind in arguments.kinds}
    deadline = time.monotonic() + arguments.seconds
    for number in range(arguments.starts):
        if time.monotonic() > deadline:
            print(f"the time is over: {number} starts of each kind instead of {arguments.starts}")
            break
        for kind, tally in tallies.items():
            problems = len(tally.problems)
            run(kind, number, arguments.limit, tally)
            for problem in tally.problems[problems:]:
                print(problem, flush=True)
        done = ", ".join(f"{kind} {tally.seconds[-1]:.1f} s" for kind, tally in tallies.items())
        print(f"{number + 1} of {arguments.starts}: {done}", flush=True)
    table = Table("ending", "starts", "well", "ranks hung", "median", "worst", title="endings", title_justify="left")
    for kind, tally in tallies.items():
        count = len(tally.seconds)
        times = (f"{statistics.median(tally.seconds):.1f} s", f"{max(tally.seconds):.1f} s") if count else ("-", "-")
        table.add_row(kind, str(count), str(count - len(tally.problems)), str(tally.hung), *times)
    Console().print(table)
    return 1 if any(tally.problems for tally in tallies.values()) else 0


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m checks.soak.endings", description=__doc__)
    parser.add_argument("--starts", type=int, default=100, help="jobs of each kind")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="ways to end")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no further jobs after this time")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds after which a job hangs")
    return soak(parser.parse_args())


if __name__ == "__main__":
    try:
        code = main()
    except Rank as rank:  # the end of this process is the end that is tested: no os._exit
        this = rank
    else:
        sys.exit(code)
    KINDS[this.kind](this.rank, this.folder)

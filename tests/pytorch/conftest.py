"""Ranks for tests: threads of this process on the reference switch, or processes that a launcher forks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from support.timing import patience
from switchsum.testing.cluster import ClusterConfig
from switchsum.testing.local import communicators

RANKS = 3
SCRIPTS = Path(__file__).parent / "scripts"
LOCAL = {f"SWITCHSUM_{name}" for name in ("CONTROLLER", "JOB", "LINK", "LANES", "SEED", "STRICT")}
DEADLINE_S = patience(100.0)


def make_groups(ranks: int) -> list[Any]:
    """Return the groups of all ranks, each with a communicator of its own."""
    dist = pytest.importorskip("torch.distributed", reason="PyTorch is not installed (make torch)")
    from switchsum.torch.group import SwitchGroup

    store = dist.HashStore()
    made = communicators(
        ranks, config=ClusterConfig(workers=ranks, lanes_per_frame=256, window_slots=16, timeout_s=patience(50))
    )

    def make(rank: int) -> Any:
        return SwitchGroup(store, rank, ranks, timedelta(seconds=patience(20)), lambda: made[rank], lambda: None)

    with ThreadPoolExecutor(ranks) as pool:  # gloo's ranks wait for one another
        return list(pool.map(make, range(ranks)))


@pytest.fixture
def own_groups() -> Iterator[list[Any]]:
    """Groups of three ranks that the test may break."""
    made = make_groups(RANKS)
    yield made
    for group in made:
        group.shutdown()


@pytest.fixture(scope="module")
def shared_groups() -> Iterator[list[list[Any]]]:
    """Room for groups that tests share as long as all goes well."""
    kept: list[list[Any]] = []
    yield kept
    for made in kept:
        for group in made:
            group.shutdown()


@pytest.fixture
def groups(shared_groups: list[list[Any]]) -> Iterator[list[Any]]:
    """Groups of three ranks that have done nothing that counts."""
    if not shared_groups:
        shared_groups.append(make_groups(RANKS))
    (made,) = shared_groups
    for group in made:
        group._detours = type(group._detours)()
    yield made
    if any(group.connect().queue.under_way or group.connect().queue.error for group in made):
        shared_groups.clear()  # a test has failed


def on_all(groups: list[Any], function: Callable[[Any], Any]) -> list[Any]:
    """Call a function for each rank, in threads of their own."""
    with ThreadPoolExecutor(len(groups)) as pool:
        return list(pool.map(function, groups))


@dataclass(frozen=True, slots=True)
class Ended:
    """A script that has run on several ranks."""

    codes: list[int]
    outputs: list[str]
    """What each rank has printed, errors and all."""

    def check(self) -> str:
        """Return what all ranks have printed; fails where one has failed."""
        assert not any(self.codes), self.text
        return self.text

    @property
    def text(self) -> str:
        """All output."""
        return "\n".join(f"rank {rank}: {self.codes[rank]}\n{one}" for rank, one in enumerate(self.outputs))


Launch = Callable[..., Ended]
Torchrun = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def launcher() -> Iterator[subprocess.Popen[str]]:
    """A process that runs scripts on several ranks."""
    pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
    process = subprocess.Popen(
        [sys.executable, str(SCRIPTS / "launcher.py")],
        env={name: value for name, value in os.environ.items() if name not in LOCAL} | {"OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    process.communicate(timeout=patience(30))


@pytest.fixture
def launch(launcher: subprocess.Popen[str]) -> Launch:
    """Run a script on several ranks, which share a switch with other scripts unless told otherwise."""

    def run(ranks: int, *command: Any, own_switch: bool = False, deadline_s: float = DEADLINE_S) -> Ended:
        assert launcher.stdin is not None
        assert launcher.stdout is not None
        words = [str(word) for word in command]
        request = {"ranks": ranks, "command": words, "own_switch": own_switch, "deadline_s": deadline_s}
        launcher.stdin.write(json.dumps(request) + "\n")
        launcher.stdin.flush()
        answer = json.loads(launcher.stdout.readline())
        return Ended(answer["codes"], answer["outputs"])

    return run


@pytest.fixture
def torchrun() -> Torchrun:
    """Run a script with torchrun on this machine, with nothing of switchsum running."""

    def run(
        workers: int, *command: Any, options: Sequence[str] = (), **environment: str
    ) -> subprocess.CompletedProcess[str]:
        clean = {name: value for name, value in os.environ.items() if name not in LOCAL}
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}"]
        process = subprocess.Popen(
            [*launcher, *options, *map(str, command)],
            env={**clean, "OMP_NUM_THREADS": "1", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            output, errors = process.communicate(timeout=patience(150))
        except subprocess.TimeoutExpired:
            process.terminate()  # it ends its workers, which a signal that cannot be caught would leave behind
            output, errors = process.communicate(timeout=patience(60))
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    return run

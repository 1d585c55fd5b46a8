"""torchft's Manager on the process group: replicas train, one is killed, and one takes its place."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator

import pytest

from support.timing import eventually, patience

from .conftest import LOCAL, SCRIPTS

pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
torchft = pytest.importorskip("torchft", reason="torchft is not installed (the extra `torchft`)")

KILLED_AT = 3
LINE = re.compile(r"replica (\d) step (\d+) of (\d) model (\w+)")


class Replicas:
    """Replicas under way, and what they have printed."""

    def __init__(self, lighthouse: str, stack: contextlib.ExitStack) -> None:
        self._lighthouse, self._stack = lighthouse, stack
        self.text: list[str] = []
        self.models: dict[int, dict[int, str]] = defaultdict(dict)
        """Digest of the model after each step, by step and replica."""
        self.sizes: dict[int, int] = {}
        """Replicas that took part in each step."""

    def start(self, number: int, *then: str) -> subprocess.Popen[str]:
        environment = {name: value for name, value in os.environ.items() if name not in LOCAL}
        process = subprocess.Popen(
            [sys.executable, str(SCRIPTS / "replicas.py"), *map(str, (number, self._lighthouse, KILLED_AT, *then))],
            env={**environment, "OMP_NUM_THREADS": "1", "TIMEOUT_S": str(patience(30))},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        thread = threading.Thread(target=self._read, args=(process,), daemon=True)
        thread.start()
        self._stack.callback(thread.join, patience(30))
        self._stack.callback(process.wait, patience(30))
        self._stack.callback(process.kill)
        return process

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self.text.append(line)
                if found := LINE.search(line):
                    replica, step, size = map(int, found.groups()[:3])
                    self.models[step][replica] = found[4]
                    self.sizes[step] = size


@pytest.fixture
def replicas() -> Iterator[Replicas]:
    """Replicas of a lighthouse of their own."""
    from torchft.coordination import LighthouseServer

    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=2, join_timeout_ms=1000)
    with contextlib.ExitStack() as stack:
        stack.callback(lighthouse.shutdown)
        yield Replicas(lighthouse.address(), stack)


@pytest.mark.timeout(600)
def test_a_manager_commits_steps_loses_a_replica_and_takes_it_back(replicas: Replicas) -> None:
    # Its default asynchronous quorum forms groups outside the main thread, where a switch has to be started.
    first = [replicas.start(0), replicas.start(1), replicas.start(2, "dies")]
    assert eventually(lambda: first[2].poll() is not None, 120), "".join(replicas.text)
    assert first[2].returncode == -9, "".join(replicas.text)
    back = replicas.start(2)
    ended = eventually(lambda: all(one.poll() is not None for one in (*first, back)), 240)
    text = "".join(replicas.text)
    assert ended, text
    assert [one.returncode for one in (first[0], first[1], back)] == [0, 0, 0], text
    last = max(replicas.models)
    assert set(replicas.models) == set(range(1, last + 1)), text
    for step, models in replicas.models.items():
        assert len(set(models.values())) == 1, (step, models)  # all that committed it have the same bits
    assert set(replicas.models[last]) == {0, 1, 2}, text  # it is back
    assert 2 in replicas.sizes.values(), text  # while it was away

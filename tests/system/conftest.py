"""Whole jobs under the launcher, as a user starts them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

WORKERS = Path(__file__).parent / "workers"
DEADLINE_S = 100

Run = Callable[..., subprocess.CompletedProcess[str]]


def has_namespaces() -> bool:
    """Whether this machine lets us make network namespaces."""
    command = ["unshare", "--net", "true"]
    if os.geteuid() != 0:
        command[1:1] = ["--user", "--map-root-user"]
    return (
        shutil.which("unshare") is not None
        and subprocess.run(command, capture_output=True, check=False).returncode == 0
    )


NAMESPACES = pytest.mark.skipif(not has_namespaces(), reason="needs network namespaces (root, or user namespaces)")
BMV2 = pytest.mark.skipif(shutil.which("simple_switch_grpc") is None, reason="needs simple_switch_grpc on PATH")
SWITCHES = [
    pytest.param([], id="shm"),
    pytest.param(["--links", "veth"], id="veth", marks=[pytest.mark.root, NAMESPACES]),
    pytest.param(
        ["--links", "veth", "--switch", "bmv2"], id="bmv2", marks=[pytest.mark.root, pytest.mark.bmv2, NAMESPACES, BMV2]
    ),
]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs a job and returns what came of it."""

    def run_job(*options: str, command: list[str], environment: dict[str, str] | None = None) -> (
        subprocess.CompletedProcess[str]
    ):  # fmt: skip
        return subprocess.run(
            [sys.executable, "-m", "switchsum", "run", *options, "--", *command],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
            env={**os.environ, "RESULT": str(tmp_path / "result"), "PYTHONHASHSEED": "0"} | (environment or {}),
        )

    return run_job

"""Whole jobs under the launcher, as a user starts them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from support.timing import patience

DEADLINE_S = patience(100)

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


@dataclass(frozen=True)
class Switch:
    """A kind of links and switch, and what it takes."""

    name: str
    options: tuple[str, ...]
    marks: tuple[pytest.MarkDecorator, ...] = ()


NAMESPACES = pytest.mark.skipif(not has_namespaces(), reason="needs network namespaces (root, or user namespaces)")
NEEDS_BMV2 = pytest.mark.skipif(shutil.which("simple_switch_grpc") is None, reason="needs simple_switch_grpc on PATH")
SHM = Switch("shm", ())
TREE = Switch(
    "tree",
    ("--topology", "leaf-spine,2,1,2"),
    (pytest.mark.skipif(find_spec("scipy") is None, reason="scipy is not installed (extra trees)"),),
)
UDP = Switch("udp", ("--links", "udp"))
VETH = Switch("veth", ("--links", "veth"), (pytest.mark.root, NAMESPACES))
BMV2 = Switch(
    "bmv2",
    ("--links", "veth", "--switch", "bmv2"),
    (pytest.mark.root, pytest.mark.bmv2, NAMESPACES, NEEDS_BMV2),
)


def over(switch: Switch, *values: object) -> list[ParameterSet]:
    """Return test parameters (options, value) for a switch and each of some values."""
    return [
        pytest.param(list(switch.options), value, id=f"{switch.name}-{value}", marks=switch.marks) for value in values
    ]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs a job and returns what came of it."""

    job_s = ("--timeout", f"{patience(10)}")

    def run_job(*options: str, command: list[str], environment: dict[str, str] | None = None) -> (
        subprocess.CompletedProcess[str]
    ):  # fmt: skip
        return subprocess.run(
            [sys.executable, "-m", "switchsum", "run", *job_s, *options, "--", *command],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
            env={**os.environ, "RESULT": str(tmp_path / "result"), "PYTHONHASHSEED": "0"} | (environment or {}),
        )

    return run_job

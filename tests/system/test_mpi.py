"""Ranks that a launcher of MPI starts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from ..timing import patience
from .conftest import NAMESPACES

# Importing it takes a second, in each process that collects tests.
pytestmark = pytest.mark.skipif(
    find_spec("sklearn") is None, reason="scikit-learn is not installed (the demo's images)"
)
EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "mpi.sh"


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun (openmpi-bin) is not on PATH")
@pytest.mark.timeout(120)
def test_the_demo_under_mpirun() -> None:
    options = "--oversubscribe" + (" --allow-run-as-root" if os.geteuid() == 0 else "")
    environment = {**os.environ, "MPIRUN_OPTIONS": options, "OMP_NUM_THREADS": "1"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    command = ["sh", str(EXAMPLE), "3", "--epochs", "2"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=patience(110), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 workers, every gradient added by the switch" in done.stdout


def test_a_number_of_workers_that_is_none_ends_the_script() -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", str(EXAMPLE), "many"], env=environment, capture_output=True, text=True, timeout=patience(40), check=False
    )
    assert done.returncode == 1
    assert done.stderr.count("valid integer") == 1


@pytest.mark.root
@pytest.mark.timeout(900)
def test_the_batch_script_under_slurm() -> None:
    launchers = ("RANK", "WORLD_SIZE", "OMPI_", "PMI_", "SLURM_", "SWITCHSUM_CONTROLLER", "SWITCHSUM_JOB")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(launchers)}
    script = str(Path(__file__).parent / "workers" / "slurm.py")
    done = subprocess.run(
        ["unshare", "--net", sys.executable, script, "2"],
        env=environment, capture_output=True, text=True, timeout=patience(300), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 workers, every gradient added by the switch" in done.stdout


@pytest.mark.root
@NAMESPACES
@pytest.mark.parametrize("script", ["mpi.sh", pytest.param("slurm.sbatch", marks=pytest.mark.slow)])
@pytest.mark.timeout(120)
def test_a_script_ends_when_its_switch_has(script: str, tmp_path: Path) -> None:
    ours = tmp_path / "switchsum"
    ours.write_text(f'#!/bin/sh\n[ "$1" = switch ] && exit 3\nexec {sys.executable} -m switchsum "$@"\n')
    ours.chmod(0o755)
    network = """
    ip link set lo up; ip link add out type veth peer name in; ip link set out up; ip link set in up
    ip address add 192.0.2.10/24 dev out
    """
    done = subprocess.run(
        ["unshare", "--net", "bash", "-c", f"{network}exec bash {EXAMPLE.parent / script}"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_NTASKS": "2"},
        capture_output=True, text=True, timeout=patience(100), check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "no switch" in done.stderr  # what was waited for

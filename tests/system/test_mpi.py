"""Ranks that a launcher of MPI starts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from support.timing import patience
from switchsum_switch.bmv2.process import free_port

from .conftest import NAMESPACES

# Importing it takes a second, in each process that collects tests.
IMAGES = pytest.mark.skipif(find_spec("sklearn") is None, reason="scikit-learn is not installed (the demo's images)")
TORCH = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed (make torch)")
MPIRUN = pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun (openmpi-bin) is not on PATH")
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "mpi.sh"
LAUNCHERS = ("RANK", "WORLD_SIZE", "OMPI_", "PMI_", "SLURM_", "SWITCHSUM_CONTROLLER", "SWITCHSUM_JOB", "MASTER_")
SUM = """
import os, torch, torch.distributed as dist
dist.init_process_group("switchsum")
values = torch.full((1000,), dist.get_rank() + 1.0)
dist.all_reduce(values)
line = f"rank {dist.get_rank()} of {dist.get_world_size()}: {values.unique().tolist()}"
os.write(1, f"{line}\\n".encode())  # at once, also where PYTHONUNBUFFERED is set: two ranks write to one pipe
dist.destroy_process_group()
"""


def outside_of_launchers(**more: str) -> dict[str, str]:
    """Return the environment of a user who is in no job."""
    here = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**here, "PATH": path, "OMP_NUM_THREADS": "1", **more}


def mpirun_options() -> str:
    return "--oversubscribe" + (" --allow-run-as-root" if os.geteuid() == 0 else "")


@IMAGES
@MPIRUN
@pytest.mark.timeout(120)
def test_the_demo_under_mpirun() -> None:
    environment = outside_of_launchers(MPIRUN_OPTIONS=mpirun_options())
    command = ["sh", str(EXAMPLE), "3", "--epochs", "2"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=patience(110), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 workers, every gradient added by the switch" in done.stdout


@TORCH
@MPIRUN
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_pytorch_under_mpirun_as_the_page_says(tmp_path: Path) -> None:
    lines = (ROOT / "docs" / "machines.md").read_text().splitlines()
    command = next(line for line in lines if line.startswith("mpirun -n 4 "))
    command = command.replace("mpirun -n 4", f"mpirun {mpirun_options()} -n 2").replace("29400", str(free_port()))
    (tmp_path / "train.py").write_text(SUM)
    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, env=outside_of_launchers(),
        capture_output=True, text=True, timeout=patience(110), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(done.stdout.split("\n")) == ["", "rank 0 of 2: [3.0]", "rank 1 of 2: [3.0]"]


def test_a_number_of_workers_that_is_none_ends_the_script() -> None:
    done = subprocess.run(
        ["sh", str(EXAMPLE), "many"],
        env=outside_of_launchers(),
        capture_output=True,
        text=True,
        timeout=patience(40),
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("valid integer") == 1


def under_slurm(*arguments: str) -> str:
    """Run a batch script on machines that are namespaces; return what it has printed."""
    script = str(Path(__file__).parent / "workers" / "slurm.py")
    done = subprocess.run(
        ["unshare", "--net", sys.executable, script, *arguments],
        env=outside_of_launchers(), capture_output=True, text=True, timeout=patience(300), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@IMAGES
@pytest.mark.root
@pytest.mark.timeout(900)
def test_the_batch_script_under_slurm() -> None:
    assert "2 workers, every gradient added by the switch" in under_slurm("2", "slurm.sbatch")


@TORCH
@pytest.mark.root
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_batch_script_of_pytorch_under_slurm(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SUM)
    text = under_slurm("3", "torch.sbatch", str(tmp_path / "train.py"))
    assert all(f"rank {rank} of 3: [6.0]" in text for rank in range(3)), text


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
    assert "no connection to the switch" in done.stderr  # what was waited for

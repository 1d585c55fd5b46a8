"""Cells on real links share a job whose switch and ranks stay warm."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from conftest import reason_without_root
from support.timing import patience
from switchsum_lab.sweeps.axes import Cell
from switchsum_lab.sweeps.real import Jobs
from switchsum_protocol.errors import LocalError

ROOT = pytest.mark.skipif(bool(reason_without_root()), reason=reason_without_root())
MPIRUN = pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun (openmpi-bin) is not on PATH")
TORCH = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed (make torch)")


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_cells_of_one_setting_run_in_one_job(tmp_path: Path) -> None:
    cells = [
        Cell(links="shm", workers=2, bytes=40_000),
        Cell(links="shm", workers=2, bytes=400_000, density=0.1, loss=0.05),
        Cell(links="shm", workers=2, bytes=40_000, collective="topk", density=0.1),
        Cell(links="shm", workers=2, bytes=40_000, lanes="int8", fusion=True, block=64),
    ]
    with (tmp_path / "log.txt").open("a") as log:
        jobs = Jobs(log)
        found = [jobs.run(cell, seed) for seed in (0, 1) for cell in cells]
        jobs.close()
    assert jobs.started == 1, (tmp_path / "log.txt").read_text()
    assert all(one.right and one.ms > 0 and one.sent_mb for one in found)
    assert all(found[number].repeats for number in (1, 5))  # frames are lost in these alone


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_job_that_dies_fails_its_cell_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchsum_lab.sweeps.real.TIMEOUT_S", patience(60))
    with (tmp_path / "log.txt").open("a") as log:
        jobs = Jobs(log)
        cell = Cell(links="udp", workers=2, bytes=40_000)
        jobs.run(cell, 0)
        [session] = jobs._warm.values()
        session.process.kill()
        session.process.wait()
        with pytest.raises(LocalError, match="the job ended with exit code"):
            jobs.run(cell, 1)
        assert jobs.run(cell, 1).right
        jobs.close()
    assert jobs.started == 2


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(Cell(links="shm", protocol="openmpi", workers=2), marks=[MPIRUN], id="openmpi-shm"),
        pytest.param(
            Cell(links="veth", protocol="openmpi", workers=2, rate_mbit=200.0),
            marks=[MPIRUN, ROOT, pytest.mark.root],
            id="openmpi-veth",
        ),
        pytest.param(
            Cell(links="veth", protocol="gloo", workers=2, rate_mbit=200.0),
            marks=[TORCH, ROOT, pytest.mark.root],
            id="gloo-veth",
        ),
        pytest.param(
            Cell(links="veth", protocol="parameter_server", workers=2, servers=1, rate_mbit=200.0, loss=0.01),
            marks=[ROOT, pytest.mark.root],
            id="parameter-server-veth",
        ),
    ],
)
def test_rivals_run_on_real_links(cell: Cell, tmp_path: Path) -> None:
    with (tmp_path / "log.txt").open("a") as log:
        jobs = Jobs(log)
        found = jobs.run(cell, 0)
        jobs.close()
    assert found.right, (tmp_path / "log.txt").read_text()
    if cell.rate_mbit is not None:  # a million bytes, which no way sends fewer than once
        assert found.ms > 1e3 * cell.bytes * 8 / (cell.rate_mbit * 1e6) * 0.7


@pytest.mark.slow
@pytest.mark.root
@ROOT
@pytest.mark.timeout(240)
@pytest.mark.parametrize("protocol", ["switchsum", pytest.param("gloo", marks=TORCH)])
def test_a_limited_link_is_not_beaten_and_what_it_carried_is_counted(protocol: str, tmp_path: Path) -> None:
    # Two workers send 200 kB each at 8 Mbit/s, a megabyte a second.  A bucket that is full holds all of it.
    cell = Cell(links="veth", protocol=protocol, workers=2, rate_mbit=8.0, bytes=200_000)
    with (tmp_path / "log.txt").open("a") as log:
        jobs = Jobs(log)
        found = jobs.run(cell, 0)
        jobs.close()
    assert found.ms > 170  # a link's rate does not depend on the processor, and a load makes it longer
    assert found.sent_mb is not None
    assert 0.2 < found.sent_mb < 0.3
    assert found.frames is not None
    assert found.frames > 2 * 130
    assert found.repeats is not None

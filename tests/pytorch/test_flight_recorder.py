"""Flight Recorder's dumps of our groups, read by torch's own `torchfrtrace`."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.timing import eventually, patience

from .conftest import SCRIPTS, Launch

RANKS = 3
PREFIX = "trace_rank_"


def torchfrtrace(folder: Path, *options: str) -> str:
    """Return what torch's own analyzer says of a folder's dumps."""
    command = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(folder), "-p", PREFIX, *options]
    found = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), check=False)
    assert found.returncode == 0, found.stderr
    return found.stdout + found.stderr


def run(launch: Launch, case: str, folder: Path, timeout_s: float = 60.0) -> str:
    return launch(RANKS, SCRIPTS / "flight.py", case, folder / PREFIX, patience(timeout_s)).check()


@pytest.mark.timeout(180)
def test_torchfrtrace_and_we_name_a_straggler(launch: Launch, tmp_path: Path) -> None:
    text = run(launch, "straggler", tmp_path, 2.0)
    assert text.count("waits for [(1,)]: no progress") == 2, text
    found = torchfrtrace(tmp_path)
    assert "Not all ranks joining collective, sequence number: 3" in found
    assert "collective: nccl:all_reduce" in found
    assert "missing ranks: {1}" in found
    assert "input sizes: [[5000]]" in found
    assert "flight.py" in found  # the line that asked for it


@pytest.mark.timeout(120)
def test_torchfrtrace_names_who_asks_for_something_else(launch: Launch, tmp_path: Path) -> None:
    run(launch, "mismatch", tmp_path)
    found = torchfrtrace(tmp_path)
    assert "Collective sequence number: 3 has errors" in found
    # torchfrtrace takes the dump that it reads first for the right one, in the order of the folder.
    culprits = set(re.findall(r"Culprit rank (\d); Error type: SIZE_OR_SYNTAX_MISMATCH", found))
    assert culprits in ({"1"}, {"0", "2"}), found
    assert "[[4000]]" in found
    assert "[[5000]]" in found


@pytest.mark.timeout(120)
def test_torchfrtrace_finds_nothing_where_everything_ended(launch: Launch, tmp_path: Path) -> None:
    assert run(launch, "fine", tmp_path).count("wrote ") == RANKS
    found = torchfrtrace(tmp_path, "-o", str(tmp_path / "database"))
    assert "mismatch" not in found.lower(), found
    assert "Not all ranks" not in found
    _, database = pickle.loads((tmp_path / "database").read_bytes())
    names = [one.collective_name for one in database.collectives]
    assert all(one.pass_check for one in database.collectives), database.collectives
    assert names.count("nccl:all_reduce_barrier") == 2
    assert {"nccl:all_reduce", "nccl:_all_gather_base", "nccl:all_gather", "nccl:_reduce_scatter_base", "nccl:reduce",
            "nccl:all_to_all", "nccl:gather", "nccl:broadcast"} <= set(names)  # fmt: skip
    assert {one.collective_state for one in database.collectives} == {"completed"}


def test_a_dump_is_written_when_the_pipe_has_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dist: Any = pytest.importorskip("torch.distributed", reason="PyTorch is not installed (make torch)")
    from switchsum.torch import flight_recorder

    monkeypatch.setattr(flight_recorder, "recorder", None)  # of this test alone: it would record all that follow
    monkeypatch.setenv("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", str(tmp_path / "pipe"))
    monkeypatch.setenv("TORCH_FR_DUMP_TEMP_FILE", str(tmp_path / PREFIX))
    watch = flight_recorder.watch(dist.HashStore(), 3)
    assert watch is not None
    try:
        pipe = os.open(tmp_path / "pipe3.pipe", os.O_WRONLY | os.O_NONBLOCK)
        os.write(pipe, b"1\n")
        os.close(pipe)
        assert eventually((tmp_path / f"{PREFIX}3").exists)
    finally:
        watch.stop()
    assert pickle.loads((tmp_path / f"{PREFIX}3").read_bytes())["version"] == flight_recorder.FORMAT


def test_a_dump_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch.distributed", reason="PyTorch is not installed (make torch)")
    from switchsum.torch import flight_recorder
    from switchsum_protocol.errors import LocalError

    monkeypatch.setattr(flight_recorder, "recorder", flight_recorder.FlightRecorder(1))
    taken = tmp_path / "taken"
    taken.mkdir()
    with pytest.raises(LocalError, match="cannot write"):
        flight_recorder.dump_flight_recorder(taken)
    assert list(tmp_path.iterdir()) == [taken]

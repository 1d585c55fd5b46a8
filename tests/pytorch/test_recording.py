"""A training is recorded as it is: `python -m switchsum_lab.record NAME SCRIPT`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from switchsum_lab.sweeps import simulated
from switchsum_lab.sweeps.axes import Cell
from switchsum_lab.sweeps.recording import load

pytest.importorskip("torch")

TRAINING = """
import gc, os, sys
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel
from beside import LAYER

assert sys.argv[1:] == ["--epochs", "1"], sys.argv
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method="file://" + os.environ["MEETING"], rank=rank, world_size=2)
torch.manual_seed(rank)
models = [DistributedDataParallel(torch.nn.Linear(LAYER, 10)) for _ in range(2)]
models[1].register_comm_hook(None, fp16_compress_hook)
for step in range(3):
    for model in models:
        model.zero_grad()
        model(torch.ones(4, LAYER) * (rank + step)).sum().backward()
print([float(model.module.weight.grad.sum()) for model in models])
del model, models
gc.collect()  # or gloo's threads hold hooks while the interpreter ends, and PyTorch aborts now and then
dist.destroy_process_group()
"""


@pytest.mark.timeout(300)
def test_a_training_is_recorded_without_a_change(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    (tmp_path / "beside.py").write_text("LAYER = 300\n")

    def run(name: str, *recorded: str) -> set[str]:
        command = [sys.executable, *recorded, str(tmp_path / "train.py"), "--epochs", "1"]
        environment = {"MEETING": str(tmp_path / name), "PATH": "", "OMP_NUM_THREADS": "1"}
        ranks = [
            subprocess.Popen(command, env={**environment, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
            for rank in range(2)
        ]
        said = {rank.communicate()[0] for rank in ranks}
        assert [rank.returncode for rank in ranks] == [0, 0]
        return said

    plain = run("plain")
    assert run("recorded", "-m", "switchsum_lab.record", str(tmp_path / "run")) == plain
    for name in ("run", "run-2"):
        ranks = load(tmp_path / name)
        assert [len(rank.steps()) for rank in ranks] == [3, 3]
        assert {call.values for rank in ranks for call in rank.calls} == {3010}
        assert all(call.at_s >= 0 for rank in ranks for call in rank.calls)
    cell = Cell(recording=str(tmp_path / "run"), step=1, workers=4)
    assert simulated.run(cell, 0).right


def test_what_is_no_script_is_refused() -> None:
    command = [sys.executable, "-m", "switchsum_lab.record", "run"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.strip() == "usage: python -m switchsum_lab.record NAME SCRIPT [ARGUMENTS]"

"""PyTorch in virtual time: its collectives take what a simulated network takes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch.distributed", reason="PyTorch is not installed (make torch)")
SCRIPT = Path(__file__).parent / "scripts" / "virtual.py"
COMMAND = ["run", "--virtual-time", "-n", "2", "--topology", "star,2", "--rate", "1gbit", "--", sys.executable]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_training_runs_in_virtual_time_the_same_way_each_time() -> None:
    said = []
    for _ in range(2):
        ended = subprocess.run(
            [sys.executable, "-m", "switchsum", *COMMAND, str(SCRIPT)], capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        parameters = re.findall(r"parameters (-?\d+\.\d+)", ended.stdout)
        assert len(parameters) == 2
        assert parameters[0] == parameters[1]
        [found] = re.findall(r"simulated, not measured: (\d+\.?\d*) ms", ended.stderr)
        assert float(found) > 100_000 * 32 / 1e9 * 1e3  # what the sum takes at least
        said.append((parameters, re.findall(r"switchsum: simulated.*", ended.stderr)))
    assert said[0] == said[1]

"""`switchsum run --baseline`: ranks whose collectives are another system's protocol."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from switchsum_lab import baselines
from switchsum_lab.protocols.member import VARIABLE, read_assignment
from switchsum_protocol.errors import UsageError

from .conftest import BMV2, VETH, Run

RANK = """
import numpy as np
from switchsum_lab.protocols.member import join

with join() as member:
    for size in (1000, 77):
        array = np.full(size, member.rank + 0.5, np.float32)
        member.allreduce(array)
        expected = sum(rank + 0.5 for rank in range(member.world_size))
        assert np.allclose(array, expected, rtol=1e-4), array
    began = member.now()
    member.compute(1e-3)
    took = member.now() - began
    member.barrier()
    print("right", member.statistics()["frames"] > 0, f"{took:.6f}")
"""


@pytest.fixture
def rank(tmp_path: Path) -> list[str]:
    path = tmp_path / "rank.py"
    path.write_text(RANK)
    return [sys.executable, str(path)]


@pytest.mark.timeout(120)
def test_ranks_of_another_protocol_run_in_virtual_time(run: Run, rank: list[str]) -> None:
    done = run("--baseline", "skeleton", "--virtual-time", "--loss", "0.01", "-n", "2", command=rank)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[rank {number}] right True 0.001000" for number in range(2)]
    assert re.search(r"simulated, not measured: \d.* repeats by skeleton; digest \w{16}", done.stderr)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("options", "name"),
    [
        pytest.param(switch.options, name, marks=switch.marks, id=f"{switch.name}-{name}")
        for switch in (VETH, BMV2)
        for name in sorted(path.parent.name for path in baselines.FOLDER.glob("*/host.py"))
    ],
)
def test_ranks_of_another_protocol_add_on_real_links(
    run: Run, rank: list[str], options: tuple[str, ...], name: str
) -> None:
    done = run("--baseline", name, *options, "--lanes", "32", "--loss", "0.01", "-n", "3", command=rank)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len([line for line in done.stdout.splitlines() if "right True" in line]) == 3


def test_a_rank_without_the_launcher_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(UsageError, match="switchsum run --baseline"):
        read_assignment()

"""docs/operators.md, followed to the letter in a copy of the sources: the operator that it adds works end to end."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from checks.clone import ROOT
from support.followed import LANES, check_claim, compile_copy, follow, run
from switchsum.testing.embedded import Embedded
from switchsum.testing.rig import Rig
from switchsum_protocol.frame import LaneFormat
from switchsum_switch.execution.pipeline import EngineName, Pipeline

PAGE = ROOT / "docs" / "operators.md"
JOB = """
import sys
import numpy as np
import switchsum

assert switchsum.__file__.startswith(sys.argv[1]), switchsum.__file__
with switchsum.connect() as comm:
    rows = [np.random.default_rng(rank).integers(-128, 128, 700).astype(np.int8) for rank in range(comm.world_size)]
    for block in (None, 32):
        array = rows[comm.rank].copy()
        array[64:400] = 0
        expected = np.bitwise_xor.reduce(rows)
        expected[64:400] = 0
        comm.allreduce(array, op="xor", block=block)
        np.testing.assert_array_equal(array, expected)
    print("rank", comm.rank, "is done")
"""
TORCH = """
import torch
from switchsum.torch.reductions import choose
assert choose(torch.distributed.ReduceOp.BXOR, torch.ones(3, dtype=torch.int32), 2).operator == "xor"
"""


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the sources, changed as the page says."""
    return follow(PAGE, tmp_path_factory.mktemp("operator"))


@pytest.fixture(scope="module")
def compiled(changed: Path) -> Path:
    """Return the copy with the smallest build of its program compiled."""
    return compile_copy(changed)


def test_it_takes_few_files_and_lines() -> None:
    check_claim(PAGE)


def test_what_is_generated_follows(changed: Path) -> None:
    [number] = re.findall(r"^\+ +XOR = (\d+)", PAGE.read_text(), re.MULTILINE)
    assert f'[{number}] = "xor"' in (changed / "src/switchsum/packets/switchsum.lua").read_text()


def test_pytorch_has_it(changed: Path) -> None:
    pytest.importorskip("torch")
    run(changed, "-c", TORCH)


@pytest.mark.timeout(600)
def test_a_job_uses_it(compiled: Path) -> None:
    (compiled / "job.py").write_text(JOB)
    job = [sys.executable, "job.py", str(compiled)]
    said = run(compiled, "-m", "switchsum", "run", "-n", "2", "--lanes", str(LANES), "--", *job)
    assert {f"rank {rank} is done" for rank in range(2)} <= set(re.findall(r"rank \d is done", said))


@pytest.mark.parametrize("engine", ["interpreter", "native"])
def test_the_switch_combines_lanes_of_every_format(compiled: Path, engine: EngineName) -> None:
    embedded = Embedded.__new__(Embedded)
    program = (compiled / "p4src" / "compiled" / f"switchsum_{LANES}.json").read_bytes()
    embedded.pipeline = Pipeline.load(program, engine=engine)
    number = runpy.run_path(str(compiled / "protocol" / "switchsum_protocol" / "frame.py"))["Operator"].XOR
    rig = Rig(embedded, workers=3, lanes_per_frame=LANES)
    random = np.random.default_rng(2)
    for serial, lane_format in enumerate(LaneFormat, 1):
        rows = random.integers(-(1 << 31), 1 << 31, (3, LANES)).astype(np.int32)
        for rank, row in enumerate(rows):
            answers = rig.contribute(rank, serial, row, operator=int(number), format=lane_format)
        for [packet] in answers.values():
            np.testing.assert_array_equal(np.frombuffer(packet.payload, ">i4"), np.bitwise_xor.reduce(rows))

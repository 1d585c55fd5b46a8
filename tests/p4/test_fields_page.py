"""docs/fields.md, followed to the letter in a copy of the sources: the field that it adds travels."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from checks.clone import ROOT
from support.followed import LANES, check_claim, compile_copy, follow, run

PAGE = ROOT / "docs" / "fields.md"
JOB = """
import sys
import numpy as np
import switchsum

assert switchsum.__file__.startswith(sys.argv[1]), switchsum.__file__
with switchsum.connect() as comm:
    array = np.full(700, comm.rank + 1, np.int32)
    comm.allreduce(array)
    assert (array == 3).all()
    print("rank", comm.rank, "is done")
"""
ANSWERS = """
import numpy as np
from switchsum.testing.embedded import Embedded
from switchsum.testing.rig import Rig

rig = Rig(Embedded({lanes}, "{engine}"), workers=2, lanes_per_frame={lanes})
for rank, hops in ((0, 3), (1, 0xFFFF)):
    answers = rig.contribute(rank, 1, np.arange({lanes}, dtype=np.int32), hops=hops)
[[packet], [_]] = answers.values()
assert packet.header.hops == 0, packet.header
[[packet]] = rig.contribute(0, 1, np.arange({lanes}, dtype=np.int32), hops=3).values()
assert packet.header.hops == 4, packet.header
print("answers are counted")
"""


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the sources, changed as the page says."""
    return follow(PAGE, tmp_path_factory.mktemp("field"))


@pytest.fixture(scope="module")
def compiled(changed: Path) -> Path:
    """Return the copy with the smallest build of its program compiled."""
    return compile_copy(changed)


def test_it_takes_few_files_and_lines() -> None:
    check_claim(PAGE)


def test_what_is_generated_follows(changed: Path) -> None:
    assert "    bit<16> hops;\n}" in (changed / "p4src/wire.p4").read_text()
    assert "const bit<16> AGGREGATION_BYTES = 50;" in (changed / "p4src/wire.p4").read_text()
    assert '{ "hops", 48, 2 },' in (changed / "src/switchsum/packets/switchsum.lua").read_text()
    assert "| 48 | hops | 2 |" in (changed / "docs/wire.md").read_text()


@pytest.mark.slow
def test_its_tests_pass(changed: Path) -> None:
    not_compiled = "--deselect=tests/protocol/test_frame.py::test_the_compiled_program_has_the_same_header"
    said = run(
        changed, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir=.", not_compiled, "tests/protocol/test_frame.py"
    )
    assert "passed" in said


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_job_runs_with_it(compiled: Path) -> None:
    (compiled / "job.py").write_text(JOB)
    job = [sys.executable, "job.py", str(compiled)]
    said = run(compiled, "-m", "switchsum", "run", "-n", "2", "--lanes", str(LANES), "--", *job)
    assert {f"rank {rank} is done" for rank in range(2)} <= set(re.findall(r"rank \d is done", said))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["interpreter", "native"])
def test_switches_count(compiled: Path, engine: str) -> None:
    assert "answers are counted" in run(compiled, "-c", ANSWERS.format(lanes=LANES, engine=engine))

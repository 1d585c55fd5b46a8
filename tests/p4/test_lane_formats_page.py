"""docs/lane-formats.md, followed to the letter in a copy of the sources: the format that it adds works end to end."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from checks.clone import ROOT
from support.followed import LANES, check_claim, compile_copy, follow, run

PAGE = ROOT / "docs" / "lane-formats.md"
JOB = """
import sys
import numpy as np
import switchsum
from switchsum_protocol.lanes import block_exponent
from switchsum_protocol.lane_scales import step

assert switchsum.__file__.startswith(sys.argv[1]), switchsum.__file__
with switchsum.connect() as comm:
    for dtype in (np.float32, np.float16):
        rows = [np.random.default_rng(rank).normal(size=777).astype(dtype) for rank in range(comm.world_size)]
        array = rows[comm.rank].copy()
        comm.allreduce(array, lanes="wide16")
        exact = np.sum(np.array(rows, np.float64), axis=0)
        unit = step(max(block_exponent(row.astype(np.float32)) for row in rows), comm.world_size, 16, 32)
        bound = comm.world_size * unit + (np.abs(exact).max() / 1024 if dtype == np.float16 else 1e-6)
        assert 0 < np.abs(array - exact).max() <= bound, (np.abs(array - exact).max(), bound)
    print("rank", comm.rank, "is done")
"""
KERNEL = """
import numpy as np
from switchsum_host.engine import narrow
from switchsum_host.engine.dtypes import FLOAT32
from switchsum_protocol.frame import LaneFormat
from switchsum_protocol.lane_scales import full_scale
from switchsum_protocol.lanes import block_exponent, quantise_at_random, widened
from switchsum_switch.kernels.loading import address_of

random = np.random.default_rng(5)
for count in (1, 63, 64, 65, 127, 128):
    values = random.normal(size=count).astype(np.float32)
    exponent = block_exponent(values)
    scale = full_scale(3, 16, 32) * 2.0 ** (126 - exponent)
    made = []
    for bits in (16, 32):
        frame = np.full(4 * 128 * bits // 32 + 1, 0x5A, np.uint8)
        narrow.pack_narrow(FLOAT32, bits, 32, address_of(values), count, address_of(frame), 128, scale, 77)
        assert frame[-1] == 0x5A
        made.append(frame[:-1].tobytes())
    whole = np.frombuffer(made[1], ">i4")
    np.testing.assert_array_equal(widened(made[0], LaneFormat.WIDE16).view(">i4"), whole)
    assert not whole[count:].any()
    assert np.abs(whole[:count] - values * scale).max() < 1
print("both are alike")
"""


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the sources, changed as the page says."""
    return follow(PAGE, tmp_path_factory.mktemp("format"))


@pytest.fixture(scope="module")
def compiled(changed: Path) -> Path:
    """Return the copy with the smallest build of its program compiled."""
    return compile_copy(changed)


def test_it_takes_few_files_and_lines() -> None:
    check_claim(PAGE)


def test_what_is_generated_follows(changed: Path) -> None:
    program = (changed / "p4src/wire.p4").read_text()
    [number] = re.findall(r"^\+ +WIDE16 = (\d+)", PAGE.read_text(), re.MULTILINE)
    assert f"    WIDE16 = {number}\n}}" in program
    assert "#define WIRE_HAS_HALVES_OF_16(format) ((format) == format_t.WIDE16)\n" in program
    assert (
        f"[{number}] = {{ bits = 32, value_bits = 16 }},"
        in (changed / "src/switchsum/packets/switchsum.lua").read_text()
    )


@pytest.mark.slow
def test_its_tests_pass(changed: Path) -> None:
    options = ("-m", "pytest", "-q", "-c", "/dev/null", "--rootdir=.")
    assert "passed" in run(changed, *options, "tests/protocol/test_frame.py", "tests/protocol/test_lanes.py")


def test_both_ways_to_write_it_are_alike(changed: Path) -> None:
    assert "both are alike" in run(changed, "-c", KERNEL)


@pytest.mark.slow
def test_what_plans_and_simulates_takes_it(changed: Path) -> None:
    said = run(
        changed, "-m", "switchsum", "plan", "--machines", "4", "--rate", "1gbit", "--model", "1MB", "--lanes", "wide16"
    )
    assert said
    said = run(changed, "-c", "from switchsum_lab.options import _lanes; print(_lanes('128,wide16'))")
    assert "(128, 'wide16')" in said


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_job_uses_it(compiled: Path) -> None:
    (compiled / "job.py").write_text(JOB)
    job = [sys.executable, "job.py", str(compiled)]
    said = run(compiled, "-m", "switchsum", "run", "-n", "3", "--lanes", str(LANES), "--", *job)
    assert {f"rank {rank} is done" for rank in range(3)} <= set(re.findall(r"rank \d is done", said))


@pytest.mark.slow
def test_the_program_does_as_the_definition(compiled: Path) -> None:
    options = ("-m", "pytest", "-q", "-c", "/dev/null", "--rootdir=.", "-p", "no:cacheprovider")
    said = run(compiled, *options, "tests/p4/test_widening.py", "-k", f"WIDE16 and interpreter-{LANES}")
    assert re.search(r"\b[2-9] passed", said)

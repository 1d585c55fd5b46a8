"""Without a compiler (`NUMBA_DISABLE_JIT=1`) workers do the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from switchsum_switch.kernels.plain import VARIABLE

from .plain_engine import reported

ROOT = Path(__file__).resolve().parents[2]
PLAIN = {**os.environ, VARIABLE: "1"}
SEEDS = range(int(os.environ.get("SWITCHSUM_EXAMPLES", "45")))


@pytest.mark.timeout(600)
def test_every_frame_and_result_is_that_of_native_code() -> None:
    """Of jobs with all dtypes, zeros, NaN, overflows, loss and broken frames; no number warns where it wraps around."""
    command = [sys.executable, "-m", "tests.host.plain_engine", *map(str, SEEDS)]
    done = subprocess.run(command, cwd=ROOT, env=PLAIN, stdout=subprocess.PIPE, check=True, text=True)
    lines = done.stdout.splitlines()
    assert len(lines) == len(SEEDS)
    for seed, line in zip(SEEDS, lines, strict=True):
        plain, native = json.loads(line), reported(seed)
        assert len(native) > 3
        for place, (one, other) in enumerate(zip(plain, native, strict=False)):
            assert one == other, f"line {place} of job {seed}"
        assert len(plain) == len(native)


def test_kernels_are_their_own_functions() -> None:
    program = """
import sys
from switchsum_host.engine import receiving
from switchsum_host.links.warm import warm_up
warm_up("shm:x")
assert receiving.receive.__code__.co_name == "receive"
assert "numba" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], env=PLAIN, check=True)

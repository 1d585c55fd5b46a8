"""A user's mistakes are clear errors on every rank within seconds, never a hang."""

from __future__ import annotations

import sys

import pytest

from support.parts import WORKERS

from .conftest import Run


@pytest.mark.timeout(120)
def test_every_rank_hears_of_it(run: Run) -> None:
    # One after the other in one job, which each rank joins anew: none of it spoils what follows.
    kinds = ["join", "dtype", "shape", "operator", "order", "refused dtype", "refused root", "join"]
    done = run("-n", "2", command=[sys.executable, str(WORKERS / "mistakes.py"), *kinds])
    assert done.returncode == 0, done.stdout + done.stderr
    for kind in kinds:
        said = [line for line in done.stdout.splitlines() if line.partition("]  ")[2].startswith(f"{kind}: ")]
        if "refused" in kind:
            assert len([line for line in said if "OperationMismatch" in line]) == 1
        elif kind != "join":
            assert len([line for line in said if "OperationMismatch" in line]) == 4
            # Each rank says twice what both have issued.
            assert len([line for line in said if "rank 0 issued" in line and "rank 1 issued" in line]) == 4

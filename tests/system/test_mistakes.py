"""A user's mistakes are clear errors on every rank within seconds, never a hang."""

from __future__ import annotations

import sys

import pytest

from .conftest import WORKERS, Run


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["join", "dtype", "shape", "operator", "order", "refused dtype", "refused root"])
def test_every_rank_hears_of_it(run: Run, kind: str) -> None:
    done = run("-n", "2", command=[sys.executable, str(WORKERS / "mistakes.py"), kind])
    assert done.returncode == 0, done.stdout + done.stderr
    if "refused" in kind:
        assert done.stdout.count("OperationMismatch") == 1
    elif kind != "join":
        assert done.stdout.count("OperationMismatch") == 4

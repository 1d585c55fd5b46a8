"""An unmodified controller written with finsy against the switch."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from ..timing import patience
from .p4runtime_rig import PROGRAM
from .test_p4runtime_shell import HERE, embedded

PYTHON_VARIABLE = "SWITCHSUM_FINSY_PYTHON"


@pytest.fixture
def finsy_python() -> str:
    """Return a Python that has finsy: this one, or SWITCHSUM_FINSY_PYTHON."""
    if python := os.environ.get(PYTHON_VARIABLE):
        return python
    if importlib.util.find_spec("finsy") is None:
        pytest.skip(f"finsy is not installed here and {PYTHON_VARIABLE} names no Python that has it")
    return sys.executable


def test_finsy_session(finsy_python: str) -> None:
    with embedded() as address:
        arguments = [address, str(HERE / "entities.p4info.txtpb"), str(PROGRAM)]
        done = subprocess.run(
            [finsy_python, str(HERE / "finsy_session.py"), *arguments],
            capture_output=True,
            text=True,
            timeout=patience(50),
            check=False,
            env={**os.environ, "no_proxy": "127.0.0.1"},
        )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["version"] == "1.5.0"
    assert found["tables"]["entries"] == ["fixed", "fixed", "routes", "rules", "stations"]
    assert (found["tables"]["ports"], found["tables"]["counted"]) == ([4], [True])
    duplicate, absent = found["tables"]["errors"]
    assert "ALREADY_EXISTS" in duplicate
    assert "NOT_FOUND" in absent
    assert found["others"]["counters"] == [0, 0, 0, 5, 0, 0, 0, 0]
    assert found["others"]["registers"][:4] == [0, 0, 9, 0]
    assert (found["others"]["groups"], found["others"]["sessions"]) == ([[1, 0]], [64])  # backups of two replicas
    # The packet bore no packet_in header, so its first two bytes are taken for one.
    assert bytes.fromhex(found["packets"]["payload"]) == b"om finsy"
    assert found["role"]["own"] == "no error"
    assert "PERMISSION_DENIED" in found["role"]["other"]
    assert found["role"]["is_primary"]
    assert found["left"] == 0

"""An unmodified controller written with finsy against the switch."""

from __future__ import annotations

import importlib.util
import os
import sys

import pytest

from .test_p4runtime_shell import embedded, run_session

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
        found = run_session(finsy_python, "finsy_session.py", address)
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

"""The faults that random programs must find: each has its place in today's source, and committed programs find one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import switchsum_switch
from checks.random_p4.faults import FAULTS

SWITCH = Path(switchsum_switch.__file__).parent


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_has_one_place(name: str) -> None:
    fault = FAULTS[name]
    text = (SWITCH / f"{fault.module.replace('.', '/')}.py").read_text()
    assert text.count(fault.before) == 1


def test_the_committed_programs_find_a_fault() -> None:
    command = [sys.executable, "-m", "checks.random_p4.faults", "--seconds", "0", "--one"]
    done = subprocess.run(
        [*command, "mark_to_drop ignores which metadata"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "by the committed program" in done.stdout

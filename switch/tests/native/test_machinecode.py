"""Machine code is loaded into processes of every kind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from support.timing import patience
from tests.host.digits import digits_of, put_sums


@pytest.mark.timeout(120)
def test_code_and_its_constants_may_be_far_from_what_else_is_loaded() -> None:
    put_sums(digits_of(np.ones(1, np.float32)), 1.0, np.ones(1, np.float32))  # compiled from here on
    command = [sys.executable, str(Path(__file__).with_name("scattered.py"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), check=False)
    if done.stderr == "no addresses\n":
        pytest.skip("the process may not have so many addresses (ulimit -v)")
    assert done.stdout == "[1.0, 1.0, 1.0, 1.0]\n", done.stderr

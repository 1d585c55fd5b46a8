"""The numpy scripts of the pages, started as the pages say."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from .conftest import Run

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("page", ["README.md", "docs/numpy.md"])
@pytest.mark.timeout(120)
def test_train_py_runs_as_it_stands(run: Run, page: str, tmp_path: Path) -> None:
    found = re.search(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert found is not None
    script = tmp_path / "train.py"
    script.write_text(found[1])
    done = run("-n", "4", command=[sys.executable, str(script)])
    assert done.returncode == 0, done.stdout + done.stderr
    lines = re.findall(r"rank \d of 4: (.*)", done.stdout)
    assert len(lines) == 4
    assert len(set(lines)) == 1  # the same on all ranks

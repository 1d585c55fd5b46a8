"""Tests in quarantine: few, each with its reason, and none that has been removed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.quarantine import LISTED, read
from support.timing import patience

ROOT = Path(__file__).resolve().parent.parent
MOST = 5
CONFTEST = """
from pathlib import Path
from support.quarantine import Quarantine
def pytest_configure(config):
    config.pluginmanager.register(Quarantine(Path(__file__).with_name("list.toml")))
"""
TESTS = """
import pytest
@pytest.mark.parametrize("number", [1, 2])
def test_odd(number):
    assert number % 2
@pytest.fixture
def broken():
    raise OSError
def test_made(broken):
    pass
def test_free():
    assert {free}
"""
LIST = """
[[test]]
name = "test_some.py::test_odd"
reason = "two is even"
[[test]]
name = "test_some.py::test_made"
reason = "its fixture fails"
"""


def pytest_of(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=cwd, env=environment, capture_output=True, text=True, timeout=patience(50), check=False,
    )  # fmt: skip


def test_at_most_five_tests_are_in_quarantine_each_with_a_reason() -> None:
    listed = read(LISTED)
    assert len({entry.name for entry in listed}) == len(listed) <= MOST
    assert [entry.name for entry in listed if len(entry.reason.split()) < 5] == []


def test_each_test_in_quarantine_is_there() -> None:
    names = [entry.name for entry in read(LISTED)]
    if names:
        done = pytest_of("--collect-only", *names)
        assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_in_quarantine_is_reported_and_fails_nothing(tmp_path: Path) -> None:
    for name, text in (("conftest.py", CONFTEST), ("list.toml", LIST), ("pytest.ini", "[pytest]")):
        (tmp_path / name).write_text(text)
    (tmp_path / "test_some.py").write_text(TESTS.format(free=True))
    done = pytest_of(cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout.partition(" quarantine ")[2].splitlines()
    assert said[1:4] == [
        "failed: test_some.py::test_odd[2] (two is even)",
        "failed: test_some.py::test_made (its fixture fails)",
        "passed: test_some.py::test_odd[1] (two is even)",
    ]
    (tmp_path / "test_some.py").write_text(TESTS.format(free=False))
    assert pytest_of(cwd=tmp_path).returncode == 1

"""`make test` and `make test-rest` are all tests, none of them twice, and support/slow.txt names what is there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support import suites
from support.timing import patience
from tools import durations

ROOT = suites.ROOT
A_FILE = next(place for place in suites.places() if place.endswith(".py"))


def collected(*arguments: str) -> set[str]:
    """Return the tests that pytest would run."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=patience(50), check=False)
    assert done.returncode in (0, pytest.ExitCode.NO_TESTS_COLLECTED), done.stdout
    return {line for line in done.stdout.splitlines() if "::" in line}


def test_the_list_names_what_is_there() -> None:
    places = suites.places()
    assert sorted(set(places)) == list(places)
    for place in places:
        file, _, test = place.partition("::")
        assert (ROOT / file).is_dir() if file.endswith("/") else (ROOT / file).is_file(), place
        assert not test or f"def {test.partition('[')[0]}(" in (ROOT / file).read_text(), place
        assert not [one for one in places if one != place and place.startswith(one)], f"{place} is there already"


def test_a_file_of_the_list_is_slow_and_others_are_as_they_are_marked() -> None:
    other = Path(__file__).relative_to(ROOT).as_posix()
    every, quick, slow = (collected(*mark, A_FILE, other) for mark in ((), ("-m", suites.QUICK), ("-m", "slow")))
    assert quick == {one for one in every if one.startswith(f"{other}::")} != set()
    assert slow == every - quick != set()


def test_files_of_the_list_are_not_read_for_the_quick_tests(tmp_path: Path) -> None:
    class Options:
        markexpr = suites.QUICK

    class Config:
        option = Options()

    plugin, config = suites.Suites(), Config()
    for place in suites.places():
        assert plugin.pytest_ignore_collect(ROOT / place, config) is (None if "::" in place else True)  # type: ignore[arg-type]
    for path in (Path(__file__), ROOT / "tests", tmp_path):
        assert plugin.pytest_ignore_collect(path, config) is None  # type: ignore[arg-type]
    config.option.markexpr = "slow"
    assert plugin.pytest_ignore_collect(ROOT / A_FILE, config) is None  # type: ignore[arg-type]


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not on PATH")
def test_make_runs_every_test_once() -> None:
    def command(target: str, arguments: str) -> str:
        asked = ["make", "--dry-run", "--no-print-directory", target, f"ARGS={arguments}"]
        done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True)
        return " ".join(done.stdout.strip().splitlines()[-1].split())

    whole = command("test-all", "--one")
    assert " -m pytest " in whole
    assert command("test", "--one") == whole.replace(" --one", f" -m '{suites.QUICK}' --one")
    assert command("test-rest", "--one") == whole.replace(" --one", " -m slow --one")
    for chosen in ("-k one", "tests/test_suites.py"):  # whoever names tests means them, slow or not
        assert command("test", chosen) == command("test-all", chosen)


@pytest.mark.skipif(not (ROOT / ".ci").is_dir(), reason="an sdist has no .ci")
def test_continuous_integration_runs_both_suites() -> None:
    step = (ROOT / ".ci" / "run").read_text().partition('step "tests and the examples')[2].partition("\nstep ")[0]
    assert [line.split()[2] for line in step.splitlines() if line.startswith("suite make ")] == [
        *("test", "test-rest", "docs")
    ]


def test_durations_are_added_up_by_file() -> None:
    log = (
        f"2.00s call     tests/a.py::test_b[c d::e]\n0.50s setup    tests/a.py::test_f\n7.00s call {A_FILE}::test_g\n1s"
    )
    quick, rest = durations.durations(log)
    assert (quick, rest) == ({"tests/a.py": 2.5}, {A_FILE: 7})

"""The cache of compiled kernels: whose it is, and when it is out of date."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from switchsum.protocol import kernels
from switchsum.protocol.cache import CACHE_VARIABLE, cache_directory

SOURCES = Path(kernels.__file__).parent

CALLEE = """
from __future__ import annotations
from switchsum.protocol.kernels import kernel
from switchsum.host.constants import STEP

@kernel
def advance(value):
    return value + STEP
"""
CALLER = """
from __future__ import annotations
from switchsum.protocol.kernels import kernel
from switchsum.host.callee import advance

@kernel
def advance_twice(value):
    return advance(advance(value))
"""
MAIN = """
from switchsum.host.caller import advance_twice
print(advance_twice(1), advance_twice(1.5), sum(advance_twice.stats.cache_hits.values()))
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a package with two kernels, one of which calls the other in another file."""
    for package in ("", "protocol", "host", "switch"):
        (tmp_path / "switchsum" / package).mkdir(exist_ok=True)
        (tmp_path / "switchsum" / package / "__init__.py").touch()
    for name in ("kernels.py", "cache.py"):
        shutil.copy(SOURCES / name, tmp_path / "switchsum" / "protocol")
    host = tmp_path / "switchsum" / "host"
    (host / "constants.py").write_text("STEP = 1\n")
    (host / "callee.py").write_text(CALLEE)
    (host / "caller.py").write_text(CALLER)
    return tmp_path


def start(tree: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(tree), CACHE_VARIABLE: str(tree / "cache")}
    return subprocess.Popen([sys.executable, "-c", MAIN], env=environment, stdout=subprocess.PIPE, text=True)


def run(tree: Path) -> str:
    process = start(tree)
    output, _ = process.communicate()
    assert process.returncode == 0
    return output.strip()


def test_a_kernel_is_compiled_once(tree: Path) -> None:
    assert run(tree) == "3 3.5 0"
    assert run(tree) == "3 3.5 2"


def test_a_changed_callee_in_another_file_is_seen(tree: Path) -> None:
    run(tree)
    callee = tree / "switchsum" / "host" / "callee.py"
    callee.write_text(CALLEE.replace("value + STEP", "value * 10"))
    assert run(tree) == "100 150.0 0"


def test_a_changed_constant_in_a_file_without_kernels_is_seen(tree: Path) -> None:
    run(tree)
    (tree / "switchsum" / "host" / "constants.py").write_text("STEP = 5\n")
    assert run(tree) == "11 11.5 0"


def test_a_file_that_no_kernel_uses_changes_nothing(tree: Path) -> None:
    run(tree)
    (tree / "switchsum" / "host" / "other.py").write_text("print('not a kernel')\n")
    assert run(tree) == "3 3.5 2"


def test_processes_that_start_together_agree(tree: Path) -> None:
    processes = [start(tree) for _ in range(3)]
    for process in processes:
        output, _ = process.communicate()
        assert output.startswith("3 3.5 ")
    assert run(tree) == "3 3.5 2"


def test_imports_of_all_forms_are_found() -> None:
    text = """
import switchsum.a.b
from switchsum.c import d, e as f
from switchsum.g import (
    h,  # why
    i,
)
from numpy import j
"""
    found = kernels._imports(text)
    assert found >= {"switchsum.a.b", "switchsum.c", "switchsum.c.d", "switchsum.c.e", "switchsum.g", "switchsum.g.h"}
    assert "switchsum.g.i" in found
    assert not any("numpy" in name or name.endswith(".j") for name in found)


def test_the_digest_covers_kernels_and_what_they_import() -> None:
    assert "switchsum.protocol.ring" in kernels._sources()
    assert len(kernels.source_digest()) == 20


def test_the_variable_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "chosen"))
    assert cache_directory("a", "b") == tmp_path / "chosen" / "a" / "b"
    assert (tmp_path / "chosen").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("blocked", ["file", "writable by others", "someone else's"])
def test_a_place_that_is_not_safely_ours_is_passed_over(
    blocked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, spare = tmp_path / "home", tmp_path / "spare"
    spare.mkdir()
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    monkeypatch.setattr("switchsum.protocol.cache.tempfile.gettempdir", lambda: str(spare))
    if blocked == "file":
        home.write_text("")
    else:
        (home / "switchsum").mkdir(parents=True)
        (home / "switchsum").chmod(0o777)
    if blocked == "someone else's":
        (home / "switchsum").chmod(0o755)
        other = os.geteuid() + 1
        monkeypatch.setattr("switchsum.protocol.cache.os.geteuid", lambda: other)
        # Neither place is that user's now: the one is ours, the other is made by us.
        assert cache_directory("kernels") is None
        return
    assert cache_directory("kernels") == spare / f"switchsum-cache-{os.geteuid()}" / "kernels"

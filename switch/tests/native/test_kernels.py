"""The cache of compiled kernels: when it is out of date, damaged, full or held, and what kernels take and return."""

from __future__ import annotations

import fcntl
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt
import pytest

from support.timing import patience
from switchsum_host.links.warm import warm_up
from switchsum_switch.kernels import loading, packages, sources
from switchsum_switch.kernels.cache import CACHE_VARIABLE
from switchsum_switch.kernels.decorators import kernel, prepare
from switchsum_switch.kernels.plain import PLAIN
from switchsum_switch.kernels.target import target_machine

SOURCES = Path(loading.__file__).parents[1]

CALLEE = """
from __future__ import annotations
from switchsum_switch.kernels.decorators import kernel, prepare
from switchsum_host.constants import STEP

@kernel
def advance(value):
    return value + STEP
"""
CALLER = """
from __future__ import annotations
from switchsum_switch.kernels.decorators import kernel, prepare
from .callee import advance

@kernel
def advance_twice(value):
    return advance(advance(value))
"""
MAIN = """
from switchsum_host.caller import advance_twice
import sys
print(advance_twice(1), advance_twice(1.5), "compiled" if "numba" in sys.modules else "loaded")
"""


PACKAGES = (
    "switchsum_switch",
    "switchsum_protocol",
    "switchsum_host",
    "switchsum_controller",
    "switchsum_exercises",
    "switchsum",
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a package with two kernels, one of which calls the other in another file."""
    for package in (*PACKAGES, "switchsum_switch/process"):
        (tmp_path / package).mkdir(exist_ok=True)
        (tmp_path / package / "__init__.py").touch()
    shutil.copytree(SOURCES / "kernels", tmp_path / "switchsum_switch" / "kernels")
    shutil.copy(SOURCES / "notices.py", tmp_path / "switchsum_switch")
    host = tmp_path / "switchsum_host"
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
    assert run(tree) == "3 3.5 compiled"
    assert run(tree) == "3 3.5 loaded"


def test_a_changed_callee_in_another_file_is_seen(tree: Path) -> None:
    run(tree)
    callee = tree / "switchsum_host" / "callee.py"
    callee.write_text(CALLEE.replace("value + STEP", "value * 10"))
    assert run(tree) == "100 150.0 compiled"


def test_a_changed_constant_in_a_file_without_kernels_is_seen(tree: Path) -> None:
    run(tree)
    (tree / "switchsum_host" / "constants.py").write_text("STEP = 5  # longer: Python tells times by seconds\n")
    assert run(tree) == "11 11.5 compiled"


def test_a_file_that_no_kernel_uses_changes_nothing(tree: Path) -> None:
    run(tree)
    (tree / "switchsum_host" / "other.py").write_text("print('not a kernel')\n")
    assert run(tree) == "3 3.5 loaded"


def test_processes_that_start_together_agree(tree: Path) -> None:
    processes = [start(tree) for _ in range(3)]
    for process in processes:
        output, _ = process.communicate()
        assert output.startswith("3 3.5 ")
    assert run(tree) == "3 3.5 loaded"


def test_imports_of_all_forms_are_found() -> None:
    text = """
import switchsum.a.b
from switchsum.c import d, e as f
from switchsum.g import (
    h,  # why
    i,
)
from . import k
from .l import m
from ..n.o import (
    p,
)
from numpy import j
"""
    found = sources.imports("switchsum.x.y", text)
    assert found >= {"switchsum.a.b", "switchsum.c", "switchsum.c.d", "switchsum.c.e", "switchsum.g", "switchsum.g.h"}
    assert "switchsum.g.i" in found
    assert found >= {"switchsum.x.y.k", "switchsum.x.y.l", "switchsum.x.y.l.m", "switchsum.x.n.o", "switchsum.x.n.o.p"}
    assert not any("numpy" in name or name.endswith(".j") for name in found)


@pytest.mark.parametrize(
    "place",
    [
        "switchsum_protocol/frame.py",
        "switchsum_switch/wires/ring.py",
        "switchsum_host/engine/loop.py",
        "switchsum_lab/simulation/loop.py",
    ],
)
def test_a_byte_in_any_package_with_kernels_changes_the_digest(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = sources.module_sources()
    before = sources.source_digest.__wrapped__()
    name = place.removesuffix(".py").replace("/", ".")
    package, text = found[name]
    monkeypatch.setattr(sources, "module_sources", lambda: {**found, name: (package, f"{text} ")})
    assert sources.source_digest.__wrapped__() != before


def test_a_package_that_is_missing_beside_others_of_its_distribution_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "switchsum_host" else there(name))
    with pytest.raises(ImportError, match="switchsum_host is missing"):
        list(packages.folders_with_kernels())
    # A distribution that is not installed at all is none that is missing.
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: there(name) if name == "switchsum_switch" else None)
    assert [name for name, _ in packages.folders_with_kernels()] == ["switchsum_switch"]


def test_the_digest_covers_kernels_and_what_they_import() -> None:
    assert "switchsum_switch.wires.ring" in sources.module_sources()
    assert len(sources.source_digest()) == 20


@pytest.mark.timeout(300)
@pytest.mark.parametrize("damage", ["flipped", "half"])
def test_damaged_code_is_compiled_anew(tree: Path, damage: str) -> None:
    run(tree)
    files = list((tree / "cache").rglob("*.object"))
    assert len(files) == 2
    for path in files:
        whole = path.read_bytes()
        at = len(whole) // 2
        flipped = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        path.write_bytes({"flipped": flipped, "empty": b"", "half": whole[:at], "junk": b"x" * 99}[damage])
    assert run(tree) == "3 3.5 compiled"
    assert run(tree) == "3 3.5 loaded"


@pytest.mark.timeout(300)
def test_a_process_that_was_stopped_while_it_compiles_holds_nobody_up(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tree)
    [folder] = (tree / "cache" / "kernels").iterdir()
    for path in folder.glob("*.object"):
        path.unlink()
    kernels_source = tree / "switchsum_switch" / "kernels" / "turns.py"
    kernels_source.write_text(kernels_source.read_text().replace("STALE_S: Final = 10.0", "STALE_S: Final = 0.5"))
    with (folder / "workers.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # and never touched
        assert run(tree) == "3 3.5 compiled"
    assert run(tree) == "3 3.5 loaded"


@pytest.mark.timeout(300)
def test_without_a_place_for_the_cache_kernels_are_compiled_each_time(tree: Path) -> None:
    (tree / "cache").write_text("no directory")
    (tree / "temporary").mkdir()
    for _ in range(2):
        environment = {**os.environ, "PYTHONPATH": str(tree), CACHE_VARIABLE: str(tree / "cache"), "TMPDIR": "/proc"}
        code = "import tempfile\ntempfile._candidate_tempdir_list = lambda: ['/proc']\n" + MAIN
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "3 3.5 compiled"


class Pair(NamedTuple):
    """What kernels take as one argument."""

    numbers: npt.NDArray[np.int64]
    record: npt.NDArray[Any]


RECORD = np.dtype([("one", "i8"), ("two", "f8")], align=True)


@kernel
def weigh(pair: Pair, factor: float, twice: bool, square: npt.NDArray[np.float32]) -> float:
    pair.record[0].one += 1
    total = factor * pair.numbers.sum() + pair.record[0].two + square[1, 0]
    return float(2 * total if twice else total)


@kernel
def ends(numbers: npt.NDArray[np.int64]) -> tuple[int, bool]:
    return numbers[0], numbers[0] < numbers[-1]


@kernel
def is_more(number: int, numbers: npt.NDArray[np.int32]) -> bool:
    scratch = np.zeros(len(numbers), np.int32)
    scratch[:] = numbers
    return bool(number > scratch.sum())


@kernel
def fill(numbers: npt.NDArray[np.int64], value: int) -> None:
    numbers[:] = value


@pytest.mark.timeout(300)
def test_kernels_take_numbers_arrays_and_tuples() -> None:
    pair = Pair(np.arange(4), np.zeros(1, RECORD))
    square = np.array([[1, 2], [3, 4]], np.float32)
    assert weigh(pair, 2.0, True, square) == 2 * (12 + 3)
    assert weigh(pair, np.float64(1.0), False, square) == 9
    assert pair.record[0]["one"] == 2
    assert is_more(7, np.arange(4, dtype=np.int32)) is True
    assert is_more(6, np.arange(4, dtype=np.int32)) is False
    entries: list[Any] = [weigh, is_more]
    assert [len(entry.signatures) for entry in entries] == [1, 1]


def test_kernels_return_several_integers_or_nothing() -> None:
    assert ends(np.array([-3, 5])) == (-3, True)
    numbers = np.zeros(3, np.int64)
    assert fill(numbers, -1) is None
    assert numbers.tolist() == [-1] * 3
    empty = np.zeros(0, np.int64)
    fill(empty, 1)


@kernel
def total(numbers: npt.NDArray[np.int64] | None, pair: Pair | None) -> int:
    found = 0
    if numbers is not None:
        found += numbers.sum()
    if pair is not None and len(pair.numbers) > 0:
        found += pair.numbers[0]
    return found


@pytest.mark.timeout(300)
def test_what_is_none_is_not_compiled() -> None:
    pair = Pair(np.arange(3, 5), np.zeros(1, RECORD))
    assert total(None, None) == 0  # `.sum()` of None would not compile
    assert total(np.arange(4), None) == 6
    assert total(None, pair) == 3
    assert total(np.arange(4), pair) == 9


def test_what_was_prepared_is_not_compiled_when_it_is_called() -> None:
    numbers = np.full(3, 7)
    prepare(fill, numbers, 0)
    assert numbers.tolist() == [7] * 3
    entry: Any = fill
    before = dict(entry.signatures)
    fill(numbers, 1)
    assert entry.signatures == before


@pytest.mark.timeout(300)
def test_the_engine_counts_no_references_to_memory() -> None:
    store = loading.kernel_store()
    if PLAIN or store is None:
        pytest.skip("no compiled code is kept")
    warm_up()
    kept = list(store.path.glob("host.engine.loop.run.*.object"))
    assert kept
    assert not any(b"NRT_decref" in path.read_bytes() for path in kept)


CALLS = """
define internal i64 @callee(ptr %data, i64 %parent, i64 %items) noinline {
  %word = load i64, ptr %data
  ret i64 %word
}
define i64 @entry(ptr %data, i64 %parent, i64 %items) {
  %found = call i64 @callee(ptr %data, i64 %parent, i64 %items)
  ret i64 %found
}
"""


def test_inner_functions_take_only_what_they_use() -> None:
    from switchsum_switch.kernels import compiler

    module = llvm.parse_assembly(CALLS)
    compiler.leave_out_arguments(module, target_machine(compiler.OPTIMISATION))
    assert len(list(module.get_function("entry").arguments)) == 3
    assert len(list(module.get_function("callee").arguments)) == 1


def test_an_array_with_gaps_is_taken_too() -> None:
    numbers = np.zeros(6, np.int64)
    fill(numbers[::2], 4)
    assert numbers.tolist() == [4, 0, 4, 0, 4, 0]


def test_optimised_python_calls_outlined_kernels() -> None:
    code = (
        "from switchsum_switch.kernels.decorators import *\n"
        "import switchsum_host.engine.kernels as k\nprint(k.fill_nan(1, 0, 0))"
    )
    done = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


MINE = """
import numbers_of_mine
from more import there
from switchsum_switch.kernels.decorators import inner, kernel

M = 1

@inner
def here(x: int) -> int:
    return x * 2

@kernel
def f(x: int) -> int:
    return here(x) * there(x) * M * numbers_of_mine.N * 3
"""
MORE = """
from switchsum_switch.kernels.decorators import inner

@inner
def there(x: int) -> int:
    return x * 5
"""


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("mine", "x * 2", "x * 4"),  # what it calls in its own file
        ("mine", "* 3", "* 6"),
        ("mine", "M = 1", "M = int('7')"),
        ("more", "x * 5", "x * 10"),
        ("numbers_of_mine", "1", "2"),
    ],
)
def test_a_users_kernel_has_other_code_when_what_it_is_made_of_changes(
    file: str, old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))

    def name(texts: dict[str, str]) -> str:
        for module, text in texts.items():
            (tmp_path / f"{module}.py").write_text(text)
            monkeypatch.delitem(sys.modules, module, raising=False)
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        importlib.invalidate_caches()
        return loading._file_of(importlib.import_module("mine").f, "int")

    texts = {"mine": MINE, "more": MORE, "numbers_of_mine": "N = 1"}
    before = name(texts)
    assert name({**texts, file: texts[file].replace(old, new)}) != before
    assert name(texts) == before


@pytest.mark.skipif(PLAIN, reason="nothing is compiled")
def test_yesterdays_code_of_a_users_kernel_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    said = []
    for value in (1, 2):
        (tmp_path / "mine.py").write_text(
            "from switchsum_switch.kernels.decorators import kernel\n\n@kernel\ndef f(x: int) -> int:\n"
            f"    return x * {value}\n"
        )
        code = "import mine; print(mine.f(1))"
        command = [sys.executable, "-B", "-c", code]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=patience(50), check=True)
        said.append(int(done.stdout))
    assert said == [1, 2]

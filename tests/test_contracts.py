"""Who may import whom: the contracts in pyproject.toml hold, and so does what import-linter cannot say."""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.private_names import ROOT, ROOTS, files, private_of_others, taken, trees
from support.timing import patience

CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"
needs_linter = pytest.mark.skipif(
    importlib.util.find_spec("importlinter") is None, reason="needs import-linter (extra dev)"
)


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Look whether the packages in a folder keep the contracts of pyproject.toml."""
    places = os.pathsep.join(str(folder / root) for root in ROOTS)
    return subprocess.run(
        [sys.executable, "-c", LINT, "--no-cache", "--config", str(ROOT / "pyproject.toml")],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": places, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=patience(50),
        check=False,
    )


@needs_linter
def test_the_contracts_are_kept() -> None:
    done = lint(ROOT)
    assert (done.returncode, f"Contracts: {len(CONTRACTS)} kept, 0 broken." in done.stdout) == (0, True), done.stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the source of all packages, to be changed."""
    folder = tmp_path_factory.mktemp("packages")
    for path in files().values():
        place = folder / path.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    return folder


@needs_linter
@pytest.mark.parametrize(
    ("file", "line", "contract"),
    [
        (
            "host/switchsum_host/links/base.py",
            "import switchsum_controller.plan.plan",
            "host and controller never meet",
        ),
        ("switch/src/switchsum_switch/state/clock.py", "import switchsum_protocol.frame", "that on the switch"),
        ("src/switchsum/launch/local_job.py", "def f(): import switchsum_lab.sweeps", "laboratory stands on switchsum"),
        ("host/switchsum_host/api/join.py", "from switchsum_switch.program import ir", "and nothing else of it"),
        ("host/switchsum_host/engine/loop.py", "from ..api import join", "Subpackages of the host"),
        ("host/switchsum_host/another.py", "", "Subpackages of the host"),
        ("switch/src/switchsum_switch/codegen/driver.py", "from .. import p4runtime", "Subpackages of the switch"),
        ("controller/switchsum_controller/jobs/job.py", "from . import registry", "in a circle"),
    ],
)
def test_an_import_that_a_contract_forbids_is_found(copy: Path, file: str, line: str, contract: str) -> None:
    place = copy / file
    was = place.read_text() if place.exists() else None
    place.write_text(f"{was or ''}\n{line}\n")
    done = lint(copy)
    if was is None:
        place.unlink()
    else:
        place.write_text(was)
    broken = [one for one in done.stdout.splitlines() if one.endswith(" BROKEN")]
    assert done.returncode == 1, done.stdout + done.stderr
    assert [one for one in broken if contract in one], broken


def imported_names(tree: ast.AST) -> Iterator[str]:
    """Yield the name of everything that a module imports from elsewhere, wherever in it the import stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def tops(tree: ast.AST) -> set[str]:
    return {name.partition(".")[0] for name in imported_names(tree)}


def test_data_about_networks_needs_the_standard_library_alone() -> None:
    # Mininet reads it under the system's Python, which has nothing of switchsum.
    data = sorted((ROOT / "src" / "switchsum" / "topologies").glob("*.py"))
    assert data
    for path in (*data, ROOT / "mininet" / "daemons.py", ROOT / "mininet" / "trees.py"):
        tree = ast.parse(path.read_text())
        assert tops(tree) <= sys.stdlib_module_names, path
        # The package is `topologies` there and `switchsum.topologies` here: nothing above it exists in both.
        assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level > 1], path


def test_one_file_imports_mininet_and_it_runs_without_our_environment() -> None:
    folders = (path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith((".", "build")))
    others = {path: path.read_text() for folder in folders for path in folder.rglob("*.py")}
    importers = {path for path, text in others.items() if "mininet" in text and "mininet" in tops(ast.parse(text))}
    assert importers == {ROOT / "mininet" / "custom.py"}
    tree = ast.parse(others[importers.pop()])
    for_checkers = [
        node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    for node in for_checkers:
        node.body = [ast.Pass()]
    assert tops(tree) - sys.stdlib_module_names == {"mininet", "daemons", "trees"}


def test_nobody_imports_generated_p4runtime_modules() -> None:
    # They fail beside a protobuf newer than 3.20: messages/p4runtime.binpb has their descriptors.
    assert [name for name, tree in trees().items() if "p4" in tops(tree)] == []


def test_one_module_imports_grpc_and_so_says_how_much_it_writes() -> None:
    importers = {name for name, tree in trees().items() if "grpc" in tops(tree)}
    assert importers == {"switchsum_switch.connections.quiet_grpc"}


# The protocol decides nothing by the clock, moves no bytes and compiles nothing: whatever it needs is an argument.  So
# it also lacks what reaches the machine from native code: intrinsics, addresses, foreign functions, kernels.
NOT_IN_PROTOCOL = {
    *("asyncio", "ctypes", "cffi", "fcntl", "grpc", "logging", "mmap", "multiprocessing", "os", "resource", "select"),
    *("signal", "socket", "subprocess", "tempfile", "threading", "time", "llvmlite", "numba"),
}
NATIVE = {
    *("kernel", "inner", "intrinsic", "external", "declare_intrinsic", "carray", "address_of", "njit", "cfunc"),
    *("ctypes", "__array_interface__", "open", "syscall"),
}
CLIENTS = "switchsum_protocol.clients"
"""The subpackage that calls a controller, by gRPC."""


def pure() -> set[str]:
    """Return the modules of the protocol, and those of the switch that they import, directly or not."""
    found = {name for name in trees() if name.startswith("switchsum_protocol") and not name.startswith(CLIENTS)}
    new = found
    while new:
        named = {name for module in new for name in imported_names(trees()[module])}
        new = (
            {name for name in named if name in trees()} | {name.rpartition(".")[0] for name in named}
        ) & trees().keys()
        new = {name for name in new if files()[name].name != "__init__.py"} - found
        found |= new
    return found


def test_the_protocol_is_pure_and_so_is_what_it_imports() -> None:
    modules = pure()
    assert {"switchsum_protocol.frame", "switchsum_switch.errors", "switchsum_switch.wires.headers"} <= modules
    for name in modules:
        assert not tops(trees()[name]) & NOT_IN_PROTOCOL, name
        assert not native_calls(trees()[name]), name


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("@kernel\ndef f(a): return a", {"kernel"}),
        ("@intrinsic(prefer_literal=True)\ndef f(context): pass", {"intrinsic"}),
        ("builder.module.declare_intrinsic('llvm.rint')", {"declare_intrinsic"}),
        ("array.ctypes.data", {"ctypes"}),
        ("array.__array_interface__['data']", {"__array_interface__"}),
        ("open('/dev/null')", {"open"}),
        ("path.open()", {"open"}),
        ("path.read_bytes()", set()),
    ],
)
def test_what_native_code_calls_is_seen(source: str, found: set[str]) -> None:
    assert native_calls(ast.parse(source)) == found


def native_calls(tree: ast.AST) -> set[str]:
    """Return the names by which a module would reach the machine past its imports."""
    nodes = list(ast.walk(tree))
    called = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    names = {node.id for node in nodes if isinstance(node, ast.Name)} - {"open"}  # a word, unless it is called
    names |= called | {node.attr for node in nodes if isinstance(node, ast.Attribute) and not is_own(node)}
    return names & NATIVE


def is_own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import time, os.path", {"time", "os"}),
        ("from os import path", {"os"}),
        ("def late():\n    import time", {"time"}),
        ("if TYPE_CHECKING:\n    import time", {"time"}),
        ("from . import time", set()),
    ],
)
def test_every_form_of_import_is_seen(source: str, found: set[str]) -> None:
    assert tops(ast.parse(source)) == found


@pytest.mark.parametrize(
    "module",
    [
        "switchsum",
        "switchsum.cli",
        "switchsum.launch.local_job",
        "switchsum_controller.service.controller",
        "switchsum_protocol.clients.controller_client",
        "switchsum_switch",
        "switchsum_switch.connections.serving",
        "switchsum_switch.process.runtime_directory",
    ],
)
def test_what_computes_nothing_does_without_the_compiler_and_the_laboratory(module: str) -> None:
    code = f"import sys, {module}; print(*sorted({{'numba', 'numpy', 'llvmlite', 'switchsum_lab'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""  # they take longer to import than all the rest


def test_nobody_takes_the_private_names_of_another_file() -> None:
    wrong = {f"{module} takes {name}" for module, name in taken()}
    assert not wrong, sorted(wrong)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from .calls import _run", {"_run"}),
        ("from switchsum_switch.kernels import _x", {"_x"}),
        ("from torch import _C", set()),
        ("import os\nos._exit(1)", set()),
        ("from concurrent import futures\nfutures._lock", set()),
        ("other._lock.acquire()", {"_lock"}),
        ("class A(B):\n    def f(self): return self._lock", {"_lock"}),
        ("class A:\n    def __init__(self): self._lock = 1\n    def f(self, other): return other._lock", set()),
        ("class A:\n    _lock: int\n    def f(self): return self._lock", set()),
    ],
)
def test_private_names_of_others_are_seen(source: str, found: set[str]) -> None:
    assert private_of_others(list(ast.walk(ast.parse(source))), {"_lock", "_run", "_exit"}) == found


def test_the_benchmarks_of_the_page_of_figures_need_no_experiment() -> None:
    paths = sorted((ROOT / "checks" / "bench").rglob("*.py"))
    assert paths
    for path in paths:
        assert "checks.lab" not in path.read_text(), path

"""Who may import whom: three floors and a roof, read from the source without importing anything."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .import_graph import circles, files, graph, imports, private_of_others, taken

ROOT = Path(__file__).resolve().parent.parent
FLOORS = {"p4src", "protocol", "native", "connections", "switch", "controller", "host"}
ALLOWED = {
    "p4src": {"protocol"},
    "protocol": set(),
    "native": {"protocol"},
    "connections": {"protocol", "native"},
    "switch": {"protocol", "native", "connections"},
    "controller": {"protocol", "native", "connections"},
    "host": {"protocol", "native", "connections"},
}
# Within the worker: what a folder may import of the others.
ALLOWED_IN_HOST = {
    "engine": set(),
    "links": {"engine"},
    "api": {"engine", "links"},
    "compress": {"api"},
}
# Data about networks stands beside the floors: Mininet reads it under the system's Python, which has the standard
# library and nothing of switchsum.
DATA = ROOT / "mininet" / "topologies"
# p4runtime's generated modules fail beside a protobuf newer than 3.20: switch/src/switchsum_switch/messages/p4runtime.binpb has its descriptors.
NEVER = {"p4"}
# The ground decides nothing by the clock, moves no bytes and compiles nothing: whatever it needs is an argument.  So it
# also lacks what reaches the machine from native code: intrinsics, addresses, foreign functions, kernels.
NOT_IN_PROTOCOL = {
    *("asyncio", "ctypes", "cffi", "fcntl", "grpc", "logging", "mmap", "multiprocessing", "os", "resource", "select"),
    *("signal", "socket", "subprocess", "tempfile", "threading", "time", "llvmlite", "numba"),
}
NATIVE = {
    *("kernel", "inner", "intrinsic", "external", "declare_intrinsic", "carray", "address_of", "njit", "cfunc"),
    *("ctypes", "__array_interface__", "open", "syscall"),
}


def modules(floor: str) -> list[Path]:
    return sorted((ROOT / floor).rglob("*.py"))


@functools.cache
def imported_names(source: str, module: str) -> frozenset[str]:
    """Return the absolute name of everything that a module imports, wherever in it the import stands."""
    return frozenset(_imported_names(source, module))


def _imported_names(source: str, module: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.split(".")[: -node.level]
                base = ".".join([*package, *([base] if base else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def floors_reached(source: str, module: str) -> set[str]:
    """Return the parts of switchsum that a module imports; `roof` is everything that is no floor."""
    reached = set()
    for name in imported_names(source, module):
        top, _, rest = name.partition(".")
        if top == "switchsum":
            part = rest.partition(".")[0]
            reached.add(part if part in FLOORS else "roof")
    return reached


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    # A package's relative imports start from itself, hence the part that stands for its __init__.
    return ".".join(("switchsum", *parts))


@pytest.mark.parametrize("floor", sorted(FLOORS))
def test_a_floor_imports_only_what_lies_below(floor: str) -> None:
    assert modules(floor)
    for path in modules(floor):
        reached = floors_reached(path.read_text(), module_name(path))
        assert reached <= ALLOWED[floor] | {floor}, f"{path.relative_to(ROOT)} reaches for {reached}"


def test_data_about_networks_needs_the_standard_library_alone() -> None:
    paths = [*sorted(DATA.rglob("*.py")), ROOT / "mininet" / "daemons.py", ROOT / "mininet" / "trees.py"]
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert {alias.name.partition(".")[0] for alias in node.names} <= sys.stdlib_module_names, path
            elif isinstance(node, ast.ImportFrom):
                is_own = node.level == 1  # relative: the package is `topologies` there and `switchsum.topologies` here
                assert is_own or (node.module or "").partition(".")[0] in sys.stdlib_module_names, path


def test_one_file_imports_mininet_and_it_runs_without_our_environment() -> None:
    tops = (path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith((".", "build")))
    others = {path: path.read_text() for top in tops for path in top.rglob("*.py")}
    importers = {
        path
        for path, text in others.items()
        if "mininet" in text and "mininet" in {name.partition(".")[0] for name in imported_names(text, "anywhere")}
    }
    assert importers == {ROOT / "mininet" / "custom.py"}
    imported = {name.partition(".")[0] for name in imported_names(importers.pop().read_text(), "custom")}
    assert imported - sys.stdlib_module_names == {
        "mininet",
        "topologies",
        "daemons",
        "trees",
        "switchsum",
    }  # the last one for type checkers


def test_nobody_imports_generated_p4runtime_modules() -> None:
    for folder in [*FLOORS, "src"]:
        for path in modules(folder):
            tops = {name.partition(".")[0] for name in imported_names(path.read_text(), module_name(path))}
            assert not tops & NEVER, path


def test_protocol_is_pure() -> None:
    for path in modules("protocol"):
        text = path.read_text()
        tops = {name.partition(".")[0] for name in imported_names(text, module_name(path))}
        assert not tops & NOT_IN_PROTOCOL, path
        assert not native_calls(text), path


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
    assert native_calls(source) == found


def native_calls(source: str) -> set[str]:
    """Return the names by which a module would reach the machine past its imports."""
    nodes = list(ast.walk(ast.parse(source)))
    called = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    names = {node.id for node in nodes if isinstance(node, ast.Name)} - {"open"}  # a word, unless it is called
    names |= called | {node.attr for node in nodes if isinstance(node, ast.Attribute) and not is_own(node)}
    return names & NATIVE


def is_own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def test_the_worker_is_built_from_the_engine_up() -> None:
    for folder, allowed in ALLOWED_IN_HOST.items():
        for path in modules(f"host/{folder}"):
            reached = {
                name.split(".")[2]
                for name in imported_names(path.read_text(), module_name(path))
                if name.startswith("switchsum_host.")
            }
            assert reached <= allowed | {folder}, f"{path.relative_to(ROOT)} reaches for {reached}"


@pytest.mark.parametrize(
    ("source", "reached"),
    [
        ("import switchsum_host.engine.engine", {"host"}),
        ("from switchsum import host", {"host"}),
        ("from switchsum import connect", {"roof"}),
        ("import switchsum", {"roof"}),
        ("from switchsum.cli import application", {"roof"}),
        ("from .. import host", {"host"}),
        ("from ..protocol import wire", {"protocol"}),
        ("from . import model", {"switch"}),
        ("from .model import Table", {"switch"}),
        ("def late():\n    from switchsum_controller import plan", {"controller"}),
        ("if TYPE_CHECKING:\n    import switchsum_host", {"host"}),
        ("import numpy.linalg, os.path", set()),
    ],
)
def test_every_form_of_import_is_seen(source: str, reached: set[str]) -> None:
    assert floors_reached(source, "switchsum_switch.load") == reached


@pytest.mark.parametrize(
    "module", ["switchsum", "switchsum.cli", "switchsum.launch.session", "switchsum_controller.service.controller"]
)
def test_what_computes_nothing_does_without_the_compiler(module: str) -> None:
    code = f"import sys, {module}; print(*sorted({{'numba', 'numpy', 'llvmlite'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""  # they take longer to import than all the rest


def test_no_files_import_each_other_in_a_circle() -> None:
    found = graph()
    assert len(found) > 300
    assert circles(found) == []


def test_nobody_takes_the_private_names_of_another_file() -> None:
    wrong = {f"{module} takes {name}" for module, name in taken()}
    assert not wrong, sorted(wrong)


@pytest.mark.parametrize("floor", ["native", "host", "controller"])
def test_no_rooms_of_a_floor_import_each_other_in_a_circle(floor: str) -> None:
    rooms: dict[str, set[str]] = {}
    for module, others in graph().items():
        own = module.split(".")
        if own[1:2] == [floor] and len(own) > 3:
            found = {
                one.split(".")[2] for one in others if one.startswith(f"switchsum.{floor}.") and one.count(".") > 2
            }
            rooms.setdefault(own[2], set()).update(found - {own[2]})
    assert len(rooms) >= 3
    assert circles(rooms) == []


def test_a_circle_is_seen() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"f"}, "f": {"e"}, "g": {"a"}}
    assert circles(edges) == [["a", "b", "c"], ["e", "f"]]
    known = files()
    for source in ("from . import plain", "from .plain import f", "import switchsum_switch.kernels.plain"):
        assert list(imports(ast.parse(source), "switchsum_switch.kernels.cache", known)) == [
            "switchsum_switch.kernels.plain"
        ]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from .calls import _run", {"_run"}),
        ("from switchsum_switch.NATIVE import _x", {"_x"}),
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
    assert private_of_others(ast.parse(source), "switchsum_switch.kernels.cache", {"_lock", "_run", "_exit"}) == found


def test_the_benchmarks_of_the_page_of_figures_need_no_experiment() -> None:
    for path in modules("checks/bench"):
        assert "checks.lab" not in path.read_text(), path


def test_the_laboratory_stands_apart() -> None:
    for module, others in graph().items():
        if module.startswith(("switchsum_lab.sweeps", "switchsum_lab.baselines", "switchsum.cli.")):
            continue
        assert not [one for one in others if one.startswith(("switchsum_lab.sweeps", "switchsum_lab.baselines"))], (
            module
        )
    # The command line imports it when a command of it runs.
    code = "import sys, switchsum.cli; print(*[one for one in sys.modules if one.startswith('switchsum_lab.sweeps')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""

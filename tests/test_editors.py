"""What editors see in a plain clone: pyright and jedi find every import of ours, with no generated folder or hook."""

from __future__ import annotations

import ast
import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.timing import patience

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("switch", "protocol", "host", "controller", "exercises", "lab")
OURS = {"switchsum", "tests", "checks", "topologies", "daemons", *(f"switchsum_{name}" for name in PARTS)}
needs_pyright = pytest.mark.skipif(importlib.util.find_spec("basedpyright") is None, reason="basedpyright is missing")


def keep_imports(source: str, target: str) -> None:
    """Copy a module's imports of ours alone, wherever in it they stand, and what pyright reads beside modules."""
    path = Path(source)
    if path.name in ("pyproject.toml", "py.typed"):
        shutil.copy(source, target)
    if path.suffix == ".py":
        imports = [node for node in ast.walk(ast.parse(path.read_text())) if is_of_ours(node)]
        Path(target).write_text("".join(f"{ast.unparse(node)}\n" for node in imports))


def is_of_ours(node: ast.AST) -> bool:
    """Whether this imports something of ours."""
    if isinstance(node, ast.ImportFrom):
        return node.level > 0 or str(node.module).partition(".")[0] in OURS
    return isinstance(node, ast.Import) and any(name.name.partition(".")[0] in OURS for name in node.names)


def unresolved(*files: str, root: Path = ROOT) -> list[str]:
    """Return the imports of ours that pyright does not find; without files, in everything that pyproject.toml names."""
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, *files]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=patience(120))
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] > 0
    found = []
    for finding in report["generalDiagnostics"]:
        name = finding["message"].partition('"')[2].partition('"')[0]
        if finding.get("rule") == "reportMissingImports" and (not name or name.split(".")[0] in {*OURS, ""}):
            found.append(f"{finding['file']}: {finding['message']}")
    return found


@needs_pyright
@pytest.mark.timeout(150)
def test_pyright_finds_every_import_of_ours(tmp_path: Path) -> None:
    # In a copy without the code between, for which pyright takes half a minute.
    copy, left_out = tmp_path / "copy", shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info")
    shutil.copytree(ROOT, copy, ignore=left_out, copy_function=keep_imports)
    assert unresolved(root=copy) == []
    opened = "host/switchsum_host/engine/loop.py"
    with (copy / opened).open("a") as file:
        file.write("from .there_is_none import name\n")
    [found] = unresolved(opened, root=copy)
    assert ".there_is_none" in found


@needs_pyright
@pytest.mark.timeout(150)
@pytest.mark.parametrize("file", ["host/switchsum_host/engine/loop.py", "switch/src/switchsum_switch/daemon/loop.py"])
def test_pyright_finds_the_imports_of_a_file_that_an_editor_opens(file: str) -> None:
    assert unresolved(file) == []


def test_jedi_finds_what_an_opened_file_imports() -> None:
    jedi = pytest.importorskip("jedi")
    path = ROOT / "host" / "switchsum_host" / "links" / "udp.py"
    script = jedi.Script(
        path=path,
        project=jedi.Project(
            ROOT, added_sys_path=[str(ROOT / folder) for folder in ("src", "host", "protocol", "switch/src")]
        ),
    )
    own = {"UdpTransport"}  # all other public names are imported
    names = [name for name in script.get_names() if name.name not in own and not name.name.startswith("_")]
    assert {"SocketTransport", "Address", "TransportError"} <= {name.name for name in names}
    places = {name.name: {place.module_path for place in name.goto(follow_imports=True)} - {path} for name in names}
    assert [name for name, found in places.items() if not found] == []

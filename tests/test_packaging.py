"""The package list is complete, and what is built from it holds every file."""

from __future__ import annotations

import ast
import email
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

import switchsum

from .timing import patience

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PYPROJECT["tool"]["setuptools"]
PACKAGE = ROOT / "src" / "switchsum"
LINKS = {path.name: path for path in sorted(PACKAGE.iterdir()) if path.is_symlink()}
"""The parts of the package that are folders at the top, or lie in one."""


def folders_on_disk() -> dict[str, Path]:
    """Return package -> folder for every folder of the package, the linked ones followed."""
    found = {}
    for folder, _, files in os.walk(PACKAGE, followlinks=True):
        if any(name.endswith(".py") for name in files):
            found[".".join(("switchsum", *Path(folder).relative_to(PACKAGE).parts))] = Path(folder)
    return found


def files_that_ship() -> set[str]:
    """Return the path in the wheel of every file on disk but notes and caches; an exercise's page is no note."""
    return {
        str(path.relative_to(PACKAGE.parent))
        for folder, _, files in os.walk(PACKAGE, followlinks=True)
        for path in map(Path(folder).joinpath, files)
        if path.suffix not in {".md", ".pyc"} or (path.suffix == ".md" and path.parent.parent.name == "exercises")
    }


def data_files() -> dict[str, Path]:
    """Return path below the environment -> file on disk of what ships besides the modules."""
    return {
        f"{folder}/{path.name}": path
        for folder, patterns in SETUPTOOLS["data-files"].items()
        for pattern in patterns
        for path in ROOT.glob(pattern)
    }


def test_links_are_in_git_and_lead_to_folders_of_this_clone() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--stage", PACKAGE], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode == 0:
        links = {line.rpartition("/")[2] for line in listed.stdout.splitlines() if line.startswith("120000")}
        assert links == LINKS.keys()
    assert LINKS.keys() >= {"protocol", "native", "connections", "switch", "controller", "host", "p4src", "topologies"}
    for path in LINKS.values():
        assert not os.path.isabs(os.readlink(path))
        assert path.resolve().is_relative_to(ROOT)


def test_every_package_has_an_init_file() -> None:
    # Without one the wheel lacks the folder and the editable install has it.
    for package, folder in folders_on_disk().items():
        assert (folder / "__init__.py").is_file(), package


def test_no_module_has_two_names() -> None:
    # What is imported as `host.driver` beside `switchsum_host.driver` would exist twice.
    floors = {path.resolve().name for path in LINKS.values()}
    begins = re.compile(rf"^\s*(?:import|from)\s+(?:{'|'.join(floors)})\b", re.MULTILINE)  # else it need not be parsed
    for folder in (*folders_on_disk().values(), ROOT / "tests", ROOT / "checks", ROOT / "examples"):
        for path in folder.rglob("*.py"):
            if begins.search(path.read_text()):
                assert not third_party_imports(path) & (floors - {"topologies"}), path


def test_mininet_folder_does_not_shadow_mininet() -> None:
    assert not (ROOT / "mininet" / "__init__.py").exists()


def test_version_is_one_and_in_the_changelog() -> None:
    assert importlib.metadata.version("switchsum") == switchsum.__version__
    assert re.search(rf"^## {re.escape(switchsum.__version__)}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_every_import_is_a_declared_dependency() -> None:
    project = PYPROJECT["project"]
    declared = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    declared_names = {re.split(r"[<>=!~\[; ]", line)[0].lower().replace("_", "-") for line in declared}
    distributions = importlib.metadata.packages_distributions()
    for folder in folders_on_disk().values():
        for path in folder.glob("*.py"):
            for top in third_party_imports(path):
                names = {name.lower().replace("_", "-") for name in distributions.get(top, [top])}
                assert names & declared_names, f"{path.relative_to(ROOT)} imports {top}"


def test_what_ships_beside_the_modules_imports_nothing_that_stays_behind() -> None:
    shipped = set(data_files().values())
    for path in shipped:
        beside = {path.with_name(f"{name}.py") for name in third_party_imports(path)}
        assert {module for module in beside if module.exists()} <= shipped, path


def third_party_imports(path: Path) -> set[str]:
    """Return the top names of absolute imports that neither Python nor this project brings."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.add(node.module.partition(".")[0])
    return names - set(sys.stdlib_module_names) - {"switchsum"}


URL = "https://example.org/someone/switchsum"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Build a wheel, without the network, from a copy that leaves no build folder behind in the tree."""
    copy = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for path in data_files().values():
        (copy / path.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy / path.relative_to(ROOT))
    shutil.copytree(PACKAGE, copy / "src" / "switchsum", ignore=shutil.ignore_patterns("__pycache__"))
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", build, str(copy)],
        cwd=copy,
        env={**os.environ, "SWITCHSUM_URL": URL},
        capture_output=True,
        text=True,
        timeout=patience(50),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return zipfile.ZipFile(next(copy.glob("*.whl")))


def test_wheel_holds_every_module_and_data_file(wheel: zipfile.ZipFile) -> None:
    shipped = {name for name in wheel.namelist() if ".dist-info/" not in name}
    modules = {name for name in shipped if ".data/" not in name}
    assert modules == files_that_ship()
    assert {name.partition(".data/data/")[2] for name in shipped - modules} == set(data_files())


def test_a_wheel_alone_has_demo_dissector_and_mininets_file(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    # A second environment that sees our dependencies through a path file, and nothing of the clone.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path)], check=True)
    assert wheel.filename is not None
    install = [sys.executable, "-m", "pip", "--python", str(tmp_path / "bin" / "python"), "install", "--quiet"]
    subprocess.run([*install, "--no-deps", "--no-index", wheel.filename], check=True)
    site = next(tmp_path.glob("lib/python*/site-packages"))
    (site / "dependencies.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n")
    for what in ("mininet", "dissector", "demo"):
        asked = [str(tmp_path / "bin" / "switchsum"), "path", what]
        done = subprocess.run(asked, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert (done.returncode, Path(done.stdout.strip()).is_file()) == (0, True), done.stderr
        assert Path(done.stdout.strip()).is_relative_to(tmp_path.resolve())
    topologies = tmp_path / "share" / "switchsum" / "mininet" / "topologies"
    assert (topologies / "__init__.py").is_file()


def test_wheel_carries_licence_and_command(wheel: zipfile.ZipFile) -> None:
    metadata = {name.partition(".dist-info/")[2]: name for name in wheel.namelist() if ".dist-info/" in name}
    assert b"Apache License" in wheel.read(metadata["licenses/LICENSE"])
    assert b"switchsum = switchsum.__main__:main" in wheel.read(metadata["entry_points.txt"])


def test_metadata_has_a_url_and_no_link_that_needs_a_clone(wheel: zipfile.ZipFile) -> None:
    [name] = [one for one in wheel.namelist() if one.endswith(".dist-info/METADATA")]
    metadata = email.message_from_bytes(wheel.read(name))
    assert metadata.get_all("Project-URL") == [f"Repository, {URL}"]
    text = str(metadata.get_payload())
    assert "![A controller, workers and a switch" in text
    assert f"]({URL}/raw/HEAD/docs/images/processes.svg)" in text
    assert f"[docs/pytorch.md]({URL}/blob/HEAD/docs/pytorch.md)" in text
    assert f"git clone {URL} switchsum" in text
    links = re.findall(r"\]\(([^()\s]+)\)", text)
    assert len(links) > 10
    assert [link for link in links if not link.startswith("https://")] == []


def setup_script() -> Any:
    spec = importlib.util.spec_from_file_location("switchsum_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("origin", "url"),
    [
        ("git@host.example:a/b.git", "https://host.example/a/b"),
        ("ssh://git@host.example:2222/a/b.git", "https://host.example/a/b"),
        ("https://host.example/a/b.git/", "https://host.example/a/b"),
        ("https://me:secret@host.example/a/b", "https://host.example/a/b"),
        ("/srv/b.git", ""),
    ],
)
def test_the_url_is_that_of_the_clones_origin(
    origin: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = setup_script()
    monkeypatch.setattr(script, "HERE", tmp_path)
    monkeypatch.delenv("SWITCHSUM_URL", raising=False)
    for command in (["init", "--quiet"], ["remote", "add", "origin", origin]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    assert script.url() == url
    (tmp_path / "PKG-INFO").write_text("Name: switchsum\nProject-URL: Repository, https://sdist.example/b\n\ntext")
    assert script.url() == "https://sdist.example/b"
    monkeypatch.setenv("SWITCHSUM_URL", "https://said.example/b")
    assert script.url() == "https://said.example/b"


def test_without_a_url_names_of_files_stay_without_links() -> None:
    text = "![A picture](a.svg)[docs/a.md](docs/a.md#b) [there](https://x.example) [here](#b)"
    assert setup_script().absolute(text, "") == "docs/a.md [there](https://x.example) [here](#b)"


def test_editable_install_is_one_path() -> None:
    # A finder of its own, as setuptools writes for folders that are mapped, is what editors do not follow.
    distribution = importlib.metadata.distribution("switchsum")
    if not json.loads(distribution.read_text("direct_url.json") or "{}").get("dir_info", {}).get("editable"):
        pytest.skip("switchsum is not installed editable")
    folder = Path(str(distribution.locate_file("")))
    assert str(ROOT / "src") in {path.read_text().strip() for path in folder.glob("__editable__*.pth")}
    assert not [str(file) for file in distribution.files or () if "finder" in str(file)]

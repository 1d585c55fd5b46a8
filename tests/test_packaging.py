"""Three distributions from one repository: each holds every file of its packages, and names what it imports."""

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
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import switchsum
import switchsum_lab
import switchsum_switch
from support.private_names import ROOT, ROOTS
from support.timing import patience

FOLDERS = {"switchsum-switch": "switch", "switchsum": ".", "switchsum-lab": "lab"}
"""Of the distributions, each after those that it needs."""
PYPROJECTS: Mapping[str, dict[str, Any]] = {
    name: tomllib.loads((ROOT / folder / "pyproject.toml").read_text()) for name, folder in FOLDERS.items()
}
URL = "https://example.org/someone/switchsum"
needs_builder = pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="needs hatchling (extra dev)")
each = pytest.mark.parametrize("name", FOLDERS)


@cache
def listed() -> tuple[Path, ...]:
    """Return the files of the repository that git does not ignore; in an unpacked sdist, which has no git, all."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = [ROOT / name for name in done.stdout.split("\0") if name] or ROOT.rglob("*")
    return tuple(path for path in found if path.is_file() and "__pycache__" not in path.parts)


def below(folder: Path) -> set[Path]:
    return {path for path in listed() if path.is_relative_to(folder)}


def wheel_options(name: str) -> dict[str, Any]:
    options: dict[str, Any] = PYPROJECTS[name]["tool"]["hatch"]["build"]["targets"]["wheel"]
    return options


def packages(name: str) -> list[Path]:
    """Return the folders of a distribution's import packages."""
    return [ROOT / FOLDERS[name] / one for one in wheel_options(name)["packages"]]


def modules(name: str) -> list[Path]:
    return [path for package in packages(name) for path in sorted(below(package)) if path.suffix == ".py"]


def shared(name: str) -> dict[str, Path]:
    """Return path below the environment -> file here, of what ships beside the packages."""
    found = {}
    for source, target in wheel_options(name).get("shared-data", {}).items():
        place = ROOT / FOLDERS[name] / source
        for path in below(place):
            found[(Path(target) / path.relative_to(place)).as_posix()] = path
    return found


def test_no_file_is_a_link() -> None:
    done = subprocess.run(["git", "ls-files", "--stage"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert [line for line in done.stdout.splitlines() if line.startswith("120000")] == []
    assert [path for path in listed() if path.is_symlink()] == []
    assert len(listed()) > 1000


@each
def test_a_package_says_that_it_is_typed_and_each_folder_of_it_is_one(name: str) -> None:
    for package in packages(name):
        assert (package / "py.typed").is_file()
    # Without it a folder is no part of the package for mypy, and pytest takes its modules for others.
    assert [path.parent for path in modules(name) if not path.with_name("__init__.py").is_file()] == []


def test_every_package_of_a_root_belongs_to_a_distribution() -> None:
    owned = {package for name in FOLDERS for package in packages(name)}
    assert owned == {place.parent for root in ROOTS for place in (ROOT / root).glob("*/__init__.py")}


def test_no_module_has_two_names() -> None:
    # With the clone's folder on the path, `host.switchsum_host.driver` would exist beside `switchsum_host.driver`.
    folders = {root.partition("/")[0] for root in ROOTS}
    begins = re.compile(rf"^\s*(?:import|from)\s+(?:{'|'.join(folders)})[. ]", re.MULTILINE)
    assert [path for path in listed() if path.suffix == ".py" and begins.search(path.read_text())] == []


def test_mininet_folder_does_not_shadow_mininet() -> None:
    assert not (ROOT / "mininet" / "__init__.py").exists()
    assert not {".", "mininet"} & {*PYPROJECTS["switchsum"]["tool"]["hatch"]["build"]["dev-mode-dirs"]}


def test_there_is_one_version_and_it_is_in_the_changelog() -> None:
    version = switchsum.__version__
    assert {version} == {switchsum_switch.__version__, switchsum_lab.__version__}
    assert {name: importlib.metadata.version(name) for name in FOLDERS} == dict.fromkeys(FOLDERS, version)
    assert re.search(rf"^## {re.escape(version)}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    pins = {
        line for one in PYPROJECTS.values() for line in one["project"]["dependencies"] if line.startswith("switchsum")
    }
    assert pins == {f"switchsum-switch=={version}", f"switchsum[trees]=={version}"}


def imports(path: Path) -> set[str]:
    """Return the top names of absolute imports that Python does not bring."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.add(node.module.partition(".")[0])
    return names - set(sys.stdlib_module_names)


def declared(name: str, extras: set[str] | None = None) -> Iterator[str]:
    """Yield the distributions that come with one of ours: with all of its extras, or with these."""
    project = PYPROJECTS[name]["project"]
    lines = list(project["dependencies"])
    for extra, more in project.get("optional-dependencies", {}).items():
        lines += more if extras is None or extra in extras else []
    for line in lines:
        other, _, wanted = re.split(r"[<>=!~; ]", line)[0].lower().replace("_", "-").rstrip("]").partition("[")
        yield other
        if other in FOLDERS and other != name:
            yield from declared(other, set(wanted.split(",")))


@each
def test_every_import_is_a_declared_dependency(name: str) -> None:
    known = {name, *declared(name)}
    distributions = importlib.metadata.packages_distributions()
    of_ours = {package.name: one for one in FOLDERS for package in packages(one)}
    undeclared = set()
    for path in modules(name):
        for top in imports(path):
            ours = [of_ours[top]] if top in of_ours else distributions.get(top, [top])
            if not {one.lower().replace("_", "-") for one in ours} & known:
                undeclared.add(f"{path.relative_to(ROOT)} imports {top}")
    assert undeclared == set()


def test_what_ships_beside_the_packages_imports_nothing_that_stays_behind() -> None:
    shipped = set(shared("switchsum").values())
    for path in shipped:
        beside = {path.with_name(f"{name}.py") for name in imports(path)}
        assert {module for module in beside if module.exists()} <= shipped, path


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the repository's files without those that no distribution has: what is built stays in it."""
    copy = tmp_path_factory.mktemp("source")
    for path in listed():
        if path.relative_to(ROOT).parts[0] not in {"docs", "tests", "checks"}:
            place = copy / path.relative_to(ROOT)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
    return copy


def build(kind: str, folder: Path, into: Path, **environment: str) -> Path:
    """Build a wheel or an sdist, without the network."""
    code = f"import sys; from hatchling.build import build_{kind}; print(build_{kind}(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(into)],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=patience(50),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return into / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheels(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, zipfile.ZipFile]:
    """Build the three wheels, of a repository that is somewhere on the web."""
    made = tmp_path_factory.mktemp("wheels")
    return {
        name: zipfile.ZipFile(build("wheel", source / folder, made, SWITCHSUM_URL=URL))
        for name, folder in FOLDERS.items()
    }


def metadata(wheel: zipfile.ZipFile) -> dict[str, str]:
    """Return what a wheel says of itself: name of the file -> its path."""
    return {name.partition(".dist-info/")[2]: name for name in wheel.namelist() if ".dist-info/" in name}


@needs_builder
@each
def test_a_wheel_holds_every_file_of_its_packages_and_what_ships_beside_them(
    name: str, wheels: dict[str, zipfile.ZipFile]
) -> None:
    in_wheel = {one for one in wheels[name].namelist() if ".dist-info/" not in one}
    beside = {one.partition(".data/data/")[2] for one in in_wheel if ".data/data/" in one}
    assert beside == shared(name).keys()
    expected = {path.relative_to(package.parent) for package in packages(name) for path in below(package)}
    if name == "switchsum":
        expected |= {Path("switchsum/data") / path.relative_to(ROOT) for path in below(ROOT / "p4src")}
    assert {one for one in in_wheel if ".data/" not in one} == {path.as_posix() for path in expected}


@needs_builder
@each
def test_an_sdist_makes_the_same_wheel(
    name: str, source: Path, wheels: dict[str, zipfile.ZipFile], tmp_path: Path
) -> None:
    sdist = build("sdist", source / FOLDERS[name], tmp_path, SWITCHSUM_URL=URL)
    subprocess.run(["tar", "-xf", sdist, "-C", tmp_path], check=True)
    again = zipfile.ZipFile(build("wheel", tmp_path / sdist.name.removesuffix(".tar.gz"), tmp_path, SWITCHSUM_URL=""))
    assert {one.filename: one.CRC for one in again.infolist()} == {
        one.filename: one.CRC for one in wheels[name].infolist()
    }


@needs_builder
def test_no_file_belongs_to_two_wheels(wheels: dict[str, zipfile.ZipFile]) -> None:
    every = [one.partition(".data/data/")[2] or one for wheel in wheels.values() for one in wheel.namelist()]
    assert len(every) == len(set(every)) > 600


@needs_builder
def test_wheels_carry_licence_and_commands(wheels: dict[str, zipfile.ZipFile]) -> None:
    for wheel in wheels.values():
        assert b"Apache License" in wheel.read(metadata(wheel)["licenses/LICENSE"])
    points = {name: wheel.read(metadata(wheel)["entry_points.txt"]) for name, wheel in wheels.items()}
    assert b"switchsum = switchsum.__main__:main" in points["switchsum"]
    assert b"switchsum-bmv2 = switchsum_switch.__main__:main" in points["switchsum-switch"]
    assert b"[switchsum.commands]" in points["switchsum-lab"]


class Environment:
    """An environment that has our wheels, sees others' packages through links, and sees nothing of the clone."""

    def __init__(self, folder: Path, *wheels: zipfile.ZipFile) -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        install = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
        files = [str(wheel.filename) for wheel in wheels]
        subprocess.run([*install, "--no-deps", "--no-index", *files], check=True)
        site = next(folder.glob("lib/python*/site-packages"))
        others = folder / "dependencies"
        others.mkdir()
        for place in {Path(str(importlib.metadata.distribution(one).locate_file(""))) for one in ("numpy", "pytest")}:
            for entry in place.iterdir():  # without what it says of ours, whose commands would be there, too
                if "switchsum" not in entry.name and not (others / entry.name).exists():
                    (others / entry.name).symlink_to(entry)
        (site / "dependencies.pth").write_text(f"{others}\n")

    def run(self, *command: str) -> str:
        """Run a command of the environment's bin, far from the clone, and return what it prints."""
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        done = subprocess.run(
            [str(self.folder / "bin" / command[0]), *command[1:]],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=patience(50),
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


OF_THE_LABORATORY = {"simulate", "sweep", "plan", "conform", "compare"}


def commands(environment: Environment) -> set[str]:
    found = set(re.findall(r"^\W*([a-z][\w-]+) {2,}[A-Z]", environment.run("switchsum", "--help"), re.MULTILINE))
    assert "run" in found
    return found


OF_OTHERS = {*("switchsum", "switchsum_host", "switchsum_protocol", "switchsum_lab", "scapy", "typer", "rich", "torch")}
RUN_AND_TELL = """
import runpy, sys
runpy.run_path(sys.argv[1], run_name="__main__")
import switchsum_switch
print("\\n" + switchsum_switch.__file__, *{name.partition(".")[0] for name in sys.modules})
"""


@needs_builder
@pytest.mark.timeout(120)
def test_the_switchs_wheel_alone_runs_a_program(wheels: dict[str, zipfile.ZipFile], tmp_path: Path) -> None:
    alone = Environment(tmp_path / "alone", wheels["switchsum-switch"])
    said = alone.run("python", "-c", RUN_AND_TELL, str(ROOT / "examples" / "switch" / "gateway.py"))
    place, *tops = said.splitlines()[-1].split()
    assert Path(place).is_relative_to(alone.folder)
    assert not OF_OTHERS & {*tops}
    assert "usage" in alone.run("switchsum-bmv2", "--help").lower()


@needs_builder
@pytest.mark.timeout(120)
def test_without_a_clone_there_are_program_demo_dissector_and_mininets_file(
    wheels: dict[str, zipfile.ZipFile], tmp_path: Path
) -> None:
    installed = Environment(tmp_path / "two", wheels["switchsum-switch"], wheels["switchsum"])
    for what in ("mininet", "dissector", "demo"):
        place = Path(installed.run("switchsum", "path", what).strip())
        assert place.is_file()
        assert place.is_relative_to(installed.folder)
    assert (installed.folder / "share/switchsum/mininet/topologies/__init__.py").is_file()
    code = "from switchsum import p4src; print(p4src.SOURCES, p4src.source_digest() == p4src.compiled_digest())"
    sources, is_current = installed.run("python", "-c", code).split()
    assert (Path(sources).is_relative_to(installed.folder), is_current) == (True, "True")
    assert not OF_THE_LABORATORY & commands(installed)


@needs_builder
@pytest.mark.timeout(120)
def test_the_laboratorys_wheel_adds_its_commands(wheels: dict[str, zipfile.ZipFile], tmp_path: Path) -> None:
    installed = Environment(tmp_path / "three", *wheels.values())
    assert commands(installed) >= OF_THE_LABORATORY
    skeleton = Path(installed.run("switchsum", "path", "skeleton").strip())
    assert skeleton.is_dir()
    assert skeleton.is_relative_to(installed.folder)


@needs_builder
def test_metadata_has_a_url_and_no_link_that_needs_a_clone(wheels: dict[str, zipfile.ZipFile]) -> None:
    wheel = wheels["switchsum"]
    message = email.message_from_bytes(wheel.read(metadata(wheel)["METADATA"]))
    assert message.get_all("Project-URL") == [f"Repository, {URL}"]
    text = str(message.get_payload())
    assert "![A controller, workers and a switch" in text
    assert f"]({URL}/raw/HEAD/docs/images/processes.svg)" in text
    assert f"[docs/pytorch.md]({URL}/blob/HEAD/docs/pytorch.md)" in text
    assert f"git clone {URL} switchsum" in text
    links = re.findall(r"\]\(([^()\s]+)\)", text)
    assert len(links) > 10
    assert [link for link in links if not link.startswith("https://")] == []


def build_hooks() -> Any:
    spec = importlib.util.spec_from_file_location("switchsum_hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@needs_builder
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
    hooks = build_hooks()
    monkeypatch.setattr(hooks, "HERE", tmp_path)
    monkeypatch.delenv("SWITCHSUM_URL", raising=False)
    for command in (["init", "--quiet"], ["remote", "add", "origin", origin]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    assert hooks.url() == url
    (tmp_path / "PKG-INFO").write_text("Name: switchsum\nProject-URL: Repository, https://sdist.example/b\n\ntext")
    assert hooks.url() == "https://sdist.example/b"
    monkeypatch.setenv("SWITCHSUM_URL", "https://said.example/b")
    assert hooks.url() == "https://said.example/b"


@needs_builder
def test_without_a_url_names_of_files_stay_without_links() -> None:
    text = "![A picture](a.svg)[docs/a.md](docs/a.md#b) [there](https://x.example) [here](#b)"
    assert build_hooks().absolute(text, "") == "docs/a.md [there](https://x.example) [here](#b)"


@each
def test_an_editable_install_is_plain_paths(name: str) -> None:
    # An import hook, as setuptools writes for several folders, is what editors, mypy and coverage do not follow.
    distribution = importlib.metadata.distribution(name)
    if not json.loads(distribution.read_text("direct_url.json") or "{}").get("dir_info", {}).get("editable"):
        pytest.skip(f"{name} is not installed editable")
    files = [file for file in distribution.files or () if file.suffix == ".pth" or "finder" in file.name]
    lines = {Path(line) for file in files for line in file.read_text().splitlines()}
    places = PYPROJECTS[name]["tool"]["hatch"]["build"]["dev-mode-dirs"]
    assert lines == {(ROOT / FOLDERS[name] / place).resolve() for place in places}
    assert lines == {package.parent for package in packages(name)}

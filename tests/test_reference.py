"""docs/reference.md names everything that it says it names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FLOORS = ("protocol", "native", "connections", "switch", "controller", "host", "src/switchsum")
PAGE = (ROOT / "docs" / "reference.md").read_text()


def sources() -> Iterator[tuple[str, str]]:
    """Yield every module's dotted name and text."""
    for floor in FLOORS:
        for path in sorted((ROOT / floor).rglob("*.py")):
            dotted = path.relative_to(ROOT).with_suffix("").as_posix().removeprefix("src/switchsum").lstrip("/")
            yield "switchsum." + dotted.replace("/", "."), path.read_text()


def test_every_variable_is_there() -> None:
    found = {name for _, text in sources() for name in re.findall(r"\bSWITCHSUM_[A-Z0-9_]+\b", text)}
    assert found <= set(re.findall(r"`(SWITCHSUM_[A-Z0-9_]+)`", PAGE))
    assert found >= {"SWITCHSUM_CONTROLLER", "SWITCHSUM_JOB"}


def test_every_logger_is_there_and_no_other() -> None:
    found = {module for module, text in sources() if "getLogger(__name__)" in text}
    assert found == set(re.findall(r"`(switchsum\.[a-z_.0-9]+)`", PAGE))


def test_every_error_is_there() -> None:
    bases: dict[str, list[str]] = {}
    for _, text in sources():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]
    errors = {"SwitchsumError"}
    while True:
        more = {name for name, above in bases.items() if errors & set(above)} - errors
        if not more:
            break
        errors |= more
    named = set(re.findall(r"`([A-Z]\w+)`", PAGE)) | {"SwitchsumError"}
    assert {name for name in errors if not name.startswith("_")} <= named

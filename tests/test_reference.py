"""docs/reference.md names everything that it says it names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROOTS = ("src", "host", "controller", "protocol", "exercises", "switch/src", "lab/src")
PAGE = (ROOT / "docs" / "reference.md").read_text()


def sources() -> Iterator[tuple[str, str]]:
    """Yield every module's dotted name and text."""
    for root in ROOTS:
        for path in sorted((ROOT / root).rglob("*.py")):
            yield path.relative_to(ROOT / root).with_suffix("").as_posix().replace("/", "."), path.read_text()


def test_every_variable_is_there() -> None:
    found = {name for _, text in sources() for name in re.findall(r"\bSWITCHSUM_[A-Z0-9_]+\b", text)}
    assert found <= set(re.findall(r"`(SWITCHSUM_[A-Z0-9_]+)`", PAGE))
    assert found >= {"SWITCHSUM_CONTROLLER", "SWITCHSUM_JOB"}


def test_every_logger_is_there_and_no_other() -> None:
    named = {(name, module) for module, text in sources() for name in re.findall(r"= logging.getLogger\((.*?)\)", text)}
    found = {module if name == "__name__" else name.strip('"') for name, module in named} - {"switchsum"}
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

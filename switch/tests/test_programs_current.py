"""The compiled test programs are what p4c makes of their sources."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from support.compiled import without_places

TOOL = Path(__file__).parents[2] / "tools" / "compile_test_programs.py"


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compile_test_programs", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(shutil.which("p4c-bm2-ss") is None, reason="needs p4c-bm2-ss on PATH")
@pytest.mark.parametrize("source", tool().sources(), ids=lambda source: source.stem)
def test_is_current(source: Path, tmp_path: Path) -> None:
    tool().compile_program(source, tmp_path)
    made, committed = (json.loads((folder / f"{source.stem}.json").read_text()) for folder in (tmp_path, source.parent))
    assert without_places(made) == without_places(committed)


def test_each_source_is_compiled() -> None:
    made = tool()
    assert sorted(path for folder in made.FOLDERS for path in folder.glob("*.json")) == [
        source.with_suffix(".json") for source in made.sources()
    ]

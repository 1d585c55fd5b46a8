"""The notebooks run, and print what they say."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parent.parent / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_cells_print_what_the_notebook_says(path: Path) -> None:
    tool = importlib.import_module("tools.notebooks")
    notebook = json.loads(path.read_text())
    assert (notebook["nbformat"], len({cell["id"] for cell in notebook["cells"]})) == (4, len(notebook["cells"]))
    assert tool.outputs(notebook) == tool.stored(notebook), "python tools/notebooks.py"
    assert sum(bool(text) for text in tool.stored(notebook)) >= 3


def test_there_are_two() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["numerics", "sparsity"]

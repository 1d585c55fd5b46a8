"""Run the cells of the notebooks, and write what they print into them.

Run as `python tools/notebooks.py`; a test runs them and compares.  They need nothing of Jupyter: cells are plain Python
that prints.
"""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final

NOTEBOOKS: Final = Path(__file__).resolve().parent.parent / "docs" / "notebooks"


def outputs(notebook: dict[str, Any]) -> list[str]:
    """Run all cells of code in one namespace; return what each prints."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            with redirect_stdout(io.StringIO()) as taken:
                exec(compile("".join(cell["source"]), cell["id"], "exec"), namespace)
            printed.append(taken.getvalue())
    return printed


def stored(notebook: dict[str, Any]) -> list[str]:
    """Return what the cells of code have printed, as the notebook says."""
    cells = (cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    return ["".join(line for one in cell["outputs"] for line in one["text"]) for cell in cells]


def refreshed(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return a notebook with what its cells print now."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for count, (cell, text) in enumerate(zip(cells, outputs(notebook), strict=True), 1):
        lines = text.splitlines(keepends=True)
        cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []
        cell["execution_count"] = count
    return notebook


if __name__ == "__main__":
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        sys.stderr.write(f"{path.name}\n")
        path.write_text(json.dumps(refreshed(json.loads(path.read_text())), indent=1, ensure_ascii=False) + "\n")

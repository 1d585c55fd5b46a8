"""Simulates cells with other values of constants, in a process of its own, which compiles them once.

Run: python -m checks.constants.trying CELLS

CELLS is a file with a name and a cell on each line, in JSON.  Each line of the input has a constant's name and a value,
or nulls, and is answered by a line with all outcomes.  The parent is `Trier`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from checks.clone import ROOT, import_path
from checks.compiled import copy_code
from checks.constants.sources import Constant, constants, install, modules, put
from switchsum_switch.kernels.cache import CACHE_VARIABLE
from switchsum_switch.kernels.sources import source_digest

_SHOWN: Final = ("took_s", "repeats", "error", "digest")

Found = Mapping[str, dict[str, Any]]
"""How cells went, by their names: `_SHOWN` of an `Outcome`."""


class Trier:
    """A process that simulates the same cells with other constants, one after another."""

    def __init__(self, cells: Mapping[str, str]) -> None:
        """Start it; `cells` are lines of JSON by their names."""
        self._open = ExitStack()
        scratch = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="switchsum-constants-")))
        file, cache = scratch / "cells", scratch / "cache"
        file.write_text("".join(f"{json.dumps(pair)}\n" for pair in cells.items()))
        copy_code(cache, source_digest(), modules())
        self._process = subprocess.Popen(
            [sys.executable, "-m", "checks.constants.trying", str(file)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": import_path(), CACHE_VARIABLE: str(cache)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def found(self, constant: Constant | None = None, value: float | None = None) -> Found:
        """Simulate all cells, with a constant changed; raises RuntimeError where the process has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([constant.name if constant else None, value]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            name = f"{constant.name} = {value}" if constant else "no change"
            raise RuntimeError(f"{name}: the process has ended with code {self._process.wait()}")
        found: Found = json.loads(line)
        return found

    def close(self) -> None:
        """End the process."""
        self._process.communicate()
        self._open.close()


def outcomes(cells: Iterable[tuple[str, str]]) -> dict[str, dict[str, Any]]:
    """Simulate cells in this process; return how they went."""
    from checks.rough.cells import Cell  # imports what is to be changed
    from checks.rough.running import run

    found: dict[str, dict[str, Any]] = {}
    for name, text in cells:
        try:
            outcome = run(Cell.read(text))
            found[name] = {field: getattr(outcome, field) for field in _SHOWN}
        except Exception as error:  # a change may break anything, and others still count
            says = f"{type(error).__name__}: {error}"[:160]
            found[name] = {"took_s": 0.0, "repeats": 0.0, "error": says, "digest": ""}
    return found


def main() -> None:
    """Answer each line."""
    install()
    known = constants()
    cells = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    for line in sys.stdin:
        name, value = json.loads(line)
        if name is not None:
            put(known[name], value)
        print(json.dumps(outcomes(cells)), flush=True)
        if name is not None:
            put(known[name], known[name].number)


if __name__ == "__main__":
    main()

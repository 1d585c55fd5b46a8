"""Simulates cells with a constant changed, in a process of its own.

Run: python -m checks.constants.trying [NAME VALUE] CELLS

CELLS is a file with a name and a cell on each line, in JSON; prints each outcome as a line of JSON.  Without NAME and
VALUE nothing is changed.  The parent (`tried`) gives the process a directory for its compiled code.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from checks.clone import ROOT, import_path
from checks.constants.sources import ENGINE, Constant, change, constants

if TYPE_CHECKING:  # these import what is to be changed
    from checks.rough.cells import Cell
    from checks.rough.running import Outcome

LONGEST_S: Final = 3600.0
WITHOUT: Final = {f"{ENGINE}.state", f"{ENGINE}.fetching"}
"""Modules of the engine that decide nothing: one has the policies' records, the other brings memory into the cache."""
_SHOWN: Final = ("took_s", "repeats", "error", "digest")


def tried(constant: Constant | None, value: str, cells: Mapping[str, Cell]) -> dict[str, Outcome]:
    """Simulate cells with a constant changed; raises RuntimeError where the process ends in another way.

    Bounds are those of the unchanged cells: some constants decide what is possible, too.
    """
    from checks.rough.running import Outcome  # imports what a child is to change

    with tempfile.TemporaryDirectory(prefix="switchsum-constants-") as scratch:
        file, cache = Path(scratch, "cells"), Path(scratch, "cache")
        file.write_text("".join(f"{json.dumps([name, cell.text])}\n" for name, cell in cells.items()))
        environment = {**os.environ, "PYTHONPATH": import_path()}
        if constant is not None:
            copy_code(cache)
            # Compiled with fewer passes, which takes less time, and makes no difference to virtual time.
            environment |= {"SWITCHSUM_CACHE_DIR": str(cache), "NUMBA_OPT": "1"}
        named = [constant.name, value] if constant is not None else []
        done = subprocess.run(
            [sys.executable, "-m", "checks.constants.trying", *named, str(file)],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"{' = '.join(named) or 'no change'}: {done.stderr.strip()[-500:]}")
    found = {}
    for line in done.stdout.splitlines():
        name, outcome = json.loads(line)
        cell = cells[name]
        recovery = max(0.0, outcome["took_s"] - cell.bound_s) / cell.timeout_s
        found[name] = Outcome(bound_s=cell.bound_s, recovery=recovery, **outcome)
    return found


def copy_code(to: Path) -> None:
    """Copy compiled code that holds no constant of recovery: the rest is compiled anew, in a few seconds.

    The cache does not know of changes that were not written to a file.
    """
    from switchsum_switch.kernels.loading import kernel_store
    from switchsum_switch.kernels.sources import module_sources, source_digest

    store = kernel_store()
    if store is None:
        return
    folder, programs = to / "kernels" / source_digest(), store.path.parents[1] / "switch"
    for path in (to, to / "kernels", folder):
        path.mkdir(mode=0o700)
    if programs.is_dir():  # of switches, which know nothing of workers
        shutil.copytree(programs, to / "switch")
    free = tuple(
        f"{module.removeprefix('switchsum').lstrip('._')}." for module in module_sources().keys() - of_the_engine()
    )
    for path in store.path.glob("*.object"):
        if path.name.rpartition(".")[0].rpartition(".")[0].rpartition(".")[0] + "." in free:
            shutil.copy2(path, folder)


def of_the_engine() -> set[str]:
    """Return the modules that the engine's recovery is compiled into: those that import it, directly or not."""
    from switchsum_switch.kernels.sources import imports, module_sources

    sources = module_sources()
    imported = {name: imports(*source) for name, source in sources.items() if name not in WITHOUT}
    asking = {f"{ENGINE}.{name}" for name in ("recovery", "congestion")}
    found = {name for name in sources if name.startswith(f"{ENGINE}.policies.")} | asking
    while more := {name for name, others in imported.items() if name not in found and others & found}:
        found |= more
    return found


def outcomes(cells: Iterable[tuple[str, str]]) -> Iterable[tuple[str, dict[str, Any]]]:
    """Simulate cells in this process; yield their names with how they went."""
    from checks.rough.cells import Cell
    from checks.rough.running import run

    for name, text in cells:
        try:
            found = run(Cell.read(text))
            yield name, {field: getattr(found, field) for field in _SHOWN}
        except Exception as error:  # a change may break anything, and others still count
            yield name, {"took_s": 0.0, "repeats": 0.0, "error": f"{type(error).__name__}: {error}"[:160], "digest": ""}


def main() -> None:
    """Change the constant, and simulate."""
    *named, file = sys.argv[1:]
    if named:
        change(constants()[named[0]], named[1])
    for name, outcome in outcomes(json.loads(line) for line in Path(file).read_text().splitlines()):
        print(json.dumps([name, outcome]), flush=True)


if __name__ == "__main__":
    main()

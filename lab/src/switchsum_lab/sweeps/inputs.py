"""What a run depends on beside the values of its cell, as a digest: code, programs, and the files that its axes name.

A figure counts for the digest with which it was made.  Where somebody has changed the host of a protocol, a topology,
a recording, the engine, the P4 program or the simulator, the cell runs anew, and figures from before are another
version's.  Every byte of these files counts, comments, too: it is quick, and never wrong on the side that matters.
"""

from __future__ import annotations

import glob
import hashlib
import importlib.util
import shutil
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

from switchsum import p4src
from switchsum_lab.protocols import seam
from switchsum_lab.sweeps.axes import Cell

CODE: Final = (
    *("switchsum_switch", "switchsum_protocol", "switchsum_host", "switchsum_controller"),
    *("switchsum.launch", "switchsum.planning", "switchsum.topologies"),
    *("switchsum_lab.simulation", "switchsum_lab.protocols", "switchsum_lab.sweeps"),
)
"""The packages that decide a figure."""
_SHOWN_ONLY: Final = frozenset({"plotting.py", "summary.py", "results.py", "sweep_file.py", "best.py"})
"""Modules of sweeps that come after a figure, or before its cell."""
_OF_A_PROTOCOL: Final = ("*.py", "*.p4", "program*.json", "program*.txtpb", "program.sha256")
"""What counts in the folder of a protocol: results of sweeps may lie there as well."""
_SIZE: Final = 12
"""Characters of a digest."""


def digest_of(cell: Cell) -> str:
    """Return the digest of all that a run of a cell reads.

    Args:
        cell: The cell, whose paths are those of the folder in which this process runs.

    Returns:
        Twelve hexadecimal digits.  A file that is missing does not count: its cell cannot run.

    Example:
        >>> digest_of(Cell()) == digest_of(Cell(workers=8)) != digest_of(Cell(protocol="switchml"))
        True

    """
    return _joined([code(), *map(_of_file, named_by(cell))])


def named_by(cell: Cell) -> Iterator[Path]:
    """Yield the files that a cell's values name: of its protocol, topology, recording, another switch."""
    # Protocols of ours use parts of one another; a path that is there comes first, as for who loads it.
    for folder in (Path(cell.protocol), seam.BASELINES):
        if folder.is_dir() and (folder != seam.BASELINES or (folder / cell.protocol).is_dir()):
            yield from sorted({path for pattern in _OF_A_PROTOCOL for path in folder.rglob(pattern)})
            break
    if cell.topology is not None and Path(cell.topology).is_file():
        yield Path(cell.topology)
    if cell.arrivals is not None and Path(cell.arrivals).is_file():
        yield Path(cell.arrivals)
    if cell.recording is not None:
        name = Path(cell.recording)
        yield from sorted(name.parent.glob(f"{glob.escape(name.name)}.rank*.jsonl"))
    if cell.switch != Cell().switch and (found := shutil.which(cell.switch)) is not None:
        yield Path(found)


@cache
def code() -> str:
    """Return the digest of the code that decides figures, and of the compiled builds of the P4 program."""
    files = [path for name in CODE for path in _sources(name)]
    return _joined(map(_of_file, [*files, *sorted(p4src.COMPILED.glob("*.json"))]))


def _sources(package: str) -> Iterator[Path]:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations
    for folder in spec.submodule_search_locations:
        yield from (path for path in sorted(Path(folder).rglob("*.py")) if path.name not in _SHOWN_ONLY)


def _of_file(path: Path) -> str:
    with path.open("rb") as file:
        return f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}"


def _joined(digests: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()[:_SIZE]

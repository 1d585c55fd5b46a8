"""What a sweep leaves behind in its folder.

| file | what it holds |
|---|---|
| `runs.jsonl` | a line for each run, written when it has ended, so that a killed sweep loses nothing |
| `runs.csv` | the same as a table: a column for each axis and each figure |
| `runs.parquet` | the same table with types, if pyarrow is installed |
| `manifest.json` | machine, versions, commit, date and command of each sitting |
| `sweep.yaml` | the file that asked for it |
"""

from __future__ import annotations

import csv
import fcntl
import importlib.util
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, TextIO

import switchsum
from switchsum_lab.sweeps.axes import COLUMNS, Cell
from switchsum_lab.sweeps.inputs import digest_of
from switchsum_lab.sweeps.outcome import Outcome, marks
from switchsum_protocol.errors import LocalError, UsageError

FORMAT: Final = 2
"""Version of the lines. Lines of the first version, which do not say what they have read, are read as well."""
FIGURES: Final = tuple(one.name for one in fields(Outcome))
_RUNS, _TABLE, _MANIFEST, _SWEEP = "runs.jsonl", "runs.csv", "manifest.json", "sweep.yaml"
_PACKAGES: Final = ("numpy", "numba", "torch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a cell."""

    cell: Cell
    repetition: int
    sitting: int
    """Number of the sitting, whose machine and versions the manifest has."""
    wall_s: float
    """Seconds of the run with all around it."""
    outcome: Outcome | None
    reads: str = ""
    """Digest of what the run has read (`inputs.digest_of`); empty: nobody noted it."""
    error: str | None = None
    """Why there is no outcome."""

    @property
    def record(self) -> dict[str, Any]:
        """Return what the line of the run holds."""
        return {
            "format": FORMAT,
            "cell": {name: value for name, value in self.cell.record.items() if value != getattr(Cell(), name)},
            "repetition": self.repetition,
            "sitting": self.sitting,
            "reads": self.reads,
            "simulated": self.cell.is_virtual,
            "wall_s": round(self.wall_s, 6),
            **({"error": self.error} if self.outcome is None else self.outcome.record),
        }


class Results:
    """The folder of a sweep, which one process at a time writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs: list[Run] = []
        self.sittings: list[dict[str, Any]] = []
        self._file: TextIO | None = None
        self._reads: dict[Cell, str] = {}

    @classmethod
    def read(cls, folder: Path) -> Results:
        """Read the results of a sweep; raises UsageError where there are none, or a line is wrong."""
        found = cls(folder)
        path = folder / _RUNS
        if not path.exists():
            raise UsageError(f"{folder} holds no results of a sweep: there is no {_RUNS} in it")
        found.runs = [*_read(path)]
        if (manifest := folder / _MANIFEST).exists():
            try:
                found.sittings = json.loads(manifest.read_text())["sittings"]
            except (ValueError, KeyError, TypeError) as error:
                raise UsageError(f"{manifest} is no manifest of a sweep: {error}") from error
        return found

    @classmethod
    def begin(cls, folder: Path, sweep: str) -> Results:
        """Open the folder for another sitting; raises UsageError or LocalError.

        A line that a killed sitting has not written to its end is cut off.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / _RUNS
            file = path.open("a+", encoding="utf-8")
        except OSError as error:
            raise LocalError(f"{folder} cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            raise LocalError(f"another sweep writes into {folder}: --out names another folder") from error
        _cut(path)
        found = cls.read(folder)
        found._file = file
        found.sittings.append({"number": len(found.sittings), **environment()})
        with found._writing():
            _replace(folder / _MANIFEST, json.dumps({"format": FORMAT, "sittings": found.sittings}, indent=2) + "\n")
            _replace(folder / _SWEEP, sweep)
        return found

    def add(self, run: Run) -> None:
        """Write a run at once; raises LocalError if the disk is full, and all that was written before is kept."""
        assert self._file is not None
        with self._writing():
            self._file.write(json.dumps(run.record) + "\n")
            self._file.flush()
        self.runs.append(run)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Raise LocalError where a file of the folder cannot be written."""
        try:
            yield
        except OSError as error:
            raise LocalError(
                f"{self.folder} cannot be written: {error.strerror}. The runs before are kept, and the same command "
                "goes on behind them"
            ) from error

    def done(self) -> set[tuple[Cell, int]]:
        """Return which repetitions of which cells have a figure of this version."""
        return {(run.cell, run.repetition) for run in self.runs if run.outcome is not None and self.is_current(run)}

    def is_current(self, run: Run) -> bool:
        """Return whether a run has read what its cell would read now: code, programs, files that its axes name."""
        if run.cell not in self._reads:
            self._reads[run.cell] = digest_of(run.cell)
        return run.reads == self._reads[run.cell]

    def marks(self, run: Run) -> list[str]:
        """Return what speaks against a run's figure (`outcome.MARKS`); nothing of a run without one."""
        sitting = self.sittings[run.sitting] if run.sitting < len(self.sittings) else {}
        return [] if run.outcome is None else marks(run.cell, run.outcome, sitting.get("machine", {}).get("cores"))

    def write_table(self) -> Path:
        """Write the table, as Parquet as well if pyarrow is there; return the path of the CSV file."""
        path = self.folder / _TABLE
        with self._writing():
            self._write_table(path)
        return path

    def _write_table(self, path: Path) -> None:
        names = [*COLUMNS, "repetition", "simulated", *FIGURES, "marks", "wall_s", "commit", "reads"]
        rows = [[*self._row(run, run.outcome)] for run in self.runs if run.outcome is not None]
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([names, *rows])
        if importlib.util.find_spec("pyarrow") is not None:
            import pyarrow  # noqa: PLC0415 - it takes long to import, and need not be there
            from pyarrow import parquet  # noqa: PLC0415

            columns = {name: [row[number] for row in rows] for number, name in enumerate(names)}
            parquet.write_table(pyarrow.table(columns), path.with_suffix(".parquet"))

    def _row(self, run: Run, outcome: Outcome) -> Iterable[Any]:
        commit = self.sittings[run.sitting].get("commit") if run.sitting < len(self.sittings) else None
        figures = [*outcome.record.values(), " ".join(self.marks(run))]
        return [*run.cell.record.values(), run.repetition, run.cell.is_virtual, *figures, run.wall_s, commit, run.reads]

    def __enter__(self) -> Results:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let others write."""
        if self._file is not None:
            with suppress(OSError):  # what a full disk has not taken, `add` has told of
                self._file.close()


def _replace(path: Path, text: str) -> None:
    """Write a file as a whole: what was there stays if the disk is full."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(text)
    new.replace(path)


def _cut(path: Path) -> None:
    """Cut off a last line without its end."""
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        os.truncate(path, data.rfind(b"\n") + 1)


def _read(path: Path) -> Iterable[Run]:
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines[:-1], 1):
        try:
            yield _run_of(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"{path}, line {number}: this is no run of a sweep: {error}") from error


def _run_of(record: Mapping[str, Any]) -> Run:
    if record["format"] not in (1, FORMAT):
        raise ValueError(f"its format is {record['format']}, and this version of switchsum reads {FORMAT}")
    has_failed = "error" in record
    return Run(
        cell=Cell(**record["cell"]),
        repetition=record["repetition"],
        sitting=record["sitting"],
        wall_s=record["wall_s"],
        reads=str(record.get("reads", "")),
        outcome=None if has_failed else Outcome(**{name: record[name] for name in FIGURES if name in record}),
        error=record.get("error"),
    )


def environment() -> dict[str, Any]:
    """Return what it takes to know where figures are from: machine, versions, commit, date, command."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": ["switchsum", *sys.argv[1:]],
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "system": platform.platform(),
            "load": os.getloadavg()[0],
        },
        "versions": {"switchsum": switchsum.__version__, "python": platform.python_version(), **_versions(_PACKAGES)},
        "commit": _commit(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _versions(names: Sequence[str]) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            pass
    return found


def _commit() -> str | None:
    """Return the commit of this clone, with a plus sign where files have been changed since; None: it is no clone."""
    root = Path(__file__).resolve().parents[4]
    git = ["git", "-C", str(root)]
    try:
        asked = [*git, "rev-parse", "--show-toplevel", "--short=12", "HEAD"]
        top, commit = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split("\n")[:2]
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD"], capture_output=True, check=False)
    except (OSError, subprocess.CalledProcessError):
        return None
    # What is installed in an environment lies in nobody's clone, or in one of another project.
    return commit + ("+" if changed.returncode else "") if Path(top) == root else None

"""A sitting runs cells in turn, loses nothing that was measured, and goes on where an earlier one ended."""

from __future__ import annotations

import errno
import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import pytest

from switchsum_lab.sweeps import sitting
from switchsum_lab.sweeps.axes import Cell
from switchsum_lab.sweeps.batches import batches
from switchsum_lab.sweeps.outcome import Outcome
from switchsum_lab.sweeps.real import MOST_RANKS, Setting
from switchsum_lab.sweeps.results import Results
from switchsum_lab.sweeps.sitting import Progress, duration
from switchsum_lab.sweeps.summary import Summary
from switchsum_lab.sweeps.sweep_file import Sweep
from switchsum_protocol.errors import LocalError, UsageError

CELLS = tuple(Cell(links="shm", workers=workers) for workers in (2, 4))


def sweep(repetitions: int = 2) -> Sweep:
    return Sweep(
        path=Path("one.yaml"),
        text="workers: [2, 4]\n",
        title="one",
        cells=CELLS,
        repetitions=repetitions,
        varying=("workers",),
    )


Begin = Callable[[], Results]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """Return what begins a sitting; git is not asked."""
    monkeypatch.setattr("switchsum_lab.sweeps.results._commit", lambda: "abc")
    with ExitStack() as stack:
        yield lambda: stack.enter_context(Results.begin(tmp_path, "workers: [2, 4]\n"))


class Bench:
    """Notes what runs, and ends as it is told."""

    def __init__(self, *, fails: int = 0, interrupted_at: int = -1) -> None:
        self.ran: list[tuple[int, int]] = []
        self.closed: bool | None = None
        self._fails, self._interrupted_at = fails, interrupted_at

    def run(self, cell: Cell, seed: int) -> Outcome:
        if len(self.ran) == self._interrupted_at:
            signal.raise_signal(signal.SIGINT)
        self.ran.append((cell.workers, seed))
        if cell.workers == self._fails:
            raise LocalError("a rank\n has died")
        return Outcome.of(cell.workers / 1000, cell.bytes, repeats=seed)

    def close(self, *, failed: bool = False) -> None:
        self.closed = failed


def test_repetitions_are_interleaved_and_have_seeds_of_their_own(begin: Begin, tmp_path: Path) -> None:
    results, bench = begin(), Bench()
    ended = sitting.run(sweep(), results, bench)
    assert bench.ran == [(2, 0), (4, 0), (2, 1), (4, 1)]
    assert (ended.measured, ended.failed, ended.is_interrupted, bench.closed) == (4, (), False, False)
    lines = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert [line["ms"] for line in lines] == [2.0, 4.0, 2.0, 4.0]
    head, first, *_ = (tmp_path / "runs.csv").read_text().splitlines()
    assert dict(zip(head.split(","), first.split(","), strict=True))["workers"] == "2"
    assert json.loads((tmp_path / "manifest.json").read_text())["sittings"][0]["versions"]["numpy"]


def test_jobs_of_a_batch_stay_warm_together() -> None:
    cells = [
        Cell(links=links, protocol=protocol, workers=workers, rate_mbit=rate, bytes=size)
        for links in ("virtual", "veth")
        for protocol in ("switchsum", "switchml", "ring")
        for workers in (4, 16, 30)
        for rate in (100.0, 1000.0)
        for size in (4, 4000)
    ]
    made = batches(cells)
    assert sorted(map(repr, cells)) == sorted(repr(cell) for batch in made for cell in batch)
    assert made[0] == [cell for cell in cells if cell.is_virtual]
    of = {cell: number for number, batch in enumerate(made) for cell in batch}
    for batch in made[1:]:
        assert sum(setting.workers for setting in {Setting.of(cell) for cell in batch}) <= MOST_RANKS
    for cell in cells:
        if not cell.is_virtual and cell.workers < 30:  # three jobs of 30 ranks do not fit a batch
            assert of[cell] == of[replace(cell, protocol="ring", bytes=4)]
    starts = [{Setting.of(cell) for cell in batch} for batch in made[1:]]
    assert sum(map(len, starts)) == len(set.union(*starts)), "each job starts once"


def test_the_table_is_written_as_parquet_where_pyarrow_is(begin: Begin, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    sitting.run(sweep(), begin(), Bench())
    [first, *rest] = parquet.read_table(tmp_path / "runs.parquet").to_pylist()
    assert (first["workers"], first["ms"], first["rate_mbit"], first["simulated"], len(rest)) == (
        2,
        2.0,
        None,
        False,
        3,
    )


def test_a_killed_sitting_loses_nothing_but_the_run_under_way(begin: Begin, tmp_path: Path) -> None:
    results = begin()
    sitting.run(sweep(1), results, Bench())
    results.close()
    with (tmp_path / "runs.jsonl").open("a") as file:
        file.write('{"format": 1, "cell": {"wor')  # as kill -9 in the midst of a write leaves it
    again, bench = begin(), Bench()
    sitting.run(sweep(2), again, bench)
    assert bench.ran == [(2, 1), (4, 1)]
    assert [(run.cell.workers, run.repetition, run.sitting) for run in Results.read(tmp_path).runs] == [
        (2, 0, 0),
        (4, 0, 0),
        (2, 1, 1),
        (4, 1, 1),
    ]


def test_a_cell_that_fails_is_noted_and_run_again_by_the_next_sitting(begin: Begin, tmp_path: Path) -> None:
    results, bench = begin(), Bench(fails=4)
    ended = sitting.run(sweep(), results, bench)
    assert (ended.measured, [run.error for run in ended.failed]) == (2, ["a rank has died"] * 2)
    results.close()
    again, bench = begin(), Bench()
    sitting.run(sweep(), again, bench)
    assert bench.ran == [(4, 0), (4, 1)]
    assert (tmp_path / "runs.csv").read_text().count("\n") == 1 + 4


def test_an_interrupt_ends_the_sitting_and_its_jobs_at_once(begin: Begin, tmp_path: Path) -> None:
    results, bench = begin(), Bench(interrupted_at=1)
    before = signal.getsignal(signal.SIGINT)
    ended = sitting.run(sweep(), results, bench)
    assert (ended.measured, ended.is_interrupted, bench.closed) == (1, True, True)
    assert signal.getsignal(signal.SIGINT) is before
    assert len(sitting.pending(sweep(), results)) == 3


def test_one_sweep_at_a_time_writes_into_a_folder(begin: Begin, tmp_path: Path) -> None:
    results = begin()
    with pytest.raises(LocalError, match="another sweep writes into"):
        begin()
    results.close()
    begin()


def test_lines_of_another_version_are_refused_by_their_number(begin: Begin, tmp_path: Path) -> None:
    results = begin()
    sitting.run(sweep(1), results, Bench())
    path = tmp_path / "runs.jsonl"
    first, second = path.read_text().splitlines()
    path.write_text("\n".join([first, second.replace('"format": 2', '"format": 3'), ""]))
    with pytest.raises(UsageError, match=r"runs.jsonl, line 2: this is no run of a sweep: its format is 3, and this"):
        Results.read(tmp_path)
    with pytest.raises(UsageError, match="holds no results"):
        Results.read(tmp_path / "elsewhere")


def test_the_time_left_is_what_cells_took_before(begin: Begin, tmp_path: Path) -> None:
    results = begin()
    sitting.run(sweep(1), results, Bench())
    [short, long] = [replace(run, wall_s=wall_s) for run, wall_s in zip(results.runs, (1.0, 5.0), strict=True)]
    results.runs.clear()
    assert Progress([(cell, 1) for cell in CELLS], results).left_s is None
    progress = Progress([(cell, 1) for cell in CELLS], results)
    progress.ended(short)
    assert progress.left_s == 1.0  # of the other cell nothing is known: as long as the median
    progress = Progress([(cell, 2) for cell in CELLS], results)
    progress._took = {short.cell: 1.0, long.cell: 5.0}
    assert progress.left_s == 6.0
    assert [duration(seconds) for seconds in (3, 600, 7200)] == ["3 s", "10 min", "2.0 h"]


@pytest.mark.parametrize(("count", "low", "high"), [(1, 0, 0), (5, 0, 4), (6, 0, 5), (9, 1, 7), (20, 5, 14)])
def test_intervals_are_those_of_the_binomial_distribution(count: int, low: int, high: int) -> None:
    # Ranks from a table of the sign test: of 20 values the 6th and the 15th hold the median with 95.9 %.
    found = Summary.of([float(value) for value in range(count)])
    assert (found.low, found.high, found.runs) == (low, high, count)


class FullDisk:
    """A file whose disk is full after some lines."""

    def __init__(self, file: TextIO, lines: int) -> None:
        self._file, self._left = file, lines

    def write(self, text: str) -> int:
        if self._left == 0:
            self._file.write(text[: len(text) // 2])  # the disk takes a part of the line
            self._file.flush()
            raise OSError(errno.ENOSPC, "No space left on device")
        self._left -= 1
        return self._file.write(text)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_told_in_one_line_and_keeps_what_was_measured(begin: Begin, tmp_path: Path) -> None:
    results = begin()
    assert results._file is not None
    results._file = FullDisk(results._file, 3)  # type: ignore[assignment]
    with pytest.raises(LocalError, match=r"cannot be written: No space left on device\. The runs before are kept"):
        sitting.run(sweep(), results, Bench())
    results.close()
    again, bench = begin(), Bench()
    assert len(again.runs) == 3
    sitting.run(sweep(), again, bench)
    assert bench.ran == [(4, 1)]

"""One sitting of a sweep: cells in turn, repetition after repetition, from where an earlier sitting ended.

Interleaving spreads what else the machine does over all cells alike.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from types import FrameType
from typing import Final, Protocol

from switchsum_lab.sweeps import simulated
from switchsum_lab.sweeps.axes import Cell
from switchsum_lab.sweeps.batches import batches
from switchsum_lab.sweeps.inputs import digest_of
from switchsum_lab.sweeps.outcome import Outcome
from switchsum_lab.sweeps.results import Results, Run
from switchsum_lab.sweeps.sweep_file import Sweep
from switchsum_protocol.errors import SwitchsumError

_SAY_EVERY_S: Final = 10.0
"""Seconds between two lines if the output is no terminal."""


class Bench(Protocol):
    """Where real cells run."""

    def run(self, cell: Cell, seed: int) -> Outcome:
        """Run a cell once; raises SwitchsumError."""

    def close(self, *, failed: bool = False) -> None:
        """End what is kept warm, at once if the sitting was broken off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a sitting ended."""

    measured: int
    failed: tuple[Run, ...]
    is_interrupted: bool


def pending(sweep: Sweep, results: Results) -> list[tuple[Cell, int]]:
    """Return what has not been measured yet: in each batch one repetition of all its cells after the other."""
    done = results.done()
    return [
        (cell, repetition)
        for batch in batches(sweep.cells)
        for repetition in range(sweep.repetitions)
        for cell in batch
        if (cell, repetition) not in done
    ]


def run(sweep: Sweep, results: Results, bench: Bench, say: Callable[[str], object] | None = None) -> Ended:
    """Run all that is left; each run is written before the next one begins.

    An interrupt ends the sitting after the run that is under way was given up; a cell that fails does not.
    """
    left = pending(sweep, results)
    progress = Progress(left, results, say)
    failed: list[Run] = []
    number, measured = len(results.sittings) - 1, 0
    with _interrupts() as interrupts:
        try:
            for cell, repetition in left:
                progress.begins(cell)
                reads = digest_of(cell)  # before it runs: files may change meanwhile
                started = time.perf_counter()
                outcome, error = None, None
                try:
                    outcome = (simulated if cell.is_virtual else bench).run(cell, cell.seed + repetition)
                except SwitchsumError as reason:
                    error = " ".join(str(reason).split()) or type(reason).__name__
                if interrupts.has_come:  # a simulation returns what there is of it
                    raise KeyboardInterrupt
                made = Run(
                    cell=cell,
                    repetition=repetition,
                    sitting=number,
                    wall_s=time.perf_counter() - started,
                    reads=reads,
                    outcome=outcome,
                    error=error,
                )
                results.add(made)
                progress.ended(made)
                measured += outcome is not None
                if outcome is None:
                    failed.append(made)
        except KeyboardInterrupt:
            pass
        finally:
            progress.close()
            bench.close(failed=interrupts.has_come)
            results.write_table()
    return Ended(measured=measured, failed=tuple(failed), is_interrupted=interrupts.has_come)


class _Interrupts:
    has_come = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Note the interrupt, and raise KeyboardInterrupt where the program is."""
        self.has_come = True
        raise KeyboardInterrupt


@contextmanager
def _interrupts() -> Iterator[_Interrupts]:
    """Note interrupts: what runs may swallow a KeyboardInterrupt."""
    noted = _Interrupts()
    try:
        before = signal.signal(signal.SIGINT, noted)
    except ValueError:  # not the main thread, which alone gets them
        yield noted
        return
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)


class Progress:
    """Says how far a sitting is, and for how long it will go on: by what each cell took, or cells of its kind."""

    def __init__(
        self, left: list[tuple[Cell, int]], results: Results, say: Callable[[str], object] | None = None
    ) -> None:
        """Learn from the runs that there are."""
        self._left = [cell for cell, _ in left]
        self._total, self._done = len(left), 0
        self._took: dict[Cell, float] = {}
        self._say, self._is_shown = say, False
        self._said_at = time.monotonic()
        for run_ in results.runs:
            self._took[run_.cell] = run_.wall_s

    def begins(self, cell: Cell) -> None:
        """Note which cell runs."""
        self._show(cell)

    def ended(self, run_: Run) -> None:
        """Note what a run took."""
        self._done += 1
        self._took[run_.cell] = run_.wall_s

    @property
    def left_s(self) -> float | None:
        """Estimate how long the rest takes; None: nothing is known yet."""
        if not self._took:
            return None
        usual = median(self._took.values())  # the first run of all may have compiled for minutes
        return sum(self._took.get(cell, usual) for cell in self._left[self._done :])

    def _show(self, cell: Cell) -> None:
        if self._say is None:
            return
        left = self.left_s
        text = f"{self._done} of {self._total} runs" + ("" if left is None else f", about {duration(left)} left")
        text += f": {cell.protocol}, {cell.links}, {cell.workers} workers"
        if sys.stderr.isatty():
            self._say(f"\r\x1b[K{text}")
            self._is_shown = True
        elif time.monotonic() - self._said_at >= _SAY_EVERY_S:
            self._say(f"{text}\n")
            self._said_at = time.monotonic()

    def close(self) -> None:
        """Clear the line."""
        if self._say is not None and self._is_shown:
            self._say("\r\x1b[K")


def duration(seconds: float) -> str:
    """Write a time as people do."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"

"""Tables whose cells are a sweep: `checks/bench/sweeps/PART.yaml` says which, and their runs become records.

`switchsum sweep checks/bench/sweeps/links.yaml` measures the same cells for a reader, who may change the file.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from checks.bench import compare
from checks.bench.choice import Choice
from checks.bench.compare import Run
from checks.bench.records import Record
from switchsum.launch.link_options import mtu_for, rate_bits
from switchsum_lab.sweeps import real, sitting
from switchsum_lab.sweeps.axes import OURS, Cell, Impossible
from switchsum_lab.sweeps.checks import check
from switchsum_lab.sweeps.outcome import Outcome
from switchsum_lab.sweeps.results import Results
from switchsum_lab.sweeps.sweep_file import Sweep, load
from switchsum_protocol.errors import LocalError

SWEEPS: Final = Path(__file__).parent / "sweeps"
TAKES: Final = ("workers", "sizes", "lanes", "rates", "peers", "runs")
"""Options that narrow a sweep down."""
_MAY_BE_MISSING: Final = ("protocol", "switch")
"""Axes whose programs a machine may lack, which `checks.bench.needs` has said before."""


def records(part: str, choice: Choice, prefix: Callable[[Cell], str]) -> list[Record]:
    """Measure a part's sweep; return a record for each cell, whose name begins with its prefix."""
    groups: dict[tuple[str, int, str | None], dict[compare.Cell, list[Run]]] = {}
    for cell, runs in measure(part, choice).items():
        groups.setdefault((prefix(cell), cell.workers, rate_of(cell)), {})[name_of(cell), cell.bytes] = runs
    return [
        made
        for (start, workers, rate), taken in groups.items()
        for made in compare.records(start, workers, taken, rate)
    ]


def measure(part: str, choice: Choice) -> dict[Cell, list[Run]]:
    """Run the cells of a part's sweep that are chosen and possible here; raises LocalError if one fails."""
    sweep = narrowed(load(SWEEPS / f"{part}.yaml"), choice)
    with tempfile.TemporaryDirectory(prefix="switchsum-bench-") as scratch:
        with Results.begin(Path(scratch), sweep.text) as results:
            ended = sitting.run(sweep, results, real.Jobs(sys.stderr), sys.stderr.write)
        if ended.is_interrupted:
            raise KeyboardInterrupt
        if ended.failed:
            raise LocalError(f"{part}: {ended.failed[0].error}")
        taken: dict[Cell, list[Run]] = {cell: [] for cell in sweep.cells}
        for run in results.runs:
            assert run.outcome is not None
            taken[run.cell].append(run_of(run.outcome))
        return taken


def narrowed(sweep: Sweep, choice: Choice) -> Sweep:
    """Return a sweep with the cells that are chosen and whose programs are here; raises LocalError if none is left."""
    cells = tuple(cell for cell in sweep.cells if _is_chosen(cell, choice) and _is_possible(cell))
    if not cells:
        raise LocalError(f"{sweep.path} has no such cell: its axes say what there is")
    return replace(sweep, cells=cells, repetitions=choice.runs)


def _is_chosen(cell: Cell, choice: Choice) -> bool:
    mbits = [rate_bits(rate) / 1e6 for rate in choice.rates]
    return (
        (not choice.workers or cell.workers in choice.workers)
        and (not choice.sizes or cell.bytes in choice.sizes)
        and (not choice.lanes or lanes_of(cell) in choice.lanes or not _lanes_matter(cell))
        and (not mbits or cell.rate_mbit in mbits)
        and (not choice.peers or cell.protocol in (OURS, *choice.peers))
    )


def _lanes_matter(cell: Cell) -> bool:
    """Tell whether a cell's frames have to do with its lanes: those of rivals have, where the MTU follows from them."""
    return cell.protocol == OURS or cell.links == "veth"


def _is_possible(cell: Cell) -> bool:
    try:
        check(cell)
    except Impossible as error:
        if error.axis not in _MAY_BE_MISSING:
            raise
        return False
    return True


def run_of(outcome: Outcome) -> Run:
    """Return what one run of a cell took."""
    return Run(
        seconds=outcome.ms / 1e3,
        cpu_seconds=outcome.cpu_s or 0.0,
        worker_seconds=outcome.worker_cpu_s or 0.0,
        own_bytes=round(1e6 * (outcome.memory_mb or 0.0)),
    )


def lanes_of(cell: Cell) -> int:
    """Return the lanes of a frame."""
    return int(cell.lanes.partition(",")[0])


def mtu_of(cell: Cell) -> int:
    """Return the MTU of a cell's links."""
    return mtu_for(lanes_of(cell))


def name_of(cell: Cell) -> str:
    """Return who adds, as the end of a record's name: a rival, or our lanes."""
    return cell.lanes.replace(",", "-") if cell.protocol == OURS else cell.protocol


def rate_of(cell: Cell) -> str | None:
    """Return the rate of a cell's links as names of records have it."""
    if cell.rate_mbit is None:
        return None
    return f"{cell.rate_mbit / 1000:g}gbit" if cell.rate_mbit >= 1000 else f"{cell.rate_mbit:g}mbit"

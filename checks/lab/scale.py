"""The tables of docs/results/scale.md: simulated times of 32 to 4,096 workers, beside a good ring and an ideal one.

Run: python -m checks.lab.scale [--workers 64,256] [--again] [--processes 16]   Each cell that is missing in
scale_cells.json is simulated by the code of `switchsum simulate`, and written there, so that a run that was ended goes
on where it was.  A cell that fails is named, and the others are kept.  Then the tables are written into the page.
The figures do not depend on the machine's load.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from checks.bench import ages
from checks.bench.code import digests
from switchsum.topologies import Cable, Network
from switchsum_lab.simulation import jobs
from switchsum_lab.simulation.conditions import CableConditions
from switchsum_lab.simulation.scenario import IDEAL, Scenario, ideals, simulate
from switchsum_switch.notices import say

CELLS: Final = Path(__file__).with_name("scale_cells.json")
PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "results" / "scale.md"
BEGIN, END = "<!-- tables: make scale -->", "<!-- end of tables -->"
SIZE: Final = 4_000_000
"""Bytes of each worker's array."""
GBIT: Final = (10, 100, 400)
LOSSES: Final = (0.0, 0.001)
KINDS: Final[dict[str, dict[str, Any]]] = {
    "dense": {},
    "sparse": {"density": 0.1, "has_common_blocks": True},
    "int8": {"lanes": "int8"},
}
"""What differs from a dense sum in lanes of 32 bits."""
MOST_OF_A_RING: Final = 1024
"""A ring of more workers takes hours to simulate: 2 (N - 1) steps of N frames each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A tree of switches: how many each one has below it, from the root down; the last ones are workers."""

    below: tuple[int, ...]

    @property
    def levels(self) -> int:
        """Levels of switches."""
        return len(self.below)

    def network(self, mbit: float) -> Network:
        """Return it with links of a rate."""
        switches, level, cables = ["s0"], ["s0"], []
        for width in self.below[:-1]:
            under = [f"s{len(switches) + number}" for number in range(width * len(level))]
            cables += [Cable(ends=(one, level[number // width]), mbit=mbit) for number, one in enumerate(under)]
            switches, level = switches + under, under
        hosts = [f"h{number}" for number in range(self.below[-1] * len(level))]
        cables += [Cable(ends=(one, level[n // self.below[-1]]), mbit=mbit) for n, one in enumerate(hosts)]
        return Network(switches=tuple(switches), hosts=tuple(hosts), cables=tuple(cables))


SHAPES: Final = {
    32: Shape(below=(32,)),
    64: Shape(below=(4, 16)),
    256: Shape(below=(16, 16)),
    1024: Shape(below=(32, 32)),
    4096: Shape(below=(4, 32, 32)),
}
"""By workers: a switch has 32 members at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One network."""

    workers: int
    gbit: int
    loss: float

    def scenario(self, **facts: Any) -> Scenario:
        """Return what is simulated on it, with as many slots as a round trip needs unless `facts` say otherwise."""
        shape, links = SHAPES[self.workers], CableConditions(loss=self.loss)
        lanes = facts.get("lanes_per_frame", 256)
        return Scenario(
            planned=shape.network(self.gbit * 1000.0),
            workers=self.workers,
            size=SIZE,
            conditions=links,
            **{"window_slots": jobs.fitting_window(links, self.gbit * 1e9, lanes, len(shape.below)), **facts},
        )

    def name(self, kind: str) -> str:
        """Return what a cell is called in the file."""
        return f"{self.workers} workers, {self.gbit} Gbit/s, loss {self.loss:g}, {kind}"


def rows(workers: int) -> Iterator[Row]:
    """Yield the networks of so many workers."""
    for gbit in GBIT:
        for loss in LOSSES:
            yield Row(workers=workers, gbit=gbit, loss=loss)


def kinds(row: Row) -> Iterator[str]:
    """Yield the cells of a row."""
    yield from KINDS
    if row.workers <= MOST_OF_A_RING:
        yield "ring"


def cell(row: Row, kind: str) -> dict[str, Any]:
    """Simulate one cell."""
    began = time.process_time()
    scenario = row.scenario(**KINDS.get(kind, {}))
    [one] = simulate(scenario, ways=["ring" if kind == "ring" else "switches"])
    if not one.is_complete or one.is_right is False:
        raise RuntimeError("sums are wrong")
    return {
        "us": 1e6 * one.simulated_s,
        "repeats": one.repeats,
        "frames": one.frames,
        "digest": one.digest,
        "processor_s": round(time.process_time() - began, 1),
    }


def table(found: dict[str, Any]) -> str:
    """Return the table of the cells that are there."""
    lines = [
        "| workers | levels | Gbit/s | loss | dense | ideal | repeats | 10 % of blocks | int8 | ring | ideal ring |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for workers, shape in SHAPES.items():
        for row in rows(workers):
            cells = {kind: found.get(row.name(kind)) for kind in (*KINDS, "ring")}
            if cells["dense"] is None:
                continue
            formulas = ideals(row.scenario())
            shown = {kind: "" if one is None else f"{one['us']:,.0f}" for kind, one in cells.items()}
            facts = [
                *(f"{workers:,}", str(shape.levels), str(row.gbit), f"{row.loss:.1%}", shown["dense"]),
                *(f"{1e6 * formulas['ideal switches']:,.0f}", f"{cells['dense']['repeats']:,}"),
                *(shown["sparse"], shown["int8"], shown["ring"], f"{1e6 * formulas[IDEAL]:,.0f}"),
            ]
            lines.append(f"| {' | '.join(facts)} |")
    return "\n".join(lines)


def publish(found: dict[str, Any]) -> None:
    """Write the table into the page."""
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(found)}\n\n{END}{after}", encoding="utf-8")


def missing(found: dict[str, Any], workers: list[int], *, again: bool) -> list[tuple[Row, str]]:
    """Return the cells to simulate, long ones first: of many workers, and with loss."""
    cells = [(row, kind) for one in workers for row in rows(one) for kind in kinds(row)]
    cells = [(row, kind) for row, kind in cells if again or row.name(kind) not in found]
    return sorted(cells, key=lambda cell: (-cell[0].workers, -cell[0].loss, cell[1] == "sparse"))


def alone(row: Row, kind: str) -> dict[str, Any]:
    """Simulate one cell in a process of its own, whose end is the end of this cell alone."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(cell, row, kind).result()


def simulated(todo: list[tuple[Row, str]], processes: int) -> Iterator[tuple[str, dict[str, Any] | BaseException]]:
    """Yield each cell's name, and what was simulated or why it failed, as they end."""
    with ThreadPoolExecutor(processes) as threads:
        names = {threads.submit(alone, row, kind): row.name(kind) for row, kind in todo}
        try:
            for done in as_completed(names):
                yield names[done], done.exception() or done.result()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)


def main() -> None:
    """Simulate what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", default=",".join(map(str, SHAPES)))
    parser.add_argument("--again", action="store_true", help="simulate cells that are there already")
    parser.add_argument("--processes", type=int, default=1, help="cells simulated at the same time, each on a core")
    options = parser.parse_args()
    found: dict[str, Any] = json.loads(CELLS.read_text()) if CELLS.exists() else {}
    todo = missing(found, [int(one) for one in options.workers.split(",")], again=options.again)
    failed = []
    for name, one in simulated(todo, options.processes):
        if isinstance(one, BaseException):
            failed.append(name)
            say(f"failed: {name}: {type(one).__name__}: {one}")
            continue
        found[name] = {**one, "code": digests()}
        say(f"simulated: {name}: {one['us']:,.1f} us, {one['processor_s']} s of a core")
        CELLS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    publish(found)
    ages.mark()
    if failed:
        raise SystemExit(f"{len(failed)} of {len(todo)} cells failed: {'; '.join(failed)}")


if __name__ == "__main__":
    main()

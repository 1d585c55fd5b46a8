"""The table of docs/scale.md: simulated times at scale, beside a good ring and an ideal one.

Run: python -m checks.lab.scale [--workers 64,256]   It prints the rows; each is simulated by the same code as
`switchsum simulate`.  1,024 workers need some minutes of one core.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from switchsum.cli.topology import read
from switchsum.simulation.conditions import Link
from switchsum.simulation.scenario import IDEAL, Scenario, ideals, simulate


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A leaf-spine network, and how much is added on it: less where there are more workers."""

    shape: str
    size: int


SIZES: Final = {
    64: Size(shape="leaf-spine,4,1,16", size=2_000_000),
    256: Size(shape="leaf-spine,16,1,16", size=1_000_000),
    1024: Size(shape="leaf-spine,32,1,32", size=400_000),
}
GBIT: Final = (10, 100, 400)
LOSSES: Final = (0.0, 0.001)


def rows(workers: int) -> Iterator[str]:
    """Yield the rows of the table for so many workers."""
    for gbit in GBIT:
        for loss in LOSSES if gbit == 100 else (0.0,):
            yield row(workers, gbit, loss)


def row(workers: int, gbit: int, loss: float) -> str:
    """Return one row."""
    chosen = SIZES[workers]
    scenario = Scenario(
        planned=read(chosen.shape, gbit * 1000.0),
        workers=workers,
        size=chosen.size,
        conditions=Link(loss=loss),
        against=("ring", IDEAL),
    )
    switches, ring = simulate(scenario)
    if not switches.is_right:
        raise SystemExit(f"{workers} workers at {gbit} Gbit/s: sums are wrong")
    formulas = ideals(scenario)
    times = (switches.simulated_s, formulas["ideal switches"], ring.simulated_s, formulas[IDEAL])
    cells = " | ".join(f"{1e6 * time:,.0f}" for time in times)
    repeats = f"{switches.repeats:,}"
    return f"| {workers:,} | {chosen.size / 1e6:g} MB | {gbit} Gbit/s | {loss:.1%} | {cells} | {repeats} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", default="64,256,1024")
    chosen = [int(text) for text in parser.parse_args().workers.split(",")]
    print("| workers | each | rate | loss | switches add, us | ideal, us | ring, us | ideal ring, us | repeats |")
    print("|---|---|---|---|---|---|---|---|---|")
    for workers in chosen:
        for line in rows(workers):
            print(line, flush=True)


if __name__ == "__main__":
    main()

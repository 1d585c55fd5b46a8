"""The table of large networks in lab/docs/scale.md: switches that add, beside the best of what hosts alone can do.

Run: python -m checks.lab.large [--workers 64,256] [--again]   Each cell that is missing in large_cells.json is
simulated by the code of `switchsum simulate --against best`, and written there.  Then the table is written into the
page.  The figures do not depend on the machine's load.

Hosts have as many spines as their leaf has hosts, so that no link between switches is over-subscribed, and frames to
different hosts of a leaf take different spines.  Switches that add need one tree of these links.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from checks.bench import ages
from checks.bench.code import digests
from switchsum_lab.options import SimulateOptions
from switchsum_lab.simulation import peers
from switchsum_lab.simulation.scenario import IDEAL, Scenario, ideals, simulate
from switchsum_switch.notices import say

CELLS: Final = Path(__file__).with_name("large_cells.json")
PAGE: Final = Path(__file__).resolve().parents[2] / "lab" / "docs" / "scale.md"
BEGIN, END = "<!-- large: python -m checks.lab.large -->", "<!-- end of large -->"
SHAPES: Final = {64: (4, 16), 256: (16, 16), 1024: (32, 32)}
"""By workers: leaves, and hosts of each leaf."""
SIZES: Final = {64: "2MB", 256: "1MB", 1024: "400kB"}
SWITCHES: Final = "switches"
HOSTS: Final = peers.possible(64, 1 << 20)
WAYS: Final = (SWITCHES, *HOSTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One network and its links."""

    workers: int
    gbit: int
    loss: float

    @property
    def topology(self) -> str:
        """The shape, as `--topology` takes it."""
        leaves, hosts = SHAPES[self.workers]
        return f"leaf-spine,{leaves},{hosts},{hosts}"

    @property
    def name(self) -> str:
        """What it is called in the file."""
        return f"{self.topology}, {SIZES[self.workers]}, {self.gbit} Gbit/s, loss {self.loss:g}"

    def scenario(self) -> Scenario:
        """Return what is simulated: all options but these have their defaults."""
        size, rate = SIZES[self.workers], f"{self.gbit}gbit"
        return SimulateOptions(topology=self.topology, size=size, rate=rate, loss=self.loss).scenario()


def rows() -> Iterator[Row]:
    """Yield the rows of the table."""
    for workers in SHAPES:
        for gbit, loss in ((10, 0.0), (100, 0.0), (100, 0.001), (400, 0.0)):
            yield Row(workers=workers, gbit=gbit, loss=loss)


def cell(row: Row, way: str) -> dict[str, Any]:
    """Simulate one cell; raises RuntimeError if it does not end, or adds wrongly."""
    [one] = simulate(row.scenario(), ways=[way])
    if not one.is_complete or one.is_right is False:
        raise RuntimeError(f"{way} on {row.name}: not complete, or sums are wrong")
    return {"us": 1e6 * one.simulated_s, "repeats": one.repeats, "digest": one.digest, "code": digests()}


def table(found: dict[str, Any]) -> str:
    """Return the table of the rows that are there."""
    lines = [
        f"| workers | each | Gbit/s | loss | switches add | {' | '.join(HOSTS)} | ideal ring | factor |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows():
        cells = [found.get(f"{row.name}, {way}") for way in WAYS]
        if None in cells:
            continue
        ours, *hosts = [one["us"] for one in cells if one is not None]
        shown = [f"**{one:,.0f}**" if one == min(hosts) else f"{one:,.0f}" for one in hosts]
        facts = [f"{row.workers:,}", SIZES[row.workers], str(row.gbit), f"{row.loss:.1%}" if row.loss else "none"]
        ideal = 1e6 * ideals(row.scenario())[IDEAL]
        lines.append(f"| {' | '.join([*facts, f'{ours:,.0f}', *shown, f'{ideal:,.0f}', f'{min(hosts) / ours:.1f}'])} |")
    return "\n".join(lines)


def publish(found: dict[str, Any]) -> None:
    """Write the table into the page."""
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(found)}\n\n{END}{after}", encoding="utf-8")


def main() -> None:
    """Simulate what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", default=",".join(map(str, SHAPES)))
    parser.add_argument("--again", action="store_true", help="simulate cells that are there already")
    options = parser.parse_args()
    chosen = [int(one) for one in options.workers.split(",")]
    found: dict[str, Any] = json.loads(CELLS.read_text()) if CELLS.exists() else {}
    for row in rows():
        for way in WAYS:
            name = f"{row.name}, {way}"
            if row.workers in chosen and (options.again or name not in found):
                found[name] = cell(row, way)
                say(f"simulated: {name}: {found[name]['us']:,.1f} us, {found[name]['repeats']:,} repeats")
                CELLS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    publish(found)
    ages.mark()


if __name__ == "__main__":
    main()

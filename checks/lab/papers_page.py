"""Figures of lab/docs/papers.md and papers-sparse.md beside those of `make papers`: `python -m checks.lab.papers_page`.

This names each figure of their tables that is another one in `build/papers`, and exits with 1 if there is any.
`--publish` writes these figures into the tables, and the day above them.  The text beside them is written by hand.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

from switchsum_lab.sweeps import sweep_file
from switchsum_lab.sweeps.axes import OURS
from switchsum_lab.sweeps.best import best
from switchsum_lab.sweeps.results import Results
from switchsum_lab.sweeps.simulated import IDEAL_SWITCHES
from switchsum_protocol.errors import UsageError

ROOT: Final = Path(__file__).parents[2]
DAY: Final = re.compile(r"(`make papers` of )\d{4}-\d\d-\d\d")
"""Where a page says of which day its figures are."""
BUILT: Final = ROOT / "build" / "papers"

Values = Mapping[str, Any]
"""Some values of a cell, by field.  Of several in a tuple, the one with the least figure counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of a page, and which cells of a sweep its figures are."""

    page: str
    begins: str
    """First cell of its head."""
    sweep: str
    rows: Mapping[str, Values]
    """Rows by their first cell."""
    columns: Sequence[Values]
    """Columns from the second on; one without values is no figure of the sweep."""
    figure: str = "ms"


def _shares(*percent: float) -> dict[str, Values]:
    return {f"{one:g} %": {"density": one / 100} for one in percent}


def _workers(*numbers: int) -> list[Values]:
    return [{"workers": number} for number in numbers]


def _lossy(delay_us: float) -> dict[str, Values]:
    names = {OURS: OURS, "switchml": "switchml", "ring": "ring"}
    names |= {"ring_reno": "ring over TCP, Reno", "ring_cubic": "ring over TCP, CUBIC"}
    return {name: {"protocol": protocol, "delay_us": delay_us} for protocol, name in names.items()}


_LOSSES: Final = (0.0, 0.0001, 0.001, 0.01)
_TWO: Final = (OURS, "omnireduce")
_SPLIT: Final = "sparcml-split"
_SPARCML: Final = (_SPLIT, "sparcml-doubling")
"""SparCML chooses between them: the faster one counts."""
TABLES: Final = (
    Table(
        page="papers",
        begins="density",
        sweep="omnireduce-density",
        rows=_shares(1, 10, 20, 60, 100),
        columns=[{"protocol": name, "overlap": overlap} for overlap in ("all", "random", "none") for name in _TWO],
    ),
    Table(
        page="papers",
        begins="values in a block",
        sweep="omnireduce-blocks",
        rows={f"{block}": {"block": block, "density": 0.01} for block in (32, 64, 128, 256)},
        columns=[{"protocol": name, "fusion": fused} for name in _TWO for fused in (False, True)],
    ),
    Table(
        page="papers",
        begins="4 MB at 10 Gbit/s",
        sweep="switchml-workers",
        rows={
            name: {"protocol": protocol, "rate_mbit": 1e4}
            for name, protocol in (
                (OURS, OURS),
                ("ring", "ring"),
                ("halving-doubling", "halving-doubling"),
                ("formula of switches", IDEAL_SWITCHES),
            )
        },
        columns=_workers(2, 4, 8, 16),
    ),
    Table(
        page="papers",
        begins="loss on each link, 8 workers",
        sweep="switchml-loss",
        rows=_lossy(1.0),
        columns=[{"loss": loss} for loss in _LOSSES],
    ),
    Table(
        page="papers",
        begins="loss, cables of 25 us",
        sweep="switchml-loss",
        rows=_lossy(25.0),
        columns=[{"loss": loss} for loss in _LOSSES],
    ),
    Table(
        page="papers",
        begins="jobs",
        sweep="atp-cells",
        rows={
            "switchsum, slots of its own for each job": {"protocol": OURS},
            "atp, 20,000 cells for all": {"protocol": "atp"},
        },
        columns=[{"jobs": jobs} for jobs in (1, 2, 4, 8)],
    ),
    Table(
        page="papers",
        begins="network",
        sweep="blink-shapes",
        rows={
            "two machines of two hosts (examples/topologies/two-boxes.yaml)": {
                "topology": "examples/topologies/two-boxes.yaml"
            },
            "pairs of unequal links (examples/topologies/unequal-pairs.yaml)": {
                "topology": "examples/topologies/unequal-pairs.yaml"
            },
            "leaf and spine, equal links": {"topology": "leaf-spine,2,2,2"},
        },
        columns=[{"protocol": OURS}, {"protocol": "ring"}],
    ),
    Table(
        page="papers-sparse",
        begins="density",
        sweep="sparcml",
        rows=_shares(0.1, 1, 10),
        columns=[
            {"protocol": name, "workers": workers, "collective": "topk"}
            for workers in (2, 4, 16)
            for name in (OURS, _SPARCML)
        ],
    ),
    Table(
        page="papers-sparse",
        begins="workers",
        sweep="sparcml-regression",
        rows={f"{workers}": {"workers": workers, "rate_mbit": 100.0} for workers in (4, 8, 16)},
        columns=[
            {"protocol": OURS, "collective": "topk", "calls": 1},
            {"protocol": OURS, "collective": "topk", "calls": 2},
            {"protocol": _SPARCML, "collective": "topk"},
            {"protocol": OURS, "collective": "allreduce"},
            {"protocol": "ring", "collective": "allreduce"},
        ],
    ),
    Table(
        page="papers-sparse",
        begins="way",
        sweep="oktopk-volume",
        rows={
            "ours, places at random": {"protocol": OURS, "overlap": "random"},
            "ours, the same places": {"protocol": OURS, "overlap": "all"},
            "Ok-Topk": {"protocol": "oktopk", "overlap": "random"},
            "gTopk": {"protocol": "gtopk", "overlap": "random"},
            "TopkA": {"protocol": "topka", "overlap": "random"},
            "SparCML split, at random": {"protocol": _SPLIT, "overlap": "random"},
        },
        columns=[*_workers(2, 4, 8, 16), {}],
        figure="sent_mb",
    ),
    Table(
        page="papers-sparse",
        begins="density",
        sweep="flare-sparse",
        rows=_shares(0.1, 1, 5, 20),
        columns=[
            {"protocol": name, "overlap": overlap, "collective": "topk"}
            for overlap in ("random", "all")
            for name in (OURS, _SPARCML)
        ],
    ),
    Table(
        page="papers-sparse",
        begins="workers",
        sweep="thc-error",
        rows={
            "THC, 1.1 bytes a value": {"collective": "thc"},
            "int8 lanes, 1.24 bytes": {"collective": "allreduce", "lanes": "int8"},
            "int16 lanes, 2.24 bytes": {"collective": "allreduce", "lanes": "int16"},
            "int32 lanes, 4.41 bytes": {"collective": "allreduce", "lanes": "int32"},
        },
        columns=_workers(2, 4, 8, 16),
        figure="sum_error",
    ),
)
"""Tables of the pages; of two that begin alike, the first one of the page first."""


def tables_of(text: str) -> Iterator[tuple[str, dict[str, list[str]]]]:
    """Yield the first cell of the head of each table, and its rows by their first cell."""
    for found in re.finditer(r"(?:^\|.*\n)+", text, re.MULTILINE):
        head, _, *rows = [[cell.strip(" *`") for cell in line.strip("|").split("|")] for line in found[0].splitlines()]
        yield head[0].replace("`", ""), {name.replace("`", ""): cells for name, *cells in rows}


def rows_of(table: Table) -> dict[str, list[str]]:
    """Return the rows of a table as the page has them."""
    text = (ROOT / "lab" / "docs" / f"{table.page}.md").read_text()
    alike = [one for one in TABLES if (one.page, one.begins) == (table.page, table.begins)]
    return [rows for begins, rows in tables_of(text) if begins == table.begins][alike.index(table)]


def published(table: Table, results: Results, text: str) -> str:
    """Return the text of a page with the figures of a sweep in a table."""
    alike = [one for one in TABLES if (one.page, one.begins) == (table.page, table.begins)]
    at = [
        found
        for found in re.finditer(r"(?:^\|.*\n)+", text, re.MULTILINE)
        if next(tables_of(found[0]))[0] == table.begins
    ][alike.index(table)]
    lines = at[0].splitlines(keepends=True)
    for number, line in enumerate(lines):
        _, name, *cells, end = line.split("|")
        of_row = table.rows.get(name.strip(" *`").replace("`", ""))
        if of_row is None:
            continue
        for place, of_column in enumerate(table.columns):
            if of_column:
                written = cells[place].strip(" *`").split()[0]
                found = _as_written(_median(results, {**of_row, **of_column}, table), written)
                cells[place] = cells[place].replace(written, found, 1)
        lines[number] = "|".join(["", name, *cells, end])
    return text[: at.start()] + "".join(lines) + text[at.end() :]


def publish(built: Path) -> None:
    """Write all figures into their pages, and the day."""
    for page in dict.fromkeys(table.page for table in TABLES):
        path = ROOT / "lab" / "docs" / f"{page}.md"
        text = path.read_text()
        for table in TABLES:
            if table.page == page:
                text = published(table, Results.read(built / table.sweep), text)
        path.write_text(DAY.sub(rf"\g<1>{datetime.now(UTC).date()}", text))


def differing(table: Table, results: Results) -> Iterator[str]:
    """Yield a line for each figure that is another one; raises UsageError where the sweep has none."""
    rows = rows_of(table)
    for name, of_row in table.rows.items():
        for said, of_column in zip(rows[name], table.columns, strict=True):
            if not of_column:
                continue
            found = _median(results, {**of_row, **of_column}, table)
            written = said.split()[0]
            if _as_written(found, written) != written:
                yield f"{table.page}.md, {table.sweep}, {name}, {dict(of_column)}: {said}, and it is {found:.4g}"


def _median(results: Results, values: Values, table: Table) -> float:
    """Return the figure of some cells of a sweep, or of the best of them."""
    for field, several in values.items():
        if isinstance(several, tuple):
            return min(_median(results, {**values, field: value}, table) for value in several)
    runs = [
        run
        for run in results.runs
        if run.outcome is not None
        and results.is_current(run)
        and all(getattr(run.cell, name) == value for name, value in values.items())
    ]
    if not runs:
        raise UsageError(f"{results.folder} has no run of {dict(values)}")
    axis = sweep_file.load(ROOT / "lab" / "papers" / f"{table.sweep}.yaml").best
    figures: list[float] = [getattr(run.outcome, table.figure) for run in (runs if axis is None else best(runs, axis))]
    return median(figures)


def _as_written(value: float, written: str) -> str:
    """Write a value with as many digits as a page has of it."""
    if "e" in written:
        text = f"{value:.{len(written.partition('e')[0].partition('.')[2])}e}"
        return re.sub(r"e([+-])0", r"e\1", text)
    return f"{value:.{len(written.partition('.')[2])}f}"


def main() -> int:
    """Compare all tables."""
    parser = argparse.ArgumentParser(prog="python -m checks.lab.papers_page", description=__doc__)
    parser.add_argument("--built", type=Path, default=BUILT, metavar="FOLDER", help="folders of the sweeps' results")
    parser.add_argument("--publish", action="store_true", help="write the figures into the pages")
    options = parser.parse_args()
    built = options.built
    if options.publish:
        publish(built)
    wrong: list[str] = []
    for table in TABLES:
        wrong += differing(table, Results.read(built / table.sweep))
    figures = sum(len(table.rows) * sum(map(bool, table.columns)) for table in TABLES)
    sys.stdout.write("".join(f"{line}\n" for line in wrong))
    sys.stdout.write(f"{figures} figures in {len(TABLES)} tables; {len(wrong)} are others in {built}\n")
    sys.stdout.flush()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

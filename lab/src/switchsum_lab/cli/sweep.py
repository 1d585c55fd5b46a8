"""`switchsum sweep`: measure or simulate every combination of the values in a file, and plot the results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option
from typer.core import TyperGroup

from switchsum.cli.fields import takes
from switchsum.cli.output import JsonOption, print_json
from switchsum_protocol.errors import UsageError

if TYPE_CHECKING:
    from switchsum_lab.sweeps.results import Results
    from switchsum_lab.sweeps.sweep_file import Sweep

MOST_LISTED = 40
"""Rows of the table at the end; the CSV file has all."""


class _RunsByDefault(TyperGroup):
    """Takes `sweep FILE` for `sweep run FILE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command in front where none is given."""
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="sweep",
    help="Measure or simulate every combination of the values in a file, and plot the results.",
    cls=_RunsByDefault,
    no_args_is_help=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """The options of `switchsum sweep FILE`."""

    file: Annotated[Path, Argument(help="The YAML file of the sweep.", metavar="FILE")]
    out: Annotated[
        Path | None, Option("--out", "-o", help="Folder of the results. Default: the name of FILE, with -results.")
    ] = None
    dry_run: Annotated[bool, Option("--dry-run", help="List the cells, check them, and run nothing.")] = False
    keep_old: Annotated[
        bool, Option("--keep-old", help="Show runs of earlier code or files as well, in rows of their own.")
    ] = False
    as_json: JsonOption = False


@app.command("run")
@takes(SweepOptions)
def run(options: SweepOptions) -> None:
    """Run each cell of a sweep. A sweep that was stopped continues where it was."""
    from switchsum_lab.sweeps import sweep_file

    sweep = sweep_file.load(options.file)  # refuses a wrong file before the simulator is imported, which takes seconds
    from switchsum_lab.sweeps import checks

    sweep.check(checks.check)
    sweep.check(checks.check_trees)  # apart, for planning of trees imports scipy's solvers, which take half a second
    from switchsum_lab.sweeps import sitting
    from switchsum_lab.sweeps.real import Jobs
    from switchsum_lab.sweeps.results import Results

    if options.dry_run:
        _list(sweep, as_json=options.as_json)
        return
    folder = options.out or Path(f"{options.file.stem}-results")
    with Results.begin(folder, sweep.text) as results:
        _note_other_versions(results, keep_old=options.keep_old)
        done = sweep.repetitions * len(sweep.cells) - len(sitting.pending(sweep, results))
        if done:
            typer.echo(f"switchsum: {folder} has {done} of these runs already, which are not repeated", err=True)
        with (folder / "log.txt").open("a") as log:
            ended = sitting.run(sweep, results, Jobs(log), lambda text: typer.echo(text, nl=False, err=True))
    for one in ended.failed[:MOST_LISTED]:
        typer.echo(f"switchsum: {_described(sweep, one.cell)}, repetition {one.repetition}: {one.error}", err=True)
    _show(sweep, results, keep_old=options.keep_old, as_json=options.as_json)
    if ended.is_interrupted:
        left = len(sitting.pending(sweep, results))
        typer.echo(f"switchsum: interrupted; the same command runs the {left} runs that are left", err=True)
        raise typer.Exit(130)
    if ended.failed:
        raise typer.Exit(1)


def _note_other_versions(results: Results, *, keep_old: bool) -> None:
    """Say if the folder has runs of other code, or of files that have changed since."""
    if old := sum(not results.is_current(run) for run in results.runs if run.outcome is not None):
        shown = "stand in rows of their own" if keep_old else "are not shown: --keep-old shows them"
        typer.echo(
            f"switchsum: {results.folder} has {old} run{'s' * (old > 1)} of earlier code or files, which count for "
            f"nothing here and {shown}",
            err=True,
        )


def _described(sweep: Sweep, cell: Any) -> str:
    from switchsum_lab.sweeps.axes import FIELDS, written

    names = sweep.varying or ("protocol", "workers", "bytes")
    return ", ".join(f"{FIELDS[name]} {written(name, getattr(cell, name))}" for name in names)


def _list(sweep: Sweep, *, as_json: bool) -> None:
    if as_json:
        print_json([cell.record for cell in sweep.cells])
        return
    for cell in sweep.cells:
        typer.echo(_described(sweep, cell))
    count = len(sweep.cells)
    typer.echo(f"{count} cell{'s' * (count > 1)}, {sweep.repetitions * count} runs: every cell is possible here")


def _show(sweep: Sweep, results: Results, *, keep_old: bool, as_json: bool) -> None:
    """Print medians of the cells of this sweep."""
    from switchsum_lab.sweeps.axes import FIELDS, written
    from switchsum_lab.sweeps.best import best
    from switchsum_lab.sweeps.outcome import MARKS
    from switchsum_lab.sweeps.summary import Summary

    ended = [run for run in results.runs if run.outcome is not None]
    taken: dict[tuple[Any, bool], list[Any]] = {}
    for is_current in (True, False) if keep_old else (True,):
        of_version = [run for run in ended if results.is_current(run) == is_current]
        for run in of_version if sweep.best is None else best(of_version, sweep.best):
            taken.setdefault((run.cell, is_current), []).append(run)
    rows, seen = [], set()
    for cell, is_current in ((cell, is_current) for cell in sweep.cells for is_current in (True, False)):
        if runs := taken.get((cell, is_current)):
            found = Summary.of([one.outcome.ms for one in runs])
            marks = {mark for one in runs for mark in results.marks(one)}
            seen |= marks
            rows.append(
                {FIELDS[name]: written(name, getattr(cell, name)) for name in sweep.varying or ("protocol",)}
                | {
                    "ms": f"{found.median:.4g}",
                    "from": f"{found.low:.4g}",
                    "to": f"{found.high:.4g}",
                    "runs": found.runs,
                    "marks": ", ".join([*sorted(marks), *([] if is_current else ["earlier"])]),
                }
            )
    if as_json:
        print_json({"folder": str(results.folder), "cells": rows})
        return
    from switchsum.cli.output import print_records

    if not any(row["marks"] for row in rows):
        for row in rows:
            del row["marks"]
    print_records(f"{sweep.title}: medians of what a collective took", rows[:MOST_LISTED], as_json=False)
    if sweep.best is not None:
        typer.echo(f"of {FIELDS[sweep.best]} the best value of each row: the least median")
    for mark in sorted(seen):
        typer.echo(f"marked {mark}: {MARKS[mark]}, so that it is no figure of the protocol alone")
    more = f"the other {len(rows) - MOST_LISTED} rows, " if len(rows) > MOST_LISTED else ""
    typer.echo(f"{results.folder}: {more}runs.csv, runs.jsonl, manifest.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotOptions:
    """The options of `switchsum sweep plot`."""

    folder: Annotated[Path, Argument(help="Folder of the results.", metavar="DIR")]
    x: Annotated[
        str | None,
        Option(help="Axis along the bottom: bytes, workers, loss. Default of this and the next: `plot` in the file."),
    ] = None
    y: Annotated[str | None, Option(help="Figure up the side: ms (default), mb_per_s, sent_mb, frames, repeats.")] = (
        None
    )
    by: Annotated[str | None, Option(help="Axes that tell curves apart, with commas between them.")] = None
    panels: Annotated[str | None, Option(help="Axis with a panel for each of its values.")] = None
    where: Annotated[list[str] | None, Option(help="Only cells with this value: loss=1%. May be repeated.")] = None
    out: Annotated[Path | None, Option("--out", "-o", help="File: .svg, .png or .pdf. Default: plot.svg in DIR.")] = (
        None
    )
    keep_old: Annotated[
        bool, Option("--keep-old", help="Draw runs of earlier code or files as well, as curves of their own.")
    ] = False
    linear: Annotated[
        bool, Option("--linear", help="Use linear scales. Default: an axis that spans a decade is logarithmic.")
    ] = False


@app.command("plot")
@takes(PlotOptions)
def plot(options: PlotOptions) -> None:
    """Draw the medians of a sweep with their intervals."""
    from switchsum_lab.sweeps import plotting, sweep_file
    from switchsum_lab.sweeps.results import Results

    results = Results.read(options.folder)
    said = sweep_file.load(options.folder / "sweep.yaml")
    x, y, by, panels = (getattr(options, name) or said.plot.get(name) for name in sweep_file.PICTURE)
    if x is None:
        raise UsageError("--x says which axis lies along the bottom: the sweep's file has no `plot`")
    picture = plotting.Picture(
        x=x,
        y=y or "ms",
        by=tuple(name.strip() for name in (by or "").split(",") if name.strip()),
        panels=panels,
        where=tuple(options.where or ()),
        is_linear=options.linear,
        keeps_old=options.keep_old,
        best=said.best,
    )
    out = options.out or options.folder / "plot.svg"
    plotting.draw(results, picture, out)
    typer.echo(str(out))

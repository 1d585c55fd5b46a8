"""Curves of a sweep's results: medians with their intervals."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from switchsum_lab.sweeps.axes import AXES, COLUMNS, FIELDS, Cell, Value, written
from switchsum_lab.sweeps.best import best
from switchsum_lab.sweeps.outcome import MARKS
from switchsum_lab.sweeps.results import FIGURES, Results, Run
from switchsum_lab.sweeps.summary import LEAST_RUNS, Summary
from switchsum_protocol.errors import LocalError, UsageError

_UNITS: Final = {
    "ms": "time, ms",
    "mb_per_s": "MB/s of a worker's array",
    "sent_mb": "MB that a worker sends",
    "frames": "frames",
    "repeats": "frames sent again",
    "taken": "share of rounds that the aggregator added",
    "cpu_s": "processor time of the job, s",
    "worker_cpu_s": "processor time of the workers, s",
    "memory_mb": "MB that a worker holds beside its arrays",
    "sum_error": "energy of the error over that of the sum",
}
_DECADE: Final = 10.0
_MARKERS: Final = "osD^vPX<>*"
_WIDTH, _HEIGHT = 5.0, 3.6
_MOST_TICKS = 8
"""Most values with a tick each. If there are more, the ticks are round numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What is drawn over what."""

    x: str
    y: str = "ms"
    by: tuple[str, ...] = ()
    panels: str | None = None
    where: tuple[str, ...] = ()
    is_linear: bool = False
    keeps_old: bool = False
    """Runs of earlier code or files are drawn as well, as curves of their own."""
    best: str | None = None
    """Field of which each point has the best value alone, unless the picture names it."""


Curve = Sequence[tuple[Any, Summary]]
"""Points in the order of x."""


def curves(results: Results, picture: Picture) -> dict[Value, dict[str, Curve]]:
    """Return the curves of each panel, by what tells them apart; raises UsageError.

    Cells that differ in an axis which the picture does not name are refused: their mean would be of nothing.
    """
    fields = {name: _field(name) for name in (picture.x, *picture.by, *([picture.panels] if picture.panels else []))}
    if picture.y not in FIGURES or picture.y in ("right", "left_out"):
        raise UsageError(f"--y is one of {', '.join(_UNITS)}, not {picture.y!r}")
    found = [run for run in results.runs if run.outcome is not None and _is_wanted(run.cell, picture.where)]
    runs = [run for run in found if picture.keeps_old or results.is_current(run)]
    if found and not runs:
        raise UsageError(
            f"all runs of {results.folder} are of earlier code, or of files that have changed since: run the sweep "
            "again, or --keep-old draws them"
        )
    if not runs:
        raise UsageError(f"{results.folder} has no run with --where {' '.join(picture.where)}" if picture.where else
                         f"{results.folder} has no run that ended well")  # fmt: skip
    if picture.best is not None and picture.best not in fields.values():
        runs = [
            run
            for is_current in (True, False)
            for run in best([run for run in runs if results.is_current(run) == is_current], picture.best)
        ]
        fields = {**fields, picture.best: picture.best}
    _check_named(runs, {*fields.values()})
    panels: dict[Value, dict[str, dict[Any, list[tuple[float, list[str]]]]]] = {}
    for run in runs:
        value = getattr(run.outcome, picture.y)
        if value is None:
            continue
        panel = getattr(run.cell, fields[picture.panels]) if picture.panels else None
        name = ", ".join(_named(fields[one], getattr(run.cell, fields[one])) for one in picture.by)
        if not results.is_current(run):
            name = f"{name}, earlier" if name else "earlier"
        points = panels.setdefault(panel, {}).setdefault(name, {})
        points.setdefault(getattr(run.cell, fields[picture.x]), []).append((value, results.marks(run)))
    if not panels:
        raise UsageError(f"no run of {results.folder} has a figure {picture.y}")
    return {
        panel: {name: [(x, _summary(points[x])) for x in sorted(points, key=_order)] for name, points in found.items()}
        for panel, found in sorted(panels.items(), key=lambda item: _order(item[0]))
    }


def _summary(runs: Sequence[tuple[float, list[str]]]) -> Summary:
    return Summary.of([value for value, _ in runs], (mark for _, marks in runs for mark in marks))


def _field(name: str) -> str:
    """Return the field of an axis; raises UsageError."""
    if name in AXES:
        return AXES[name].field
    if name in COLUMNS:
        return name
    raise UsageError(f"there is no axis {name!r}: a sweep has {', '.join(AXES)}")


def _is_wanted(cell: Cell, where: Sequence[str]) -> bool:
    for condition in where:
        name, sign, text = condition.partition("=")
        if not sign:
            raise UsageError(f"--where takes AXIS=VALUE, as in loss=1%, not {condition!r}")
        axis = _field(name)
        try:
            value = AXES[FIELDS[axis]].read(text)
        except UsageError as error:
            raise UsageError(f"--where {name}: {error}") from error
        if getattr(cell, axis) != value:
            return False
    return True


def _check_named(runs: Sequence[Run], named: set[str]) -> None:
    for name in COLUMNS:
        values = {getattr(run.cell, name) for run in runs}
        if len(values) > 1 and name not in named:
            some = ", ".join(written(name, value) for value in sorted(values, key=_order)[:4])
            axis = FIELDS[name]
            raise UsageError(f"the runs differ in {axis} ({some}): add it to --by, or choose one by --where {axis}=...")


def _order(value: Value) -> tuple[bool, float, str]:
    is_number = isinstance(value, int | float)
    return not is_number, float(value) if isinstance(value, int | float) else 0.0, str(value)


def _named(field: str, value: Value) -> str:
    text = written(field, value)
    return text if field in ("protocol", "links", "bytes", "rate_mbit") else f"{FIELDS[field]} {text}"


def draw(results: Results, picture: Picture, path: Path) -> None:
    """Draw the curves into a file, whose name says its format; raises UsageError or LocalError."""
    found = curves(results, picture)
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(
        1, len(found), figsize=(_WIDTH * len(found), _HEIGHT), squeeze=False, sharey=True, layout="constrained"
    )
    field, names = _field(picture.x), list(dict.fromkeys(name for panel in found.values() for name in panel))
    for place, (axis, (value, panel)) in enumerate(zip(axes[0], found.items(), strict=True)):
        _draw_panel(axis, panel, field, names, picture.is_linear)
        axis.set_xlabel(FIELDS[field] + {"rate_mbit": ", Mbit/s", "delay_us": ", us"}.get(field, ""))
        if place == 0:
            axis.set_ylabel(_UNITS[picture.y])
        if picture.panels:
            axis.set_title(f"{picture.panels} {written(_field(picture.panels), value)}")
    # The panels share their scale, which must know the values of all of them.
    if not picture.is_linear and _spans([one.median for panel in found.values() for _, one in _points(panel)]):
        axes[0][0].set_yscale("log")
    else:
        axes[0][0].set_ylim(bottom=0)
    if names != [""]:
        figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(_caption(results, found), fontsize="small")
    try:
        figure.savefig(path)
    except OSError as error:
        raise LocalError(f"{path} cannot be written: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error
    finally:
        pyplot.close(figure)


def _points(panel: Mapping[str, Curve]) -> list[tuple[Any, Summary]]:
    """Return the points of all curves."""
    return [point for points in panel.values() for point in points]


def _draw_panel(axis: Any, panel: Mapping[str, Curve], field: str, names: Sequence[str], is_linear: bool) -> None:
    places = _places([x for x, _ in _points(panel)])
    for number, name in enumerate(names):
        points = panel.get(name, [])
        xs = [places.get(x, x) for x, _ in points]
        middle = [one.median for _, one in points]
        below = [one.median - one.low for _, one in points]
        above = [one.high - one.median for _, one in points]
        marker = _MARKERS[number % len(_MARKERS)]
        [line, *_] = axis.errorbar(
            xs, middle, yerr=[below, above], label=name, marker=marker, markersize=4, capsize=2, linewidth=1
        )
        marked = [place for place, (_, one) in enumerate(points) if one.marks]
        axis.plot(
            [xs[place] for place in marked],
            [middle[place] for place in marked],
            linestyle="none",
            marker=marker,
            markersize=6,
            markerfacecolor="white",
            markeredgecolor=line.get_color(),
            zorder=line.get_zorder() + 1,
        )
    values = sorted({x for x, _ in _points(panel)}, key=_order)
    if not places and not is_linear and _spans(values):
        axis.set_xscale("log")
    if places or len(values) <= _MOST_TICKS:
        axis.set_xticks([places.get(x, x) for x in values], [written(field, x) for x in values])
        axis.xaxis.minorticks_off()
    axis.grid(alpha=0.3)


def _places(values: Sequence[Any]) -> dict[Any, int]:
    """Return where values lie that are no numbers; nothing where all are."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return {}
    return {value: place for place, value in enumerate(sorted({*values}, key=_order))}


def _spans(values: Sequence[float]) -> bool:
    return bool(values) and min(values) > 0 and max(values) / min(values) >= _DECADE


def _caption(results: Results, found: Mapping[Value, Mapping[str, Curve]]) -> str:
    """Say what the figures are."""
    marks = sorted({mark for panel in found.values() for _, one in _points(panel) for mark in one.marks})
    hollow = f"; hollow: {', '.join(MARKS[mark] for mark in marks)}" if marks else ""
    kinds = {"simulated" if run.cell.is_virtual else "measured" for run in results.runs}
    kind = " and ".join(sorted(kinds))
    fewest = min(one.runs for panel in found.values() for _, one in _points(panel))
    if fewest == 1:
        return f"{kind}, one run of each cell{hollow}"
    bars = "95 % intervals of the median" if fewest >= LEAST_RUNS else "smallest and largest of the runs"
    return f"{kind}; median of {fewest} runs or more; bars: {bars}{hollow}"


def _pyplot() -> Any:
    try:
        import matplotlib  # noqa: PLC0415 - only who draws needs it

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt  # noqa: PLC0415
    except ImportError as error:
        raise LocalError(f"plots need matplotlib: {sys.executable} -m pip install 'switchsum-lab[plots]'") from error
    return plt

"""A sweep as a YAML file has it: axes, repetitions, and cells that are left out (lab/docs/sweeps.md).

All that is wrong is collected with its line, so that one look at the output is enough to mend a file.
"""

from __future__ import annotations

import difflib
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from switchsum_lab.sweeps.axes import AXES, FIELDS, Cell, Impossible, Value
from switchsum_protocol.errors import LocalError, UsageError

try:
    import yaml
except ImportError as error:
    raise LocalError(
        f"a sweep needs pyyaml and scipy, and {error.name} is missing: "
        f"{sys.executable} -m pip install 'switchsum[trees]'"
    ) from error

MOST_BYTES: Final = 1 << 20
"""Largest size of a file, in bytes."""
MOST_CELLS: Final = 100_000
MOST_SHOWN: Final = 20
"""Lines of an error; how many more there are is said."""
REPETITIONS, EXCEPT, TITLE, PLOT, BEST = "repetitions", "except", "title", "plot", "best"
KEYS: Final = (*AXES, REPETITIONS, EXCEPT, TITLE, PLOT, BEST)
PICTURE: Final = ("x", "y", "by", "panels")
"""Keys of `plot`: options of `switchsum sweep plot`."""


class SweepError(UsageError):
    """A sweep file is wrong."""

    def __init__(self, path: Path, wrong: list[tuple[int, str]]) -> None:
        """Write a line for each thing that is wrong: (line of the file, what)."""
        ordered = sorted(set(wrong))
        lines = [f"{path}, line {line}: {text}" for line, text in ordered[:MOST_SHOWN]]
        if more := len(ordered) - MOST_SHOWN:
            lines += [f"and {more} more"] if more > 0 else []
        super().__init__("\n".join(["nothing was run:", *lines]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Exception_:
    """Cells that are left out: those whose values are all among these."""

    line: int
    values: Mapping[str, frozenset[Value]]
    """Axes by field."""

    def has(self, cell: Cell) -> bool:
        """Tell whether a cell is left out."""
        return all(getattr(cell, name) in values for name, values in self.values.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What is to be run."""

    path: Path
    text: str
    title: str
    cells: tuple[Cell, ...]
    repetitions: int
    varying: tuple[str, ...]
    """Fields that have several values."""
    best: str | None = None
    """Field of which the best value alone is shown for each cell: the least median time."""
    plot: Mapping[str, str] = field(default_factory=dict)
    """Options of `switchsum sweep plot`, where the command line gives none."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """Line of each axis, by its name."""
    value_lines: Mapping[tuple[str, Value], int] = field(default_factory=dict)
    """Line of each value, by field."""

    def check(self, check: Callable[[Cell], None]) -> None:
        """Call `check` for each cell; raises SweepError with the lines of those that are impossible."""
        wrong: dict[tuple[int, str], int] = {}
        for cell in self.cells:
            try:
                check(cell)
            except Impossible as error:
                name = FIELDS.get(error.axis, error.axis)
                line = self.value_lines.get((error.axis, getattr(cell, error.axis)), self.lines.get(name, 1))
                key = line, f"{name}: {error}"
                wrong[key] = wrong.get(key, 0) + 1
        if wrong:
            of = len(self.cells)
            texts = [
                (line, text + (f" (in {count} of {of} cells; `except` leaves cells out)" if count < of else ""))
                for (line, text), count in wrong.items()
            ]
            raise SweepError(self.path, texts)


def load(path: Path) -> Sweep:
    """Read a sweep file; raises SweepError with everything that is wrong, a line for each."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise UsageError(f"{path} has more than {MOST_BYTES:,} bytes, which no sweep needs")
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"{path} cannot be read: {reason}") from error
    return _Reader(path, text).read()


class _Reader:
    """Reads one file, and collects what is wrong."""

    def __init__(self, path: Path, text: str) -> None:
        self._path, self._text = path, text
        self._wrong: list[tuple[int, str]] = []
        self._axes: dict[str, list[Value]] = {}
        """Axes by field."""
        self._lines: dict[str, int] = {}
        self._value_lines: dict[tuple[str, Value], int] = {}

    def read(self) -> Sweep:
        top = dict(self._pairs(self._root()))
        for name, node in top.items():
            if name in AXES:
                self._axis(name, node)
        repetitions = self._repetitions(top)
        title = top[TITLE].value if TITLE in top and isinstance(top[TITLE], yaml.ScalarNode) else self._path.stem
        plot, best = self._plot(top.get(PLOT)), self._best(top.get(BEST))
        exceptions = [*self._exceptions(top.get(EXCEPT))]
        cells = [] if self._wrong else [*self._cells(exceptions)]
        if not self._wrong and not cells:
            self._wrong.append((self._lines.get(EXCEPT, 1), "every cell is left out, and none remains"))
        if self._wrong:
            raise SweepError(self._path, self._wrong)
        return Sweep(
            path=self._path,
            text=self._text,
            title=title,
            cells=tuple(cells),
            repetitions=repetitions,
            varying=tuple(name for name, values in self._axes.items() if len(values) > 1),
            best=best,
            plot=plot,
            lines=self._lines,
            value_lines=self._value_lines,
        )

    def _root(self) -> Any:
        try:
            root = yaml.compose(self._text, Loader=yaml.SafeLoader)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            mark = getattr(error, "problem_mark", None)
            reason = getattr(error, "problem", None) or " ".join(str(error).split())[:200]
            raise SweepError(self._path, [(mark.line + 1 if mark else 1, f"this is no YAML: {reason}")]) from error
        if not isinstance(root, yaml.MappingNode):
            raise SweepError(self._path, [(1, "a sweep is a mapping of axes to values, such as `workers: [4, 8]`")])
        return root

    def _pairs(self, mapping: Any, known: tuple[str, ...] = KEYS, what: str = "a sweep") -> Iterator[tuple[str, Any]]:
        """Yield the keys of a mapping that there may be."""
        seen: set[str] = set()
        for key, node in mapping.value:
            name, line = str(key.value)[:100], key.start_mark.line + 1
            if name in seen:
                self._wrong.append((line, f"{name} stands there twice"))
            elif name not in known:
                near = difflib.get_close_matches(name, known, 1)
                meant = f"did you mean {near[0]}?" if near else f"{what} has {', '.join(known)}"
                self._wrong.append((line, f"unknown key {name!r}: {meant}"))
            else:
                self._lines.setdefault(name, line)
                yield name, node
            seen.add(name)

    def _axis(self, name: str, node: Any) -> None:
        axis, values = AXES[name], []
        for value, line in self._values(name, node):
            if value in values:
                self._wrong.append((line, f"{name}: the value {value} stands there twice"))
            values.append(value)
            self._value_lines[axis.field, value] = line
        if isinstance(node, yaml.SequenceNode) and not node.value:
            self._wrong.append((node.start_mark.line + 1, f"{name}: this axis is empty; it needs at least one value"))
        self._axes[axis.field] = values

    def _values(self, name: str, node: Any) -> Iterator[tuple[Value, int]]:
        """Yield the values of an axis, each with its line."""
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        for one in nodes:
            line = one.start_mark.line + 1
            if not isinstance(one, yaml.ScalarNode):
                self._wrong.append((line, f"{name}: a value or a list of values, and no list or mapping in it"))
                continue
            try:
                yield AXES[name].read(one.value.strip()), line
            except (UsageError, ValueError) as error:
                self._wrong.append((line, f"{name}: {error}"))

    def _repetitions(self, top: Mapping[str, Any]) -> int:
        node = top.get(REPETITIONS)
        if node is None:
            return 1
        if isinstance(node, yaml.ScalarNode) and node.value.isdecimal() and 1 <= int(node.value) <= 10_000:
            return int(node.value)
        self._wrong.append((node.start_mark.line + 1, f"{REPETITIONS}: a whole number from 1 to 10,000"))
        return 1

    def _plot(self, node: Any) -> dict[str, str]:
        if node is None:
            return {}
        if not isinstance(node, yaml.MappingNode):
            self._wrong.append((node.start_mark.line + 1, f"{PLOT}: a mapping such as {{x: loss, by: protocol}}"))
            return {}
        found = {}
        for name, inner in self._pairs(node, PICTURE, PLOT):
            if isinstance(inner, yaml.ScalarNode):
                found[name] = inner.value
            else:
                self._wrong.append((inner.start_mark.line + 1, f"{PLOT}: {name} is a text"))
        return found

    def _best(self, node: Any) -> str | None:
        if node is None:
            return None
        name = node.value if isinstance(node, yaml.ScalarNode) else ""
        if name in AXES and len(self._axes.get(AXES[name].field, ())) > 1:
            return AXES[name].field
        self._wrong.append((node.start_mark.line + 1, f"{BEST}: the name of an axis with several values, as in slots"))
        return None

    def _exceptions(self, node: Any) -> Iterator[Exception_]:
        if node is None:
            return
        if not isinstance(node, yaml.SequenceNode):
            self._wrong.append((node.start_mark.line + 1, f"{EXCEPT}: a list such as `- {{protocol: ring, loss: 1%}}`"))
            return
        for one in node.value:
            line = one.start_mark.line + 1
            if not isinstance(one, yaml.MappingNode) or not one.value:
                self._wrong.append((line, f"{EXCEPT}: each entry maps axes to values, as in {{protocol: ring}}"))
                continue
            values: dict[str, frozenset[Value]] = {}
            for name, inner in self._pairs(one, tuple(AXES), EXCEPT):
                found = frozenset(value for value, _ in self._values(name, inner))
                has = self._axes.get(AXES[name].field) or [getattr(Cell(), AXES[name].field)]
                for value in sorted(found - {*has}, key=str):
                    self._wrong.append((line, f"{EXCEPT}: the axis {name} has no value {value}"))
                values[AXES[name].field] = found
            yield Exception_(line=line, values=values)

    def _cells(self, exceptions: list[Exception_]) -> Iterator[Cell]:
        count = math.prod(len(values) for values in self._axes.values())
        if count > MOST_CELLS:
            self._wrong.append((1, f"these axes make {count:,} cells, and a sweep may have {MOST_CELLS:,}"))
            return
        used: set[int] = set()
        for values in itertools.product(*self._axes.values()):
            cell = Cell(**dict(zip(self._axes, values, strict=True)))  # type: ignore[arg-type]
            hits = [number for number, one in enumerate(exceptions) if one.has(cell)]
            used.update(hits)
            if not hits:
                yield cell
        for number, one in enumerate(exceptions):
            if number not in used:
                self._wrong.append((one.line, f"{EXCEPT}: no cell is like this"))

"""Run the benchmarks: `python -m checks.bench`, or one part, or some cells of its table; results add up in one file.

That file is `build/bench.json` unless `--out` names another one.  README and docs are written from the records in
`checks/bench/results/records.json`.
"""

from __future__ import annotations

import argparse
import inspect
import os
import shlex
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from checks.bench import ages
from checks.bench.choice import NARROWING, RUNS, Choice
from checks.bench.code import digests
from checks.bench.needs import missing
from checks.bench.page import publish
from checks.bench.records import RESULTS, exceeded, machine, save, show
from switchsum_protocol.errors import SwitchsumError
from switchsum_switch.notices import waiting_for

TABLE_COLUMNS = 200
"""For output into files."""
PARTS = (
    "switch",
    "programs",
    "interfaces",
    "loopback",
    "tables",
    "control",
    "kernels",
    "allreduce",
    "udp",
    "links",
    "veth",
    "loss",
    "scaling",
    "start",
    "load",
    "train",
)
_Value = TypeVar("_Value")
OUT = RESULTS.parents[3] / "build" / "bench.json"
"""Where measurements go unless --out says otherwise: not into the records that are committed."""


def listed(kind: Callable[[str], _Value]) -> Callable[[str], tuple[_Value, ...]]:
    """Return what reads values with commas between them."""
    return lambda text: tuple(kind(word) for word in text.split(","))


def options_of(part: str) -> tuple[str, ...]:
    """Return the names of the options that narrow a part down."""
    source = import_module(f"checks.bench.{part}")
    takes: tuple[str, ...] = getattr(source, "TAKES", ())
    return takes


def without_folders(arguments: list[str]) -> list[str]:
    """Return a command's arguments as records have them: which file and whose folder it was says nothing to others."""
    kept, named = [], iter(arguments)
    for argument in named:
        option, is_one, _ = argument.partition("=")
        if option not in {"--out", "--public"}:
            kept.append(argument)
            continue
        if not is_one:
            next(named, None)
        if option == "--public":
            kept += [option, "FOLDER"]
    return kept


def main() -> int:
    """Measure, print tables, write records."""
    parser = argparse.ArgumentParser(prog="python -m checks.bench", description=__doc__)
    parser.add_argument("--only", choices=PARTS)
    for name, kind in (("workers", int), ("sizes", int), ("lanes", int), ("rates", str), ("peers", str)):
        read: Callable[[str], Any] = listed(kind)
        parts = [part for part in PARTS if name in options_of(part)]
        parser.add_argument(f"--{name}", type=read, default=(), help=f"only these; of {', '.join(parts)}")
    parser.add_argument(
        "--public", type=listed(Path), default=(), metavar="FOLDER", help="compiled public programs, too"
    )
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--out", type=Path, default=OUT, metavar="FILE", help="add results to it (build/bench.json)")
    parser.add_argument("--small", action="store_true", help="a minute; fails when a kernel is slow beside a copy")
    parser.add_argument("--publish", action="store_true", help="only write the recorded figures into README and docs")
    options = parser.parse_args()
    if options.runs < 1:
        parser.error(f"--runs is at least 1, not {options.runs}")
    narrowed = [name for name in NARROWING if getattr(options, name) not in ((), RUNS)]
    if (options.small or options.publish) and (narrowed or options.only or options.out != OUT):
        parser.error(f"--{'small' if options.small else 'publish'} goes with no other option")
    if options.publish:
        publish()
        ages.mark()
        return 0
    for part in PARTS if options.only is None else (options.only,):
        if others := [f"--{name}" for name in narrowed if name not in options_of(part)]:
            only = "" if options.only else "; --only says which part is meant"
            parser.error(f"{part} does not take {' and '.join(others)}{only}")
    console = Console()
    if not console.is_terminal:
        console = Console(width=TABLE_COLUMNS)
    console.print(machine())
    if options.small:
        return small(console)
    say_what_is_older(console, options.only)
    choice = Choice(**{name: getattr(options, name) for name in NARROWING})
    command = shlex.join(["python", "-m", "checks.bench", *without_folders(sys.argv[1:])])
    lines, parts = missing(PARTS if options.only is None else (options.only,))
    for line in lines:
        console.print(line, highlight=False)
    for part in parts:
        run = import_module(f"checks.bench.{part}").run
        load_before = os.getloadavg()[0]
        try:
            with waiting_for(f"the measurements of {part}"):
                records = run(choice) if inspect.signature(run).parameters else run()
        except SwitchsumError as error:
            console.print(f"{part}: {error}", highlight=False)
            return 1
        show(console, part, records)
        save(records, command, options.out, load_before)
    if parts:
        console.print(f"written to {options.out}")
    return 0 if parts else 1


def say_what_is_older(console: Console, only: str | None) -> None:
    """Name the tables that are older than their code, where all parts are to be measured."""
    if only is None:
        older = (f"  {line}" for line in ages.lines(digests()))
        console.print("tables that are older than their code:", *older, sep="\n", highlight=False)


def small(console: Console) -> int:
    """Gate on kernels and whole calls; print how we stand beside gloo, too noisy to gate on.  Nothing is written."""
    from checks.bench import allreduce, calls, kernels

    slow: list[str] = []
    for name, part in (("kernels", kernels), ("calls", calls)):
        records = part.run()
        show(console, name, records)
        slow += exceeded(records, part.LIMITS)
    choice = Choice(workers=(2,), sizes=(4, 10_000_000), lanes=(256,), peers=("gloo",), runs=3)
    show(console, "allreduce, small", allreduce.run(choice))
    for text in slow:
        console.print(f"too slow: {text}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())

"""The output of commands: tables for people, JSON for programs; and the log of daemons."""

from __future__ import annotations

import json
import logging
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from switchsum_protocol.errors import UsageError
from switchsum_switch.process.logs import is_wanted, log_as
from switchsum_switch.process.ready import is_launched

if TYPE_CHECKING:
    from rich.table import Table

LOG_FORMAT: Final = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s"
LOG_TIME: Final = "%Y-%m-%d %H:%M:%S"
LONGEST_WORD: Final = 14
"""Longer ones, as addresses and types are, are broken where room is short."""
LEAST_WATCH_S: Final = 0.1
"""Reading slots and counters keeps the switch busy."""

NO_PROGRAM_EXIT_CODE: Final = 127
"""Exit code where there is no such program, the same as a shell's."""

MOST_WAIT_S: Final = 1e8
"""Three years; the system cannot wait for any number of seconds."""

WatchOption = Annotated[
    float | None, typer.Option("--watch", help="Show it again after this many seconds, until interrupted.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def print_json(value: Any) -> None:
    """Print a value as JSON, without colours so that it can be piped."""
    typer.echo(json.dumps(value, indent=2))


def print_records(title: str, records: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """Print records with the same keys as a JSON list, or as a table with one row for each."""
    if as_json:
        print_json([dict(record) for record in records])
        return
    from rich.console import Console

    Console().print(records_table(title, records))


def records_table(title: str, records: Sequence[Mapping[str, Any]]) -> Table | str:
    """Return a table with one row for each record; a line of text where there are none."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    if not records:
        return f"{escape(title)}: none"
    # Without lines between columns, and none narrower than its longest word, the widest of them fits 80 columns.
    table = Table(title=escape(title), title_justify="left", box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for column in records[0]:
        numeric = all(isinstance(record[column], int | float) for record in records)
        texts = column.replace("_", " "), *(str(record[column]) for record in records)
        longest = max(len(word) for text in texts for word in text.split() or [""])
        table.add_column(
            column.replace("_", " "),
            justify="right" if numeric else "left",
            overflow="fold",
            min_width=min(longest, LONGEST_WORD),
        )
    for record in records:
        table.add_row(*(escape(str(value)) for value in record.values()))
    return table


def check_seconds(option: str, seconds: float | None, least_s: float = 0.0) -> None:
    """Raise UsageError if an option that was given is no number of seconds that a command can wait."""
    if seconds is not None and not least_s <= seconds <= MOST_WAIT_S:
        raise UsageError(f"{option} takes {least_s:g} to {MOST_WAIT_S:,.0f} seconds, not {seconds:g}")


def check_program(command: Sequence[str]) -> None:
    """End as a shell does, after one line, where there is no such program for the ranks to run."""
    if shutil.which(command[0]) is None:
        remedy = ": write `python` in front of it" if Path(command[0]).suffix == ".py" else ""
        typer.echo(f"switchsum: there is no program {command[0]!r}, or it cannot be executed{remedy}", err=True)
        raise typer.Exit(NO_PROGRAM_EXIT_CODE)


def repeat(show: Callable[[], None], every_s: float | None) -> None:
    """Show something once, or again after some seconds until an interrupt or the reader of the output ends it."""
    check_seconds("--watch", every_s, LEAST_WATCH_S)
    show()
    while every_s is not None:
        time.sleep(every_s)
        if sys.stdout.isatty():
            from rich.console import Console

            Console().clear()
        show()
        sys.stdout.flush()


def log_daemon(role: str, *, verbose: bool) -> None:
    """Set up the log of a daemon: level INFO if it was started by hand, WARNING under the launcher."""
    quiet = logging.WARNING if is_launched() else logging.INFO
    logging.basicConfig(level=quiet, format=LOG_FORMAT, datefmt=LOG_TIME)
    if is_wanted():
        log_as(role)
    elif verbose:  # our logger only: numba logs megabytes while it compiles
        logging.getLogger("switchsum").setLevel(logging.DEBUG)


def greet(text: str) -> None:
    """Print where a daemon listens, if it was started by hand."""
    if not is_launched():
        typer.echo(text, err=True)

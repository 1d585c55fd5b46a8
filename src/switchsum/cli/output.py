"""How commands print: a table for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def print_json(value: Any) -> None:
    """Print a value as JSON, unstyled so that it can be piped."""
    typer.echo(json.dumps(value, indent=2))


def print_records(title: str, records: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """Print records of the same keys, as a JSON list or as a table of one row each."""
    if as_json:
        print_json([dict(record) for record in records])
        return
    table = Table(title=escape(title), title_justify="left")
    for column in records[0] if records else ():
        numeric = all(isinstance(record[column], int | float) for record in records)
        table.add_column(column.replace("_", " "), justify="right" if numeric else "left")
    for record in records:
        table.add_row(*(escape(str(value)) for value in record.values()))
    Console().print(table if records else f"{escape(title)}: none")

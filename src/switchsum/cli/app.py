"""The typer application and what every command shares."""

from __future__ import annotations

from typing import Annotated

import typer

import switchsum

app = typer.Typer(name="switchsum", help=switchsum.__doc__, no_args_is_help=True, pretty_exceptions_show_locals=False)


def print_version(wanted: bool) -> None:
    """Print the version and leave, when the option was given."""
    if wanted:
        typer.echo(f"switchsum {switchsum.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """In-network allreduce for distributed training: a P4 switch adds gradients while they pass."""


def main() -> None:
    """Run the command line; the console script's entry."""
    app()

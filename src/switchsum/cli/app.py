"""The typer application: its commands live one to a module and import what they need when they run."""

from __future__ import annotations

from typing import Annotated

import typer

import switchsum
from switchsum.cli.doctor import doctor

app = typer.Typer(name="switchsum", no_args_is_help=True, pretty_exceptions_show_locals=False)
app.command()(doctor)


def print_version(wanted: bool) -> None:
    """Print the version and leave, if the option was given."""
    if wanted:
        typer.echo(f"switchsum {switchsum.__version__}")
        raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version.")
]


@app.callback()
def switchsum_command(version: VersionOption = False) -> None:
    """In-network allreduce for distributed training: a P4 switch adds gradients while they pass."""


def main() -> None:
    """Run the command line; the console script's entry."""
    app()

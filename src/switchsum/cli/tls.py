"""`switchsum tls`: certificates for a test installation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from switchsum_protocol.errors import LocalError

Days = Annotated[int, typer.Option(min=1, max=36_500, help="Number of days that the certificates are valid.")]


def tls(
    directory: Annotated[Path, typer.Argument(help="New directory for the certificates.")], days: Days = 30
) -> None:
    """Make certificates for switch, controller and workers, for SWITCHSUM_TLS on each machine."""
    try:
        from switchsum.launch import authority
    except ImportError as error:
        raise LocalError(
            f"certificates need the package cryptography: {sys.executable} -m pip install cryptography"
        ) from error
    for role in authority.make(directory, days):
        typer.echo(f"{role}: SWITCHSUM_TLS={directory / role}")

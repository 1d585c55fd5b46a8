"""`switchsum demo` and `switchsum path`: files that come with switchsum and are no modules."""

from __future__ import annotations

import sys
from enum import StrEnum
from importlib.util import find_spec
from typing import Annotated

import typer

from switchsum_protocol.errors import LocalError


class What(StrEnum):
    """The files and folders that `switchsum path` knows."""

    MININET = "mininet"
    """The file for `mn --custom`."""
    DISSECTOR = "dissector"
    """Wireshark's plugin."""
    DEMO = "demo"
    """The training that the demo runs."""
    SKELETON = "skeleton"
    """The folder of the least protocol for `switchsum run --baseline`."""


def demo(
    arguments: Annotated[list[str] | None, typer.Argument(help="Options of the training, after --.")] = None,
    workers: Annotated[int, typer.Option("-n", "--workers", help="World size.")] = 4,
) -> None:
    """Train a small network on handwritten digits, with gradients that a P4 switch adds."""
    from switchsum.launch import local_job
    from switchsum.launch.options import RunOptions
    from switchsum.shipped import shipped

    if find_spec("sklearn") is None:
        raise LocalError(f"the demo needs scikit-learn for its digits: {sys.executable} -m pip install scikit-learn")
    command = [sys.executable, str(shipped("demo")), *(arguments or ())]
    raise typer.Exit(local_job.run(RunOptions(workers=workers, command=command, terminal=True)))


def path(what: Annotated[What, typer.Argument(help="mininet, dissector, demo or skeleton.")]) -> None:
    """Print the path of a file: sudo mn --custom $(switchsum path mininet) --switch switchsum --topo star,4."""
    from switchsum.shipped import shipped

    typer.echo(shipped(what.value))

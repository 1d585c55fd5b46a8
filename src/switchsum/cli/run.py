"""`switchsum run`: a switch, a controller and workers on this machine."""

from __future__ import annotations

import typer

from switchsum.cli.fields import takes
from switchsum.launch.options import RunOptions

RATE_MBIT = 1000.0
"""Of links of a topology by name: what matters is that they are equal."""


@takes(RunOptions)
def run(options: RunOptions) -> None:
    """Start a switch or a tree of them, a controller and N workers; end all of them when one fails."""
    from switchsum.launch import session

    planned = None
    if options.topology is not None:
        from switchsum.cli.topology import read
        from switchsum.launch import planning

        planned = planning.plan(read(options.topology, RATE_MBIT), options.workers)
    raise typer.Exit(session.run(options, planned))

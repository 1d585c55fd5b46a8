"""`switchsum run`: a switch, a controller and workers on this machine."""

from __future__ import annotations

import typer

from switchsum.cli.fields import takes
from switchsum.launch.options import Links, RunOptions


@takes(RunOptions)
def run(options: RunOptions) -> None:
    """Start a switch or trees of them, a controller and N workers; end all of them when one fails."""
    from switchsum.launch import session

    planned = None
    if options.topology is not None:
        from switchsum.cli.topology import read
        from switchsum.launch import planning

        network = read(options.topology, options.link_mbit)
        planned = planning.plan(network, options.workers, has_wires=options.link_kind is Links.VETH)
        for note in planned.notes:
            typer.echo(f"switchsum: {note}", err=True)
    raise typer.Exit(session.run(options, planned))

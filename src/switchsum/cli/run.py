"""`switchsum run`: a switch, a controller and workers on this machine."""

from __future__ import annotations

import typer

from switchsum import extensions
from switchsum.cli.fields import takes
from switchsum.cli.output import check_program
from switchsum.launch.options import RunOptions
from switchsum_protocol.rpc import check_slots


@takes(RunOptions)
def run(options: RunOptions) -> None:
    """Start a switch, a controller and N workers on this machine, and end all of them when one fails."""
    from switchsum.launch import local_job

    refuse_early(options)
    runner = options.network.runner
    if runner is not None:
        raise typer.Exit(extensions.load(extensions.RUNNERS, runner, f"--{runner}")(options))
    planned = None
    if options.topology is not None:
        from switchsum.planning import runs as planning
        from switchsum.planning.sources import read

        network = read(options.topology, options.link_mbit)
        planned = planning.plan(network, options.workers, options.link_kind)
        for note in planned.notes:
            typer.echo(f"switchsum: {note}", err=True)
    raise typer.Exit(local_job.run(options, planned))


def refuse_early(options: RunOptions) -> None:
    """Refuse before anything is started what would fail later; raises UsageError, LocalError or typer.Exit."""
    check_program(options.command)
    if options.slot_count is not None and options.baseline is None:
        from switchsum.cli.controller import load_program

        check_slots(options.slot_count, load_program(options.effective_lanes_per_frame).total_slots)
    if options.web is not None:
        from switchsum.web.server import check

        check(options.web)

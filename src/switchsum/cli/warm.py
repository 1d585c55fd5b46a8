"""`switchsum warm`: compiles everything beforehand."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from switchsum.launch.link_options import Links
from switchsum_protocol.errors import LocalError

LANE_BUILDS = (128, 2048, 256)
"""The builds of the switch's program.  The default build comes last, so that it is the newest in the cache."""


def warm(
    links: Annotated[
        list[Links] | None, typer.Option(help="Links to compile for; veth needs root or user namespaces.")
    ] = None,
    workers: Annotated[bool, typer.Option("--workers", help="Compile only the code of workers.")] = False,
) -> None:
    """Compile all code of switch and workers for this machine and user, so that later starts only load it."""
    if workers:
        _warm_workers(links or [Links.SHM])
        return
    from switchsum import p4src
    from switchsum.launch import local_job, wires
    from switchsum.launch.options import RunOptions
    from switchsum_switch.execution.pipeline import Pipeline
    from switchsum_switch.kernels.cache import CACHE_VARIABLE, refusals
    from switchsum_switch.kernels.loading import kernel_store

    if Links.VETH in (links or ()):
        wires.enter_namespace()  # which starts this command again: all links are compiled for in there
    store = kernel_store()
    if store is None:
        reasons = "; ".join(refusals())
        raise LocalError(f"no directory can keep compiled code: {reasons} (set {CACHE_VARIABLE} to one that can)")
    for lanes in LANE_BUILDS:
        Pipeline.load(p4src.load(lanes).device_config)
    command = [sys.executable, "-m", "switchsum.launch.everything"]
    for link in links or (Links.SHM, Links.UDP):
        # A long time-out: one worker compiles, and the other waits for it in the middle of a collective.
        code = local_job.run(RunOptions(workers=2, command=command, links=link, timeout_s=600))
        if code:
            raise typer.Exit(code)
    typer.echo(f"compiled code is in {store.path.parent.parent}")


def _warm_workers(links: list[Links]) -> None:
    """Compile the kernels of workers, without a link."""
    from switchsum_host.links.warm import warm_up

    for link in links:
        warm_up(f"{link}:")

"""`switchsum run`: a switch, a controller and workers on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from switchsum.cli.builds import AUTO, LanesOption, SlotsOption, read_lanes, read_slots
from switchsum.launch.options import RunOptions, read_links
from switchsum.protocol.rpc import DEFAULT_TIMEOUT_S

RATE_MBIT = 1000.0
"""Of links of a topology by name: what matters is that they are equal."""


def run(
    command: Annotated[list[str], typer.Argument(help="What every worker runs, after --.")],
    workers: Annotated[int, typer.Option("-n", "--workers", help="World size.")] = 4,
    switch: Annotated[str, typer.Option(help="embedded, bmv2 (simple_switch_grpc on PATH), or its path.")] = "embedded",
    topology: Annotated[
        str | None,
        typer.Option(help="Switches that add in a tree: leaf-spine,4,2,4 or a YAML file; else one switch."),
    ] = None,
    links: Annotated[
        str,
        typer.Option(help="shm: shared memory; udp: loopback; veth: namespaces; veth@200,veth@100: two, with Mbit/s."),
    ] = "shm",
    lanes: LanesOption = AUTO,
    slots: SlotsOption = AUTO,
    loss: Annotated[float, typer.Option(help="Probability of losing a frame, each way.")] = 0.0,
    rate: Annotated[str | None, typer.Option(help="Rate of every veth link, as for tc: 200mbit.")] = None,
    mtu: Annotated[int | None, typer.Option(help="MTU of veth links (1500, or what --lanes needs).")] = None,
    pcap: Annotated[str | None, typer.Option(help="Write every frame of the switch to this file.")] = None,
    profile: Annotated[str | None, typer.Option(help="Write a trace of switch and workers here, for Perfetto.")] = None,
    terminal: Annotated[bool, typer.Option("--terminal", help="Rank 0 keeps the terminal.")] = False,
    timeout_s: Annotated[float, typer.Option("--timeout", help="The job's time-out in seconds.")] = DEFAULT_TIMEOUT_S,
    seed: Annotated[int | None, typer.Option(help="What int16 and int8 lanes' rounding at random starts from.")] = None,
    web: Annotated[str | None, typer.Option(help="HOST:PORT at which to serve a live page and metrics.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show what switch and controller log.")] = False,
) -> None:
    """Start a switch or a tree of them, a controller and N workers; end all of them when one fails."""
    from switchsum.launch import session

    kind, link_rates = read_links(links)
    options = RunOptions(
        workers=workers,
        command=tuple(command),
        switch=switch,
        topology=topology,
        links=kind,
        link_rates=link_rates,
        lanes_per_frame=read_lanes(lanes),
        slots=read_slots(slots),
        loss=loss,
        rate=rate,
        mtu=mtu,
        pcap=pcap,
        profile=profile,
        terminal=terminal,
        timeout_s=timeout_s,
        seed=seed,
        web=web,
        verbose=verbose,
    )
    planned = None
    if topology is not None:
        from switchsum.cli.topology import read
        from switchsum.launch import planning

        planned = planning.plan(read(topology, RATE_MBIT), workers)
    raise typer.Exit(session.run(options, planned))

"""`switchsum plan`: what a step's communication takes on given machines, and what to change first."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from switchsum.cli.output import JsonOption, print_json


def plan(
    machines: Annotated[int, typer.Option(help="How many there are.")],
    rate: Annotated[str, typer.Option(help="Rate of each machine's link: 1gbit.")],
    size: Annotated[str, typer.Option("--model", help="Gradients of a step in float32: 100MB.")],
    ranks: Annotated[int, typer.Option(help="Of each machine.")] = 1,
    mtu: Annotated[int, typer.Option(help="Of the links.")] = 1500,
    switch: Annotated[bool, typer.Option("--switch", help="The network has a programmable switch.")] = False,
    lanes: Annotated[str, typer.Option(help="What sums travel as: int32, int16 or int8.")] = "int32",
    as_json: JsonOption = False,
) -> None:
    """Say what a step's communication takes at least on your machines, what bounds it, and what to change first."""
    from switchsum.planning import advice
    from switchsum.simulation.conditions import parse_rate, parse_size

    question = advice.Question(
        machines=machines,
        ranks=ranks,
        rate_bps=parse_rate(rate),
        mtu=mtu,
        has_switch=switch,
        size=parse_size(size),
        lanes=lanes,
    )
    found, says = advice.ways(question), advice.advice(question)
    if as_json:
        print_json({"question": asdict(question), "ways": [asdict(way) for way in found], "advice": says})
        return
    typer.echo("At least, by closed formulas: headers counted, delays and processors not.\n")
    for way in found:
        typer.echo(f"{1e3 * way.seconds:>10,.1f} ms  {way.name}: {way.link_bytes:,} bytes on {way.bound}")
    typer.echo("")
    for line in says:
        typer.echo(line)

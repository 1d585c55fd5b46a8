"""`switchsum plan`: what a step's communication takes on given machines, and what to change first."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from switchsum.cli.output import JsonOption, print_json


def plan(
    machines: Annotated[int, typer.Option(help="Number of machines.")],
    rate: Annotated[str, typer.Option(help="Rate of each machine's link: 1gbit.")],
    size: Annotated[str, typer.Option("--model", help="Bytes of a step's gradients in float32: 100MB.")],
    ranks: Annotated[int, typer.Option(help="Ranks on each machine.")] = 1,
    mtu: Annotated[int, typer.Option(help="MTU of the links.")] = 1500,
    switch: Annotated[bool, typer.Option("--switch", help="Assume a programmable switch in the network.")] = False,
    lanes: Annotated[str, typer.Option(help="Lanes that carry the values: int32, int16 or int8.")] = "int32",
    as_json: JsonOption = False,
) -> None:
    """Say how long a training step's communication takes at least on your machines, and what to change first."""
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
    typer.echo("Lower bounds by closed formulas: they count headers, but no delays and no processor time.\n")
    for way in found:
        typer.echo(f"{1e3 * way.seconds:>10,.1f} ms  {way.name}: {way.link_bytes:,} bytes on {way.bound}")
    typer.echo("")
    for line in says:
        typer.echo(line)

"""`switchsum topology`: check and show a topology."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from switchsum.cli.output import JsonOption, print_json
from switchsum.cli.remote import DeviceOption
from switchsum.launch.builds import AUTO, LanesOption, read_lanes
from switchsum.planning.sources import is_shape, read
from switchsum_protocol.errors import LocalError
from switchsum_switch.notices import waiting_for

if TYPE_CHECKING:
    from switchsum.topologies import Network

app = typer.Typer(name="topology", help="Check, draw and discover networks of switches.", no_args_is_help=True)

SourceArgument = Annotated[
    str, typer.Argument(help="A YAML file, or a shape: leaf-spine,4,4,2 or fat-tree,4.", metavar="FILE")
]
MbitOption = Annotated[float, typer.Option("--mbit", help="Capacity of the links of a shape in Mbit/s.")]


@app.command()
def check(source: SourceArgument, mbit: MbitOption = 1000.0, as_json: JsonOption = False) -> None:
    """Check a topology and print a line for each fault (exit code 1 if there is any)."""
    from switchsum.planning import topology

    if is_shape(source):
        network = read(source, mbit)
        found = topology.problems(network)
    else:
        network, found = topology.parse(topology.read_text(Path(source)))
    notes = [] if found else _check_jobs(network, found)
    if as_json:
        print_json(found)
    elif found:
        typer.echo("\n".join(topology.in_short(found)))
    else:
        typer.echo(
            f"{source}: {len(network.switches)} switches, {len(network.hosts)} hosts, {len(network.cables)} links, "
            f"{len(network.jobs)} jobs: nothing is wrong"
        )
        for note in notes:
            typer.echo(note)
    if found:
        raise typer.Exit(1)


def _check_jobs(network: Network, found: list[str]) -> list[str]:
    """Plan the trees of each job; add to `found` why one has none, and return what is lost of others."""
    from switchsum.planning import trees

    notes = []
    for job, members in network.jobs.items():
        if len(members) < 2:
            continue  # its switch alone adds
        try:
            with waiting_for(f"the plan of job {job}"):
                planned = trees.plan(network, members)
        except LocalError as error:
            found.append(f"job {job}: {error}")
        else:
            notes += [f"job {job}: {planned.left_out}"] if planned.left_out else []
    return notes


@app.command()
def show(source: SourceArgument, mbit: MbitOption = 1000.0, as_json: JsonOption = False) -> None:
    """Draw a topology from the top down: its switches, their links, and the free capacity of each link."""
    network = read(source, mbit)
    if as_json:
        print_json(asdict(network))
        return
    from switchsum.cli.draw import topology_text

    typer.echo(topology_text(network))


@app.command()
def discover(
    fleet: Annotated[
        Path, typer.Option(help="JSON file of the switches and the addresses of their P4Runtime servers.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the topology to this YAML file, too.")
    ] = None,
    lanes: LanesOption = AUTO,
    mbit: MbitOption = 1000.0,
    device_id: DeviceOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Find the links between switches by LLDP (exit code 1 if anything does not fit).

    No controller may run meanwhile.  A running controller finds the links itself: see `switchsum link list`.
    """
    from switchsum.cli.controller import load_program
    from switchsum_controller.switches import discovery
    from switchsum_controller.switches.neighbours import to_yaml
    from switchsum_protocol.builds import largest_build

    given = discovery.read_fleet(fleet)
    with waiting_for("LLDP frames"):
        found = discovery.discover(given, load_program(read_lanes(lanes) or largest_build(1500)), device_id=device_id)
    if output is not None:
        try:
            output.write_text(to_yaml(given, found.links, mbit), encoding="utf-8")
        except OSError as error:
            raise LocalError(f"{output} cannot be written: {error.strerror}") from error
    if as_json:
        print_json(
            {"links": [[asdict(end) for end in link.ends] for link in found.links], "faults": [*map(str, found.faults)]}
        )
    else:
        typer.echo("\n".join([*map(str, found.links), *map(str, found.faults)]) or "no links")
    if found.faults:
        raise typer.Exit(1)

"""`switchsum link`: the links between a controller's switches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from switchsum.cli.output import JsonOption, WatchOption, print_json, print_records, repeat
from switchsum.cli.remote import CONTROLLER, ControllerOption, connect_to_look
from switchsum.view.rounds import trees_of
from switchsum_protocol.errors import LocalError

if TYPE_CHECKING:
    from switchsum_protocol.clients.controller_client import ControllerClient
    from switchsum_protocol.rpc import JobInfo, LinkFault, LinkInfo

app = typer.Typer(name="link", help="Show the links between switches.", no_args_is_help=True)


@app.callback()
def link() -> None:
    """Show the links between switches."""


@app.command("list")
def list_links(
    controller: ControllerOption = CONTROLLER, watch: WatchOption = None, as_json: JsonOption = False
) -> None:
    """List the links between the switches of a controller, and what is wrong (exit code 1 if anything is)."""
    with connect_to_look(controller) as client:
        _repeat(lambda: _list(client, as_json=as_json), watch)


@app.command()
def show(
    switch: Annotated[str, typer.Argument(help="The switch at one end.")],
    far: Annotated[str, typer.Argument(help="The switch at the other end.")],
    controller: ControllerOption = CONTROLLER,
    watch: WatchOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the link between two switches: ports, the trees of jobs that use it, what is wrong (exit code 1)."""
    with connect_to_look(controller) as client:
        _repeat(lambda: _show(client, (switch, far), as_json=as_json), watch)


def _repeat(show: Callable[[], Sequence[LinkFault]], watch: float | None) -> None:
    """Show once or again and again; exit code 1 if the last time there were faults."""
    faults: Sequence[LinkFault] = ()

    def note() -> None:
        nonlocal faults
        faults = show()

    repeat(note, watch)
    if faults:
        raise typer.Exit(1)


def _list(client: ControllerClient, *, as_json: bool) -> Sequence[LinkFault]:
    found = client.links()
    _print(found.links, found.faults, as_json=as_json)
    return found.faults


def _show(client: ControllerClient, ends: tuple[str, str], *, as_json: bool) -> Sequence[LinkFault]:
    found = client.links()
    links = [one for one in found.links if {one.switch, one.far_switch} == {*ends}]
    faults = [fault for fault in found.faults if {*ends} <= {*fault.switches}]
    if not links and not faults:
        raise LocalError(f"there is no link between {ends[0]!r} and {ends[1]!r} (switchsum link list)")
    trees = [row for job in client.list_jobs().jobs for row in _trees_over(job, ends)]
    if as_json:
        print_json({"links": [asdict(one) for one in links], "trees": trees, "faults": [*map(str, faults)]})
        return faults
    _print(links, faults, as_json=False)
    print_records("trees", trees, as_json=False)
    return faults


def _trees_over(job: JobInfo, ends: tuple[str, str]) -> list[dict[str, Any]]:
    """Describe the trees of a job that use the link between two switches, and which of the two adds for the other."""
    return [
        {"job": job.job, "tree": number, "state": job.state, "above": above, "below": child}
        for number, parents in trees_of(job).items()
        for child, above in parents.items()
        if {child, above} == {*ends}
    ]


def _print(links: Sequence[LinkInfo], faults: Sequence[LinkFault], *, as_json: bool) -> None:
    if as_json:
        print_json({"links": [asdict(one) for one in links], "faults": [*map(str, faults)]})
        return
    print_records("links", [asdict(one) for one in links], as_json=False)
    for fault in faults:
        typer.echo(fault.text)

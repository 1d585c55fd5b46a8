"""`switchsum link`: the links between a controller's switches."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from switchsum.cli.output import JsonOption, WatchOption, print_json, print_records, repeat
from switchsum.cli.remote import CONTROLLER, ControllerOption, connect_to_look

if TYPE_CHECKING:
    from switchsum.native.controller_client import ControllerClient

app = typer.Typer(name="link", help="Look at the links between switches.", no_args_is_help=True)


@app.callback()
def link() -> None:
    """Look at the links between switches."""


@app.command("list")
def list_links(
    controller: ControllerOption = CONTROLLER, watch: WatchOption = None, as_json: JsonOption = False
) -> None:
    """List the links between a controller's switches, and what is wrong with them; exit code 1 if anything is."""
    with connect_to_look(controller) as client:
        found = 0

        def show() -> None:
            nonlocal found
            found = _show(client, as_json=as_json)

        repeat(show, watch)
    if found:
        raise typer.Exit(1)


def _show(client: ControllerClient, *, as_json: bool) -> int:
    links = client.links()
    if as_json:
        print_json(asdict(links))
    else:
        print_records("links", [asdict(link) for link in links.links], as_json=False)
        for fault in links.faults:
            typer.echo(fault)
    return len(links.faults)

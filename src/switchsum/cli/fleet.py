"""`switchsum fleet`: the switches of a controller."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from switchsum.cli.output import JsonOption, WatchOption, print_records, repeat
from switchsum.cli.remote import CONTROLLER, ControllerOption, connect_to_look

if TYPE_CHECKING:
    from switchsum.native.controller_client import ControllerClient

app = typer.Typer(name="fleet", help="Look at the switches of a controller.", no_args_is_help=True)


@app.callback()
def fleet() -> None:
    """Look at the switches of a controller."""


@app.command("list")
def list_switches(
    controller: ControllerOption = CONTROLLER, watch: WatchOption = None, as_json: JsonOption = False
) -> None:
    """List a controller's switches: whether each is there and has all of its entries, and what is wrong if not."""
    with connect_to_look(controller) as client:
        repeat(lambda: _show(client, as_json=as_json), watch)


def _show(client: ControllerClient, *, as_json: bool) -> None:
    records = [asdict(one) for one in client.switches().switches]
    if not as_json:
        records = [{**one, "switch": one["switch"] or "-", "trouble": one["trouble"] or "-"} for one in records]
    print_records("switches", records, as_json=as_json)

"""`switchsum switch list` and `switchsum switch show`: the switches of a controller."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from switchsum.cli.output import JsonOption, WatchOption, print_json, print_records, repeat
from switchsum.cli.remote import CONTROLLER, ControllerOption, connect_to_look
from switchsum_protocol.errors import LocalError, UsageError

if TYPE_CHECKING:
    from switchsum_protocol.clients.controller_client import ControllerClient
    from switchsum_protocol.rpc import JobInfo, LinkInfo, SwitchInfo


def list_switches(
    controller: ControllerOption = CONTROLLER, watch: WatchOption = None, as_json: JsonOption = False
) -> None:
    """List the switches of a controller: whether each answers and has all of its entries, and what is wrong."""
    with connect_to_look(controller) as client:
        repeat(lambda: _print_switches(client.switches().switches, as_json=as_json), watch)


def show_switch(
    switch: Annotated[str | None, typer.Argument(help="Name of the switch; not needed if there is only one.")] = None,
    controller: ControllerOption = CONTROLLER,
    watch: WatchOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a switch of a controller: its state, its links, and the trees of jobs that use it.

    This works even while the switch does not answer.
    """
    with connect_to_look(controller) as client:
        repeat(lambda: _show(client, switch, as_json=as_json), watch)


def _show(client: ControllerClient, name: str | None, *, as_json: bool) -> None:
    found = _find(client.switches().switches, name)
    trees = [row for job in client.list_jobs().jobs for row in trees_at(job, found.switch)]
    links = [row for link in client.links().links for row in _links_at(link, found.switch)]
    if as_json:
        print_json({**asdict(found), "trees": trees, "links": links})
        return
    _print_switches([found], as_json=False)
    shown = [
        {
            **row,
            "ranks": " ".join(map(str, row["ranks"])) or "-",
            "above": row["above"] or "-",
            "below": " ".join(row["below"]) or "-",
        }
        for row in trees
    ]
    print_records("trees", shown, as_json=False)
    print_records("links", links, as_json=False)


def _find(switches: list[SwitchInfo], name: str | None) -> SwitchInfo:
    """Return the switch of a name, or the only one; raises LocalError."""
    names = ", ".join(one.switch for one in switches)
    if name is None:
        if len(switches) != 1:
            raise UsageError(f"name one of the switches: {names}")
        return switches[0]
    for one in switches:
        if one.switch == name:
            return one
    raise LocalError(
        f"there is no switch {name!r}: {f'the switches are {names}' if names else 'the only switch has no name'}"
    )


def trees_at(job: JobInfo, name: str) -> list[dict[str, Any]]:
    """Describe the trees of a job that pass a switch: the ranks there, the switch above and those below."""
    from switchsum.view.rounds import parts_of  # a switch that starts waits for what this file imports

    rows = []
    for number, parents, switches in parts_of(job):
        ranks = [rank for rank, switch in switches.items() if switch == name] if job.window_slots else []
        below = [child for child, above in parents.items() if above == name]
        if ranks or below:
            row = {"job": job.job, "tree": number, "state": job.state, "ranks": ranks}
            rows.append({**row, "above": parents.get(name, ""), "below": below})
    return rows


def _links_at(link: LinkInfo, name: str) -> list[dict[str, Any]]:
    """Describe a link as the switch at one of its ends sees it; nothing if it has another two."""
    ends = (link.switch, link.port), (link.far_switch, link.far_port)
    return [
        {"port": port, "far_switch": far, "far_port": far_port, "in_tree": link.in_tree}
        for (switch, port), (far, far_port) in (ends, ends[::-1])
        if switch == name
    ]


def _print_switches(switches: list[SwitchInfo], *, as_json: bool) -> None:
    records = [asdict(one) for one in switches]
    if not as_json:
        records = [{**one, "switch": one["switch"] or "-", "trouble": one["trouble"] or "-"} for one in records]
    print_records("switches", records, as_json=as_json)

"""`switchsum explain`: why a job waits, in sentences, from what controller, switch and workers know of it."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from switchsum.cli.output import JsonOption, WatchOption, print_json, print_records, repeat
from switchsum.cli.remote import CONTROLLER, ControllerOption, address_of, connect
from switchsum.view import explain as view
from switchsum.view import spans
from switchsum.view.alerts import slots_taken
from switchsum.view.facts import gather
from switchsum_protocol.errors import ControllerUnreachable, SwitchLost, UnknownJob, UsageError
from switchsum_protocol.states import STALLED

if TYPE_CHECKING:
    from switchsum_protocol.clients.controller_client import ControllerClient

ControllerJob = tuple[str, str]
"""Address of a controller, and name of one of its jobs."""


def explain(
    job: Annotated[
        str | None, typer.Argument(help="Name of the job; without it, the only job, or a line for each job.")
    ] = None,
    controller: ControllerOption = CONTROLLER,
    shares: Annotated[
        bool, typer.Option("--shares", help="Also show where the time goes: by rank, and by kind of collective.")
    ] = False,
    watch: WatchOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say why a job is slow or hangs: which rank is late or waits for which, which link loses frames, what to do."""
    with ExitStack() as stack:
        clients = {address: stack.enter_context(connect(address)) for address in _addresses(controller)}
        places = _places(clients)
        here = [place for place in places if job in (None, place[1])]
        if job is not None and len(here) > 1:
            listed = ", ".join(f"--controller {address}" for address, _ in here)
            raise UsageError(f"{len(here)} controllers here have a job {job!r}: say which one, {listed}")
        if job is None and not here:
            raise UsageError("there is no job to explain: start one, or name another controller (--controller)")
        if len(here) > 1:
            repeat(lambda: _overview(clients, as_json=as_json), watch)
        else:
            address, name = here[0] if here else (next(iter(clients)), job or "")
            repeat(lambda: _explain(clients[address], name, shares=shares, as_json=as_json), watch)


def _addresses(controller: str) -> list[str]:
    """Return the controllers to ask: the given one, or all of this user on this machine."""
    from switchsum.launch.runs import controllers_here

    return [controller] if controller else controllers_here() or [address_of(controller)]


def _places(clients: dict[str, ControllerClient]) -> list[ControllerJob]:
    """Return all jobs of these controllers; one of several that ends meanwhile is left out."""
    found: list[ControllerJob] = []
    for address, client in clients.items():
        try:
            found += [(address, one.job) for one in client.list_jobs().jobs]
        except ControllerUnreachable:
            if len(clients) == 1:
                raise
    return found


def no_such_job(client: ControllerClient, job: str) -> UnknownJob:
    """Return the error of a job that is not there, with who has the switch's slots."""
    taken = slots_taken(client.list_jobs().jobs, client.info().free_slots)
    return UnknownJob(f"there is no job {job!r}, so it has no slots; {taken}")


def _explain(client: ControllerClient, job: str, *, shares: bool, as_json: bool) -> None:
    try:
        facts = gather(client, job)
    except UnknownJob as error:
        raise no_such_job(client, job) from error
    findings = view.explain(facts)
    if as_json:
        shown = {"job": job, "state": facts.job.state, "findings": [asdict(one) for one in findings]}
        print_json(shown | {"spans": spans.as_data(facts.calls)})
        return
    typer.echo(view.headline(facts))
    for one in findings:
        typer.echo(f"- {one.text}")
        for line in (one.details, one.advice, one.command and f"    {one.command}"):
            if line:
                typer.echo(f"  {line}")
    for title, rows in spans.tables(facts.calls).items() if shares else ():
        print_records(title, rows, as_json=False)


def _overview(clients: dict[str, ControllerClient], *, as_json: bool) -> None:
    """Show all jobs, a row for each; `explain NAME` says more."""
    rows: list[dict[str, Any]] = []
    for address, name in _places(clients):
        try:
            facts = gather(clients[address], name)
        except (UnknownJob, ControllerUnreachable):  # it has ended meanwhile
            continue
        except SwitchLost as error:
            known = {"state": STALLED, "ranks": 0, "what is wrong": str(error)}
        else:
            wrong = " ".join(one.text for one in view.explain(facts) if one.kind != "fine")
            known = {"state": facts.job.state, "ranks": facts.job.workers, "what is wrong": wrong or "nothing"}
        rows.append({"job": name, **known, **({"controller": address} if len(clients) > 1 else {})})
    print_records("jobs", sorted(rows, key=lambda row: str(row["job"])), as_json=as_json)

"""`switchsum explain`: why a job waits, in sentences, from what controller, switch and workers know of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from switchsum.cli.output import JsonOption, WatchOption, print_json, repeat
from switchsum.cli.remote import CONTROLLER, ControllerOption, connect_to_look
from switchsum.protocol.errors import UnknownJob, UsageError
from switchsum.view import explain as view
from switchsum.view.facts import gather

if TYPE_CHECKING:
    from switchsum.connections.controller_client import ControllerClient


def explain(
    job: Annotated[str | None, typer.Argument(help="Name of the job; not needed if there is only one.")] = None,
    controller: ControllerOption = CONTROLLER,
    watch: WatchOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say why a job is slow or hangs: which rank waits for which, which link loses frames, and what to do."""
    with connect_to_look(controller) as client:
        name = job or _only_job(client)
        repeat(lambda: _explain(client, name, as_json=as_json), watch)


def _only_job(client: ControllerClient) -> str:
    """Return the name of a controller's only job; raises UsageError where it has none or several."""
    names = [found.job for found in client.list_jobs().jobs]
    if len(names) != 1:
        raise UsageError(f"say which job: there are {', '.join(names)}" if names else "there is no job to explain")
    return names[0]


def no_such_job(client: ControllerClient, job: str) -> UnknownJob:
    """Return the error of a job that is not there, with who has the switch's slots."""
    taken = view.slots_taken(client.list_jobs().jobs, client.info().free_slots)
    return UnknownJob(f"there is no job {job!r}: it has no slots; {taken}")


def _explain(client: ControllerClient, job: str, *, as_json: bool) -> None:
    try:
        facts = gather(client, job)
    except UnknownJob as error:
        raise no_such_job(client, job) from error
    findings = view.explain(facts)
    if as_json:
        print_json({"job": job, "state": facts.job.state, "findings": [asdict(one) for one in findings]})
        return
    typer.echo(view.headline(facts))
    for one in findings:
        typer.echo(f"- {one.text}")
        if one.advice:
            typer.echo(f"  {one.advice}")

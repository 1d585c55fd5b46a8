"""`switchsum explain`: why a job waits, in sentences, from what controller, switch and workers know of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from switchsum.cli.output import JsonOption, WatchOption, print_json, repeat
from switchsum.cli.remote import CONTROLLER, ControllerOption, connect
from switchsum.protocol.errors import UnknownJob
from switchsum.view import explain as view
from switchsum.view.facts import gather

if TYPE_CHECKING:
    from switchsum.native.controller_client import ControllerClient


def explain(
    job: Annotated[str, typer.Argument(help="The job.")],
    controller: ControllerOption = CONTROLLER,
    watch: WatchOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say why a job is slow or hangs: who waits for whom, which link loses, which ranks are missing, what to do."""
    with connect(controller) as client:
        repeat(lambda: _explain(client, job, as_json=as_json), watch)


def _explain(client: ControllerClient, job: str, *, as_json: bool) -> None:
    try:
        facts = gather(client, job)
    except UnknownJob as error:
        taken = view.slots_taken(client.list_jobs().jobs, client.info().free_slots)
        raise UnknownJob(f"there is no job {job!r}: it has no slots; {taken}") from error
    findings = view.explain(facts)
    if as_json:
        print_json({"job": job, "state": facts.job.state, "findings": [asdict(one) for one in findings]})
        return
    typer.echo(view.headline(facts))
    for one in findings:
        typer.echo(f"- {one.text}")
        if one.advice:
            typer.echo(f"  {one.advice}")

"""`switchsum top`: a live view of all jobs by rank."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from switchsum.cli.output import JsonOption, print_json, print_records, records_table
from switchsum.cli.remote import CONTROLLER, ControllerOption, connect_to_look
from switchsum.protocol import rpc
from switchsum.protocol.errors import UnknownJob
from switchsum.view.ranks import Seen, rank_rows, what_it_does

if TYPE_CHECKING:
    from switchsum.native.controller_client import ControllerClient

LEAST_INTERVAL_S: Final = 0.2
"""Reports come once a second: asking the controller more often than this is of no use."""
MEGA: Final = 1e6


def top(
    job: Annotated[str | None, typer.Argument(help="Only this job.")] = None,
    interval: Annotated[float, typer.Option(help="Seconds between two looks, 0.2 at least.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look twice, print one table, and end.")] = False,
    controller: ControllerOption = CONTROLLER,
    as_json: JsonOption = False,
) -> None:
    """Show what every rank of every job does, live; --once or --json for scripts."""
    interval = max(LEAST_INTERVAL_S, interval)
    with connect_to_look(controller) as client:
        before: Seen = {}
        rows = look(client, job, before)
        if once or as_json:
            time.sleep(max(interval, 1.0))  # a report later, so that there are rates
            rows = look(client, job, before)
            if as_json:
                print_json(rows)
            else:
                print_records("ranks", [for_people(row) for row in rows], as_json=False)
            return
        _watch(client, job, before, interval)


def _watch(client: ControllerClient, job: str | None, before: Seen, interval: float) -> None:
    from rich.live import Live

    with Live(auto_refresh=False, screen=False) as live:
        while True:
            rows = look(client, job, before)
            live.update(records_table("ranks; Ctrl-C ends", [for_people(row) for row in rows]), refresh=True)
            time.sleep(interval)


def look(client: ControllerClient, only: str | None, before: Seen) -> list[dict[str, Any]]:
    """Return a record for each rank, with rates since the report that is kept in `before`; keep the new ones there."""
    jobs = client.list_jobs().jobs if only is None else [client.show_job(rpc.JobRequest(job=only))]
    rows = []
    for job in jobs:
        try:
            workers = client.workers(rpc.JobRequest(job=job.job)).workers
        except UnknownJob:  # removed since
            continue
        rows += rank_rows(job, workers, time.monotonic(), before)
    return rows


def for_people(row: Mapping[str, Any]) -> dict[str, Any]:
    """Write what a rank does as a row of a table."""
    return {
        "job": row["job"],
        "rank": row["rank"],
        "host": row["host"] or "not known yet",
        "does": what_it_does(row),
        "collective": row["collective"],
        "a second": row["collectives_per_s"],
        "MB/s": round(row["bytes_per_s"] / MEGA, 1),
        "repeats/s": row["repeats_per_s"],
    }

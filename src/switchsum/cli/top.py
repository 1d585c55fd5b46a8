"""`switchsum top`: a live view of all jobs by rank."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from switchsum.cli.output import JsonOption, print_json, print_records, records_table
from switchsum.cli.remote import CONTROLLER, ControllerOption, connect
from switchsum.protocol import reports, rpc
from switchsum.protocol.errors import UnknownJob

if TYPE_CHECKING:
    from switchsum.native.controller_client import ControllerClient

LEAST_INTERVAL_S: Final = 0.2
"""Reports come once a second: asking the controller more often than this is of no use."""
MEGA: Final = 1e6

Seen = dict[tuple[str, int], tuple[float, reports.WorkerInfo]]
"""By job and rank, when the latest report was made, in this process' monotonic seconds, and the report."""


def top(
    job: Annotated[str | None, typer.Argument(help="Only this job.")] = None,
    interval: Annotated[float, typer.Option(help="Seconds between two looks, 0.2 at least.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look twice, print one table, and end.")] = False,
    controller: ControllerOption = CONTROLLER,
    as_json: JsonOption = False,
) -> None:
    """Show what every rank of every job does, live; --once or --json for scripts."""
    interval = max(LEAST_INTERVAL_S, interval)
    with connect(controller) as client:
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
        states = {member.rank: member.state for member in job.members}
        now = time.monotonic()
        for worker in workers:
            key = job.job, worker.rank
            rates = rates_between(before.get(key), (now - worker.age_s, worker))
            if worker.age_s >= 0:
                kept = before.get(key)
                if kept is None or kept[1].frames_sent != worker.frames_sent or kept[1].begun != worker.begun:
                    before[key] = now - worker.age_s, worker
            rows.append(record(job.job, worker, states.get(worker.rank, "expected"), rates))
    return rows


def rates_between(
    before: tuple[float, reports.WorkerInfo] | None, after: tuple[float, reports.WorkerInfo]
) -> Mapping[str, float]:
    """Return collectives, bytes and repeats a second between two reports; zeros where there are not two."""
    none = {"collectives_per_s": 0.0, "bytes_per_s": 0.0, "repeats_per_s": 0.0}
    if before is None or after[1].age_s < 0 or after[0] <= before[0] or after[1].begun < before[1].begun:
        return none
    seconds, was, now = after[0] - before[0], before[1], after[1]
    return {
        "collectives_per_s": round((now.finished - was.finished) / seconds, 1),
        "bytes_per_s": round((now.bytes_sent - was.bytes_sent) / seconds, 1),
        "repeats_per_s": round((now.repeats - was.repeats) / seconds, 1),
    }


def record(job: str, worker: reports.WorkerInfo, state: str, rates: Mapping[str, float]) -> dict[str, Any]:
    """Write what a rank does, for programs."""
    return {
        "job": job,
        "rank": worker.rank,
        "state": state,
        "host": worker.host,
        "link": worker.link,
        "collective": worker.begun,
        "operation": worker.operation,
        "waiting_s": worker.waiting_s,
        "idle_s": worker.idle_s,
        "report_age_s": worker.age_s,
        **rates,
        "frames_sent": worker.frames_sent,
        "repeats": worker.repeats,
    }


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


def what_it_does(row: Mapping[str, Any]) -> str:
    """Say in a few words what a rank does."""
    if row["state"] != "admitted" or row["report_age_s"] < 0:
        return str(row["state"])
    if row["waiting_s"] >= 1:
        return f"waits {row['waiting_s']:.0f} s, {row['operation'] or 'in a collective'}"
    return f"something else for {row['idle_s']:.0f} s" if row["idle_s"] >= 1 else "collectives"

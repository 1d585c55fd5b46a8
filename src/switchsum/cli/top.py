"""`switchsum top`: a live view of all jobs by rank."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console, Group
from rich.markup import escape

from switchsum.cli.explain import no_such_job
from switchsum.cli.output import JsonOption, check_seconds, print_json, records_table
from switchsum.cli.remote import CONTROLLER, ControllerOption, connect_to_look
from switchsum.view.alerts import alerts
from switchsum.view.facts import look_at
from switchsum.view.pace import Pace
from switchsum.view.ranks import Seen, rows_of_ranks, what_it_does
from switchsum.view.words import percent

if TYPE_CHECKING:
    from switchsum_protocol.clients.controller_client import ControllerClient

LEAST_INTERVAL_S: Final = 0.2
"""Reports come once a second: asking the controller more often than this is of no use."""
MEGA: Final = 1e6


def top(
    job: Annotated[str | None, typer.Argument(help="Show only this job.")] = None,
    interval: Annotated[float, typer.Option(help="Seconds between two pictures, at least 0.2.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one table and end.")] = False,
    controller: ControllerOption = CONTROLLER,
    as_json: JsonOption = False,
) -> None:
    """Show live what every rank does and what is wrong; use --once or --json in scripts."""
    check_seconds("--interval", interval, LEAST_INTERVAL_S)
    with connect_to_look(controller) as client:
        before: Seen = {}
        pace = Pace()
        rows, wrong = look(client, job, before, pace)
        if once or as_json:
            time.sleep(max(interval, 1.0))  # a report later, so that there are rates
            rows, wrong = look(client, job, before, pace)
            if as_json:
                print_json(rows)
            else:
                Console().print(shown("ranks", rows, wrong))
            return
        _watch(client, job, before, pace, interval)


def _watch(client: ControllerClient, job: str | None, before: Seen, pace: Pace, interval: float) -> None:
    from rich.live import Live

    with Live(auto_refresh=False, screen=False) as live:
        while True:
            rows, wrong = look(client, job, before, pace)
            live.update(shown("ranks; Ctrl-C ends", rows, wrong), refresh=True)
            time.sleep(interval)


def look(
    client: ControllerClient, only: str | None, before: Seen, pace: Pace
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return a record for each rank, and sentences about what is wrong.

    Rates are those since the reports that are kept in `before`, where the new ones are kept.  Raises UnknownJob.
    """
    seen = look_at(client, switch=True, slots=pace, only=only)
    if only is not None and not seen.jobs:
        raise no_such_job(client, only)
    rows = [row for facts in seen.jobs for row in rows_of_ranks(facts, time.monotonic(), before)]
    return rows, [one.text for one in alerts(seen, only)]


def shown(title: str, rows: list[dict[str, Any]], wrong: list[str]) -> Group:
    """Return what is shown: a table, and below it what is wrong."""
    return Group(records_table(title, [for_people(row) for row in rows]), *(escape(text) for text in wrong))


def for_people(row: Mapping[str, Any]) -> dict[str, Any]:
    """Write what a rank does as a row of a table."""
    return {
        "job": row["job"],
        "rank": row["rank"],
        "host": row["host"] or "not known yet",
        "waits": percent(row["waiting_share"]),
        "does": what_it_does(row),
        "collective": row["collective"],
        "a second": row["collectives_per_s"],
        "MB/s": round(row["bytes_per_s"] / MEGA, 1),
        "lost": percent(row["lost_share"]) if row["lost_share"] else "-",
        "marked": percent(row["marked_share"]) if row["marked_share"] else "-",
    }

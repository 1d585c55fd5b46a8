"""`switchsum job`: create, show, resize and remove jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from switchsum.cli.output import JsonOption, WatchOption, check_seconds, print_json, print_records, repeat
from switchsum.cli.remote import CONTROLLER, PATIENCE_S, ControllerOption, connect, connect_to_look, persist
from switchsum.launch.builds import AUTO, SharedSlotsOption, read_shared
from switchsum.view.words import slots_text
from switchsum_protocol import member_rpc, rpc
from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import MOST_WORKERS

app = typer.Typer(name="job", help="Create, show and remove jobs.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(help="Name of the job.", metavar="JOB")]
ForceOption = Annotated[bool, typer.Option("--force", help="Do it even if the job has members, which are cut off.")]


@app.command()
def create(
    name: NameArgument,
    workers: Annotated[
        int, typer.Option("--workers", "-n", help="Number of ranks: 1 to 32 on one switch, up to 4,096 over a tree.")
    ],
    slots: SharedSlotsOption = AUTO,
    timeout_s: Annotated[
        float, typer.Option("--timeout", help="Seconds that ranks wait for one another.")
    ] = member_rpc.DEFAULT_TIMEOUT_S,
    least_quorum: Annotated[
        float,
        typer.Option(help="Share of the ranks that an operation needs to go on without the others; 1: none does."),
    ] = rpc.LEAST_QUORUM,
    wait_s: Annotated[
        float,
        typer.Option("--wait", help="Seconds to wait for controller and switch to start."),
    ] = PATIENCE_S,
    controller: ControllerOption = CONTROLLER,
    as_json: JsonOption = False,
) -> None:
    """Create a job and reserve its slots; wait for a controller and switch that are still starting."""
    check_workers(workers)
    rpc.check_timeout(timeout_s)
    rpc.check_least_quorum(least_quorum)
    check_seconds("--wait", wait_s)
    asked = read_shared(slots)
    request = rpc.CreateJobRequest(
        job=name,
        workers=workers,
        slots=asked.count,
        timeout_s=timeout_s,
        least_quorum=least_quorum,
        shares_slots=asked.is_shared,
        own_slots=asked.own,
    )
    with connect(controller) as client:
        job = persist(lambda: client.create_job(request), wait_s)
        _print_jobs([job], as_json=as_json)


@app.command("list")
def list_jobs(
    controller: ControllerOption = CONTROLLER, watch: WatchOption = None, as_json: JsonOption = False
) -> None:
    """List all jobs."""
    with connect_to_look(controller) as client:
        repeat(lambda: _print_jobs(client.list_jobs().jobs, as_json=as_json), watch)


@app.command()
def show(
    name: NameArgument,
    controller: ControllerOption = CONTROLLER,
    watch: WatchOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a job and its members."""
    with connect_to_look(controller) as client:
        repeat(lambda: _show(client.show_job(rpc.JobRequest(job=name)), as_json=as_json), watch)


def _show(job: rpc.JobInfo, *, as_json: bool) -> None:
    if as_json:
        print_json(asdict(job))
        return
    _print_jobs([job], as_json=False)
    if job.shares_slots:
        typer.echo(f"shares slots {job.first_slot} to {job.first_slot + job.slot_count - 1}; fallback: {job.fallback}")
    if job.own_slot_count:
        last = job.own_first_slot + job.own_slot_count - 1
        typer.echo(f"has slots {job.own_first_slot} to {last} for itself, and uses these first")
    for move in job.moved:
        typer.echo(f"moved: {move}")
    if job.link_rates:
        carrying = sum(rate for link, rate in enumerate(job.link_rates) if link not in job.links_down)
        links = [
            {
                "link": link,
                "state": "down" if link in job.links_down else "up",
                "rate": f"{rate:g}",
                "share": "-" if link in job.links_down else f"{rate / carrying:.0%}",
            }
            for link, rate in enumerate(job.link_rates)
        ]
        print_records(f"links of each rank of {job.job}", links, as_json=False)
    members = [
        {
            "rank": member.rank,
            "state": member.state,
            "address": ", ".join(_links(member)) or member.address or "-",
            **({"switch": member.switch or "-"} if job.tree else {}),
            "port": "-" if member.ingress_port < 0 else member.ingress_port,
            "heard_of": "-" if member.last_heartbeat_s < 0 else f"{member.last_heartbeat_s:.1f} s ago",
        }
        for member in job.members
    ]
    print_records(f"members of {job.job}", members, as_json=False)


def _links(member: rpc.MemberInfo) -> list[str]:
    if not member.switches:
        return member.links
    ends = zip(member.links, member.switches, strict=True)
    return [f"{link} of {switch}" if switch else "not known" for link, switch in ends]


@app.command()
def resize(
    name: NameArgument,
    workers: Annotated[int | None, typer.Option("--workers", "-n", help="New world size.")] = None,
    slots: Annotated[int | None, typer.Option(help="New number of slots.")] = None,
    force: ForceOption = False,
    controller: ControllerOption = CONTROLLER,
    as_json: JsonOption = False,
) -> None:
    """Change the size of a job; with --force even if it has members, which are cut off and join again."""
    request = rpc.ResizeJobRequest(job=name, workers=workers, slots=slots, force=force)
    with connect(controller) as client:
        _print_jobs([client.resize_job(request)], as_json=as_json)


@app.command()
def remove(name: NameArgument, force: ForceOption = False, controller: ControllerOption = CONTROLLER) -> None:
    """Remove a job and free its slots; with --force even if it has members, which are cut off."""
    with connect(controller) as client:
        client.remove_job(rpc.RemoveJobRequest(job=name, force=force))


def check_workers(workers: int) -> None:
    """Refuse a world size out of range, before the command waits for a controller; raises UsageError."""
    if not 1 <= workers <= MOST_WORKERS:
        raise UsageError(f"a job has 1 to {MOST_WORKERS} workers, not {workers}")


def _print_jobs(jobs: Sequence[rpc.JobInfo], *, as_json: bool) -> None:
    records = [asdict(job) for job in jobs] if as_json else [_row(job) for job in jobs]
    print_records("jobs", records, as_json=as_json)


def _row(job: rpc.JobInfo) -> Mapping[str, Any]:
    states = [member.state for member in job.members]
    return {
        "job": job.job,
        "number": job.number,
        "epoch": job.epoch,
        "state": job.state,
        "workers": job.workers,
        "members": ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)),
        "slots": slots_text(job) + " (auto)" * job.fits_slots,
        "in_flight": job.window_slots or "-",
        "lanes_per_frame": job.lanes_per_frame,
    }

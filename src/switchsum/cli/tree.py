"""`switchsum tree`: plan the aggregation trees of a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from switchsum.cli.observe import tell_away
from switchsum.cli.output import JsonOption, WatchOption, print_json, print_records, repeat
from switchsum.cli.remote import CONTROLLER, ControllerOption, connect_to_look
from switchsum.cli.topology import MbitOption, SourceArgument
from switchsum.planning.sources import read
from switchsum.view.rounds import parts_of, trees_of
from switchsum_protocol.errors import LocalError, UsageError
from switchsum_protocol.rpc import JobInfo, JobRequest
from switchsum_switch.notices import waiting_for

if TYPE_CHECKING:
    from switchsum.planning.topology import Network
    from switchsum.planning.trees import Plan
    from switchsum_protocol.clients.controller_client import ControllerClient

app = typer.Typer(name="tree", help="Plan and show the aggregation trees of jobs.", no_args_is_help=True)


@app.callback()
def tree() -> None:
    """Plan and show the aggregation trees of jobs."""


@app.command()
def plan(
    source: SourceArgument,
    hosts: Annotated[str | None, typer.Option(help="Hosts of the job, separated by commas. Default: all.")] = None,
    job: Annotated[str | None, typer.Option(help="A job of the file, instead of --hosts.")] = None,
    slots: Annotated[int, typer.Option(min=1, help="Slots of the job, which the trees share.")] = 256,
    levels: Annotated[int, typer.Option(min=1, help="Largest number of levels of switches in a tree.")] = 3,
    mbit: MbitOption = 1000.0,
    svg: Annotated[Path | None, typer.Option(help="Draw the trees into this SVG file, too.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Plan the trees of a job: their rates, their shares of the slots, and the best rate that any plan can reach."""
    network = read(source, mbit)
    from switchsum.planning import trees

    with waiting_for("the plan"):
        found = trees.plan(network, members(network, hosts, job), slots=slots, most_levels=levels)
    if svg is not None:
        from switchsum.cli.draw import plan_svg

        try:
            svg.write_text(plan_svg(network, found.trees), encoding="utf-8")
        except OSError as error:
            raise LocalError(f"{svg} cannot be written: {error.strerror}") from error
    if as_json:
        print_json(record(found))
        return
    from switchsum.cli.draw import tree_text

    typer.echo(summary(found))
    for number, one in enumerate(found.trees, 1):
        typer.echo(f"\ntree {number}: {one.rate_mbit:.6g} Mbit/s, {one.slots} of {slots} slots, levels: {one.levels}")
        typer.echo(tree_text(network, one))


@app.command("list")
def list_trees(
    controller: ControllerOption = CONTROLLER, watch: WatchOption = None, as_json: JsonOption = False
) -> None:
    """List the trees of running jobs: root, switches and ranks of each."""
    with connect_to_look(controller) as client:
        repeat(lambda: print_records("trees", _rows(client.list_jobs().jobs), as_json=as_json), watch)


def _rows(jobs: Sequence[JobInfo]) -> list[dict[str, Any]]:
    rows = []
    for job in jobs:
        # A job at a single switch has no pairs; before its members have joined it has no tree.
        for place, parents, ranks in parts_of(job) if trees_of(job) or job.window_slots else []:
            switches = {*parents, *parents.values()} or {*ranks.values()}
            root = next(name for name in switches if name not in parents)
            rows.append(
                {
                    "job": job.job,
                    "tree": place,
                    "root": root or "-",
                    "switches": len(switches),
                    "ranks": len(job.members),
                    "state": job.state,
                }
            )
    return rows


@app.command()
def show(
    job: Annotated[str, typer.Argument(help="Name of a running job.", metavar="JOB")],
    controller: ControllerOption = CONTROLLER,
    watch: WatchOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw the tree of a running job: the ranks at each switch, and how many contributions the switch took."""
    with connect_to_look(controller) as client:
        repeat(lambda: _show(client, job, as_json=as_json), watch)


def _show(client: ControllerClient, job: str, *, as_json: bool) -> None:
    found = client.show_job(JobRequest(job=job))
    counted = client.statistics()
    tell_away(counted.away)
    contributions = {one.switch: one.contributions for one in counted.switches}
    if as_json:
        ranks = {member.rank: member.switches or member.switch for member in found.members}
        print_json({"tree": found.tree, "ranks": ranks, "contributions": contributions, "moved": found.moved})
        return
    if not found.window_slots:
        raise UsageError(
            f"job {job!r} has no tree yet, because not all of its members have joined: its state is {found.state}"
        )
    from switchsum.cli.draw import job_text

    typer.echo(job_text(found, contributions))
    for text in found.moved:
        typer.echo(f"moved: {text}")


def members(network: Network, hosts: str | None, job: str | None) -> tuple[str, ...]:
    """Return the hosts of the job; raises UsageError."""
    if hosts is not None and job is not None:
        raise UsageError("give either --hosts or --job, not both")
    if job is not None:
        if job not in network.jobs:
            raise UsageError(f"the topology has no job {job}: its jobs are {', '.join(network.jobs) or 'none'}")
        return network.jobs[job]
    return network.hosts if hosts is None else tuple(host.strip() for host in hosts.split(",") if host.strip())


def record(found: Plan) -> dict[str, Any]:
    """Write a plan for programs."""
    return {
        "rate_mbit": found.rate_mbit,
        "bound_mbit": found.bound.mbit,
        "bound_by": found.bound.by,
        "packed_mbit": found.packed_mbit,
        "packed_trees": found.packed_trees,
        "best_single_mbit": found.best_single_mbit,
        "hosts_alone_mbit": found.hosts_alone_mbit,
        "left_out": found.left_out,
        "trees": [asdict(tree) for tree in found.trees],
    }


def summary(found: Plan) -> str:
    """Write the rates of a plan, for people."""
    part = 100 * found.rate_mbit / found.bound.mbit
    return (
        f"rate of the plan      {found.rate_mbit:.6g} Mbit/s, trees: {len(found.trees)}\n"
        f"bound                 {found.bound.mbit:.6g} Mbit/s by {found.bound.by}; the plan reaches {part:.4g} %\n"
        f"most that was packed  {found.packed_mbit:.6g} Mbit/s, trees: {found.packed_trees}\n"
        f"best single tree      {found.best_single_mbit:.6g} Mbit/s\n"
        f"hosts alone, at most  {found.hosts_alone_mbit:.6g} Mbit/s" + (f"\n{found.left_out}" if found.left_out else "")
    )

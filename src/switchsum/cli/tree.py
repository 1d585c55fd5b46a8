"""`switchsum tree`: plan the aggregation trees of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    from switchsum.planning.trees import Plan
    from switchsum.topologies import Network
    from switchsum_protocol.clients.controller_client import ControllerClient

app = typer.Typer(name="tree", help="Plan and show the aggregation trees of jobs.", no_args_is_help=True)


@app.callback()
def tree() -> None:
    """Plan and show the aggregation trees of jobs."""


@app.command()
def plan(
    source: SourceArgument,
    hosts: Annotated[str | None, typer.Option(help="Hosts of the job, separated by commas. Default: all.")] = None,
    job: Annotated[
        list[str] | None,
        typer.Option(help="A job of the file, instead of --hosts. Give several if they run at the same time."),
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="Number of jobs that run at the same time. They take the hosts in turn.")
    ] = 1,
    slots: Annotated[int, typer.Option(min=1, help="Slots of the job, which the trees share.")] = 256,
    levels: Annotated[int, typer.Option(min=1, help="Largest number of levels of switches in a tree.")] = 3,
    mbit: MbitOption = 1000.0,
    svg: Annotated[Path | None, typer.Option(help="Draw the trees into this SVG file, too.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Plan the trees of a job: their rates, their shares of the slots, and the best rate that any plan can reach.

    Trees of several jobs are spread over links and roots.
    """
    network = read(source, mbit)
    from switchsum.planning import trees

    wanted = members(network, hosts, job or [], jobs)
    with waiting_for("the plan"):
        plans = trees.plan_jobs(network, list(wanted.values()), slots=slots, most_levels=levels)
    if svg is not None:
        from switchsum.cli.draw import plan_svg

        try:
            svg.write_text(plan_svg(network, [tree for one in plans for tree in one.trees]), encoding="utf-8")
        except OSError as error:
            raise LocalError(f"{svg} cannot be written: {error.strerror}") from error
    if len(plans) > 1:
        _show_together(network, wanted, plans, slots, as_json=as_json)
    elif as_json:
        print_json(record(plans[0]))
    else:
        typer.echo(summary(plans[0]))
        _show_trees(network, plans[0], slots)


def _show_together(
    network: Network, wanted: Mapping[str, Sequence[str]], plans: Sequence[Plan], slots: int, *, as_json: bool
) -> None:
    """Show the plans of several jobs, with the rate of each while all of them run."""
    from switchsum.planning.loads import Loads, free_mbit, wanted_mbit

    if as_json:
        found = [
            {"job": name, "rate_mbit": one.rate_mbit, "trees": [asdict(tree) for tree in one.trees]}
            for name, one in zip(wanted, plans, strict=True)
        ]
        print_json({"jobs": found})
        return
    placed = [(wanted_mbit(network, hosts), one.trees) for hosts, one in zip(wanted.values(), plans, strict=True)]
    free = free_mbit(network)
    trunks = {pair: rates for pair, rates in Loads.of(placed).links.items() if pair <= {*network.switches}}
    for name, one in zip(wanted, plans, strict=True):
        typer.echo(f"job {name}: {one.rate_mbit:.6g} Mbit/s while all jobs run, trees: {len(one.trees)}")
    if trunks:
        most = max(trunks, key=lambda pair: (sum(trunks[pair]) / free[pair], *sorted(pair, reverse=True)))
        names, jobs = " to ".join(sorted(most)), len(trunks[most])
        typer.echo(
            f"busiest link between switches: {names}, {jobs} {'job' if jobs == 1 else 'jobs'}, which could send "
            f"{sum(trunks[most]):.6g} Mbit/s over its {free[most]:.6g}"
        )
    for name, one in zip(wanted, plans, strict=True):
        typer.echo(f"\njob {name}")
        _show_trees(network, one, slots)


def _show_trees(network: Network, found: Plan, slots: int) -> None:
    from switchsum.cli.draw import tree_text

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
        moved = [*map(str, found.moved)]
        print_json({"tree": found.tree, "ranks": ranks, "contributions": contributions, "moved": moved})
        return
    if not found.window_slots:
        raise UsageError(
            f"job {job!r} has no tree yet, because not all of its members have joined: its state is {found.state}"
        )
    from switchsum.cli.draw import job_text

    typer.echo(job_text(found, contributions))
    for move in found.moved:
        typer.echo(f"moved: {move}")


def members(network: Network, hosts: str | None, named: Sequence[str], jobs: int = 1) -> dict[str, tuple[str, ...]]:
    """Return the hosts of each job, by its name or number; raises UsageError."""
    if hosts is not None and named:
        raise UsageError("give either --hosts or --job, not both")
    if named and jobs > 1:
        raise UsageError("give either --job, for each job of the file, or --jobs, not both")
    for job in named:
        if job not in network.jobs:
            raise UsageError(f"the topology has no job {job}: its jobs are {', '.join(network.jobs) or 'none'}")
    if named:
        return {job: network.jobs[job] for job in named}
    chosen = network.hosts if hosts is None else tuple(host.strip() for host in hosts.split(",") if host.strip())
    if len(chosen) < 2 * jobs > 2:
        raise UsageError(f"{len(chosen)} hosts are too few for {jobs} jobs: each has two at least")
    return {str(number + 1): chosen[number::jobs] for number in range(jobs)}


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

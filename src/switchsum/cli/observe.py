"""Commands that read the switch through the controller (slots, stats, ports), and the drop simulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from switchsum.cli.output import JsonOption, WatchOption, print_records, repeat
from switchsum.cli.remote import CONTROLLER, ControllerOption, connect, connect_to_look
from switchsum.view.facts import away_text
from switchsum.view.losses import split_repeated
from switchsum.view.rounds import ranks_of, switches_in
from switchsum.view.words import runs
from switchsum_protocol import rpc
from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import NO_BLOCK, Flag, Reason
from switchsum_protocol.states import LIVE

if TYPE_CHECKING:
    from switchsum_protocol.clients.controller_client import ControllerClient


REPEATED: Final = Reason.REPEATED.name.lower()


def slots(
    job: Annotated[str | None, typer.Argument(help="Show only this job's slots.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many slots.")] = 64,
    controller: ControllerOption = CONTROLLER,
    watch: WatchOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read the switch's slots: round, contributors and flags of both versions of each slot."""
    with connect_to_look(controller) as client:
        repeat(lambda: _show_slots(client, job, limit, as_json=as_json), watch)


def _show_slots(client: ControllerClient, job: str | None, limit: int, *, as_json: bool) -> None:
    answer = client.slots(rpc.SlotsRequest(job=job, limit=limit))
    found = answer.slots
    tell_away(answer.away)
    jobs = {one.job: one for one in client.list_jobs().jobs} if any(cell.switch for cell in found) else {}
    rows = [
        {
            **({"switch": cell.switch} if cell.switch else {}),
            "slot": cell.slot,
            "version": cell.version,
            "job": cell.job,
            "number": cell.number,
            "contributed": contributors(cell, jobs.get(cell.job)),
            "flags": flag_names(cell.flags) or "-",
            "block": block(cell, cell.block),
            "next": block(cell, cell.next_block),
        }
        for cell in found
        if cell.seen
    ]
    if as_json:
        print_records("slots", [asdict(cell) for cell in found], as_json=True)
        return
    print_records("slots", rows, as_json=False)
    if unused := len({cell.slot for cell in found} - {cell.slot for cell in found if cell.seen}):
        typer.echo(f"{unused} {'slot was' if unused == 1 else 'slots were'} never used")


def stats(
    everything: Annotated[bool, typer.Option("--all", help="Show counters that are 0, too.")] = False,
    ranks_only: Annotated[bool, typer.Option("--ranks", help="Show only the ranks, a row for each.")] = False,
    controller: ControllerOption = CONTROLLER,
    watch: WatchOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read the switch's counters, for each reason and for each rank."""
    with connect_to_look(controller) as client:
        repeat(lambda: _show_stats(client, everything=everything, ranks_only=ranks_only, as_json=as_json), watch)


def _show_stats(client: ControllerClient, *, everything: bool, ranks_only: bool, as_json: bool) -> None:
    found = client.statistics()
    tell_away(found.away)
    if not ranks_only:
        shown = [asdict(counter) for counter in found.counters if counter.packets or everything or as_json]
        print_records("counters", shown, as_json=as_json)
        repeated = next((one.packets for one in found.counters if one.reason == REPEATED), 0)
        if repeated and not as_json:
            workers = [
                one
                for job in client.list_jobs().jobs
                if job.state in LIVE
                for one in client.workers(rpc.JobRequest(job=job.job)).workers
            ]
            again, lost = split_repeated(repeated, workers)
            typer.echo(f"repeated: {again:,} asked again although nothing was lost, {lost:,} results lost on their way")
    if ranks_only or (found.members and not as_json):
        members = [rank_record(member) if as_json else rank_row(member) for member in found.members]
        print_records("ranks", members, as_json=as_json)


def tell_away(switches: Sequence[str]) -> None:
    """Say on standard error which switches of several are missing in what is printed."""
    if switches:
        typer.echo(f"switchsum: {away_text(switches)}: what follows is without that", err=True)


def ports(controller: ControllerOption = CONTROLLER, watch: WatchOption = None, as_json: JsonOption = False) -> None:
    """List the switch's ports: the members behind each, and its simulated loss."""
    with connect_to_look(controller) as client:
        repeat(lambda: _print_ports(client.ports(), as_json=as_json), watch)


def drop_probability(
    probability: Annotated[
        float | None, typer.Argument(help="Probability from 0 to 1, on arrival and again on departure.")
    ] = None,
    ingress: Annotated[float | None, typer.Option(help="Probability on arrival, instead of the argument.")] = None,
    egress: Annotated[float | None, typer.Option(help="Probability on departure, instead of the argument.")] = None,
    port: Annotated[
        int | None, typer.Option(help="Set it for this port only. Default: every port that has members.")
    ] = None,
    controller: ControllerOption = CONTROLLER,
    as_json: JsonOption = False,
) -> None:
    """Let the switch lose frames at random."""
    if probability is None and ingress is None and egress is None:
        raise UsageError("the probability is missing: switchsum drop-probability 0.01")
    both = probability or 0.0
    request = rpc.LossRequest(
        port=port, ingress=both if ingress is None else ingress, egress=both if egress is None else egress
    )
    with connect(controller) as client:
        _print_ports(client.set_loss(request), as_json=as_json)


def contributors(cell: rpc.SlotInfo, job: rpc.JobInfo | None = None) -> str:
    """Return who has contributed to a cell: ranks, with runs as `0-3`, and of a job over a tree switches below."""
    if job is None:
        return runs([rank for rank in range(cell.seen.bit_length()) if cell.seen >> rank & 1])
    below = switches_in(job, cell)
    switches = [f"{below} {'switch' if below == 1 else 'switches'} below"] if below else []
    return ", ".join([text for text in (runs(ranks_of(job, cell)),) if text] + switches)


def block(cell: rpc.SlotInfo, index: int) -> str:
    """Return a block of a cell as text; `-` if there is none."""
    return str(index) if cell.seen and index != NO_BLOCK else "-"


def rank_record(member: rpc.MemberCounters) -> dict[str, Any]:
    """Write what a member has sent, for programs."""
    return asdict(member) | {"reasons": {count.reason: count.packets for count in member.reasons}}


def rank_row(member: rpc.MemberCounters) -> dict[str, Any]:
    """Write what a member has sent, for people."""
    reasons = [f"{count.packets} {count.reason.replace('_', ' ')}" for count in member.reasons if count.packets]
    return {
        "job": member.job,
        "rank": member.rank,
        "contributions": member.contributions,
        "bytes": member.contribution_bytes,
        "results": member.results,
        "what became of the contributions": ", ".join(reasons) or "-",
    }


def percent(probability: float) -> str:
    """Return a probability as a percentage, with six digits, so that a small one is not shown as 0."""
    return f"{100 * probability:.6g} %"


def flag_names(flags: int) -> str:
    """Return the names of the flags that are set."""
    return " ".join((flag.name or "").lower() for flag in Flag if flags & flag)


def _print_ports(found: rpc.PortList, *, as_json: bool) -> None:
    records: list[dict[str, Any]] = [asdict(port) for port in found.ports]
    if found.ingress_loss or found.egress_loss:
        losses = {"ingress_loss": found.ingress_loss, "egress_loss": found.egress_loss}
        records.append({"port": None, "members": [], **losses})
    if not as_json:
        records = [
            {
                "port": "all with members" if record["port"] is None else str(record["port"]),
                "members": ", ".join(record["members"]) or "-",
                "ingress loss": percent(record["ingress_loss"]),
                "egress loss": percent(record["egress_loss"]),
            }
            for record in records
        ]
    print_records("ports", records, as_json=as_json)

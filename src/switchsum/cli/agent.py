"""`switchsum agent`: this machine's part of a job whose switch is elsewhere."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from switchsum.cli.output import JsonOption, check_program, print_json
from switchsum.cli.remote import CONTROLLER, ControllerOption, address_of

if TYPE_CHECKING:
    from switchsum.agent.options import AgentOptions
    from switchsum.agent.trial import Trial


def agent(
    job: Annotated[str, typer.Option(envvar="SWITCHSUM_JOB", help="Name of the job that `switchsum job create` made.")],
    rank: Annotated[str, typer.Option(envvar="RANK", help="Ranks that run here: 1, 0-3 or 0,4-7.")],
    command: Annotated[
        list[str] | None, typer.Argument(help="The command that each rank runs, after --; without it, a trial.")
    ] = None,
    interface: Annotated[
        str | None, typer.Option("--interface", "-i", help="Interface towards the switch; needs CAP_NET_RAW.")
    ] = None,
    udp: Annotated[
        str | None,
        typer.Option(metavar="HOST[:PORT]", help="Host of a switch that runs with --udp; needs no privilege."),
    ] = None,
    link: Annotated[
        str | None, typer.Option(help="Any link that connect() takes, such as shm:NAME. Default: SWITCHSUM_LINK.")
    ] = None,
    size_mb: Annotated[
        float, typer.Option("--size", help="Trial: megabytes of each array, the same on all ranks.")
    ] = 4.0,
    allreduces: Annotated[
        int, typer.Option("--count", help="Trial: number of allreduces, the same on all ranks.")
    ] = 10,
    controller: ControllerOption = CONTROLLER,
    as_json: JsonOption = False,
) -> None:
    """Run ranks of a job on this machine, with the switch on another.

    The command after -- runs once for each rank, with the environment that switchsum.connect() reads. Without a
    command, the ranks try the job out: they add arrays whose sum is known, check each sum, and print rates and repeats.

    Without --interface, --udp and --link, the ranks reach the switch over UDP at the controller's host.
    """
    from switchsum.agent.options import AgentOptions, check_trial, choose_link, read_ranks
    from switchsum.agent.run import run

    ranks = read_ranks(rank)
    controller = address_of(controller)
    options = AgentOptions(
        controller=controller, job=job, ranks=ranks, link=choose_link(interface, udp, link, controller)
    )
    if command:
        check_program(command)
        raise typer.Exit(run(options, command))
    check_trial(size_mb, allreduces)
    if len(ranks) > 1:
        raise typer.Exit(_try_each(options, size_mb, allreduces, as_json=as_json))
    _try(options, size_mb, allreduces, as_json=as_json)


def _try_each(options: AgentOptions, size_mb: float, allreduces: int, *, as_json: bool) -> int:
    """Try the job out as several ranks, each in a process of its own."""
    from switchsum.agent.run import examine, run_each
    from switchsum_switch.process.children import OURSELVES

    job = examine(options)
    own = [*OURSELVES, "agent", "--size", str(size_mb), "--count", str(allreduces)]
    own += ["--json"] if as_json else []
    return run_each(options, {rank: [*own, "--rank", str(rank)] for rank in options.ranks}, job.workers)


def _try(options: AgentOptions, size_mb: float, allreduces: int, *, as_json: bool) -> None:
    """Try the job out as one rank."""
    from switchsum.agent import trial
    from switchsum.agent.run import examine

    [rank], workers = options.ranks, examine(options).workers

    def say(text: str) -> None:
        if not as_json:
            typer.echo(text)

    say(f"rank {rank} of {workers} of job {options.job!r}, link {options.link}: waiting for the other ranks")
    seen = trial.run(
        options, workers, megabytes=size_mb, allreduces=allreduces, joined=lambda: say("all ranks have joined")
    )
    if as_json:
        print_json(asdict(seen))
        return
    _print_trial(seen)


def _print_trial(seen: Trial) -> None:
    from switchsum.agent.trial import LOSSY

    typer.echo(f"round trip   {seen.round_trip_ms:.2f} ms")
    typer.echo(f"allreduce    {seen.allreduces} x {seen.megabytes:g} MB, {seen.rate_mb_s:.1f} MB/s, every sum is right")
    typer.echo(
        f"frames       {seen.frames_sent:,} sent, {seen.frames_received:,} received, {seen.repeats:,} sent again"
    )
    if seen.repeats > LOSSY * seen.frames_sent:
        typer.echo("many repeats: see `switchsum stats` for the frames that the switch received")

"""`switchsum conform`: the rules of a slot, played against any switch."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Final

import typer

from switchsum.cli.output import JsonOption, check_seconds, print_json
from switchsum.cli.remote import CONTROLLER, ControllerOption, address_of
from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import MAX_WORKERS
from switchsum_switch.notices import waiting_for

LEAST_WAIT_S: Final = 0.01


def conform(
    target: Annotated[
        str, typer.Option(help="udp:HOST[:PORT] or packet:INTERFACE; with commas between them, one for each member.")
    ],
    facts: Annotated[
        Path | None, typer.Option(help="Job, slots and members of a switch that has no controller: JSON or YAML.")
    ] = None,
    members: Annotated[int, typer.Option(min=2, max=MAX_WORKERS, help="Members of the job, with a controller.")] = 3,
    rule: Annotated[list[str] | None, typer.Option(help="Play the cases of this rule alone.")] = None,
    wait_s: Annotated[float, typer.Option("--wait", help="Seconds that an answer may take.")] = 1.0,
    every: Annotated[bool, typer.Option("--all", help="Show every case that fails, not one for each rule.")] = False,
    rules: Annotated[bool, typer.Option("--rules", help="List the rules, and play nothing.")] = False,
    controller: ControllerOption = CONTROLLER,
    as_json: JsonOption = False,
) -> None:
    """Play all rules of a slot against a switch; say which it breaks, with the frames; exit code 1 if any.

    The switch may be ours, another program, another architecture or a card. Its job comes from a controller of
    switchsum, or is described in a file of facts.
    """
    from switchsum_lab.conform.rules import RULES

    if rules:
        for name, text in RULES.items():
            typer.echo(f"{name:<14}{text}")
        return
    check_seconds("--wait", wait_s, LEAST_WAIT_S)
    from switchsum_lab.conform.facts import read_facts
    from switchsum_lab.conform.foreign import job_of
    from switchsum_lab.conform.member import job_on
    from switchsum_lab.conform.report import as_json as for_programs
    from switchsum_lab.conform.report import lines, summary
    from switchsum_lab.conform.run import chosen, run

    links = [link.strip() for link in target.split(",")]
    if any(link.partition(":")[0] not in ("udp", "packet") or not link.partition(":")[2] for link in links):
        raise UsageError(f"a target is udp:HOST[:PORT] or packet:INTERFACE, not {target!r}")
    chosen(rule or ())
    with ExitStack() as opened:
        if facts is None:
            job = job_on(address_of(controller), links, members, wait_s=wait_s)
        else:
            job = job_of(read_facts(facts), links, wait_s=wait_s)
        switch, known = opened.enter_context(job)
        if not switch.has_probes:
            typer.echo(
                f"{target} rejects no contribution to a slot of others: each frame is given time instead", err=True
            )
        with waiting_for(f"the cases on {target}"):
            outcome = run(switch, known, rules=rule or (), on_case=_progress)
    if as_json:
        print_json(for_programs(outcome, target))
    else:
        for line in lines(outcome, every=every):
            typer.echo(line)
        typer.echo(summary(outcome, target))
    if known.fresh and outcome.broken["row 4"]:
        typer.echo("were the cells used before? restart the switch, or leave `fresh` out of the facts", err=True)
    if not outcome.is_right:
        raise typer.Exit(1)


def _progress(done: int, of: int) -> None:
    """Show on a terminal how far the cases are."""
    if sys.stderr.isatty():
        end = "\n" if done == of else ""
        typer.echo(f"\r{done} of {of} cases{end}", err=True, nl=False)

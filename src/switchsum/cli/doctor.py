"""`switchsum doctor`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from switchsum.cli.output import JsonOption, print_json
from switchsum.doctor import Finding, Verdict, examine
from switchsum_switch.notices import waiting_for

STYLES = {Verdict.OK: "green", Verdict.LIMITED: "yellow", Verdict.MISSING: "yellow"}


def doctor(as_json: JsonOption = False) -> None:
    """Say what works on this machine and what is missing, with the command that installs it.

    The exit code is 1 if switchsum cannot run without a missing part.
    """
    with waiting_for("the checks of this machine"):
        findings = examine()
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        print_findings(findings)
    if any(finding.essential and finding.state is not Verdict.OK for finding in findings):
        raise typer.Exit(1)


def print_findings(findings: Sequence[Finding]) -> None:
    """Print a table, and below it the commands, without line breaks so that they can be copied."""
    console = Console()
    table = Table("check", "state", "found", "needed for", title="switchsum doctor", title_justify="left")
    for finding in findings:
        fatal = finding.essential and finding.state is not Verdict.OK
        style = "red" if fatal else STYLES[finding.state]
        table.add_row(finding.name, f"[{style}]{finding.state}[/]", escape(finding.found), escape(finding.purpose))
    console.print(table)
    for finding in findings:
        if finding.remedy:
            console.print(f"\n[bold]{finding.name}[/] ({escape(finding.purpose)}):")
            console.print(f"  {finding.remedy}", markup=False, highlight=False, soft_wrap=True)

"""docs/cli.md and docs/controller.md say what the code says."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
import typer.main
from rich.console import Console

from switchsum.cli.app import application
from switchsum.cli.output import records_table
from switchsum_controller.jobs.machines import (
    INCARNATION_TRANSITIONS,
    MEMBER_TRANSITIONS,
    IncarnationEvent,
    MemberEvent,
)
from switchsum_protocol.states import JobState, MemberState

DOCS = Path(__file__).parent.parent / "docs"


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield every command below one, with its full name; their classes are click's, which typer may bring along."""
    below = getattr(command, "commands", {})
    if not below or command.invoke_without_command:
        yield name, command
    for word, child in below.items():
        yield from commands(child, f"{name} {word}")


def test_every_command_is_on_the_page_and_explains_its_options() -> None:
    page = (DOCS / "cli.md").read_text()
    found = dict(commands(typer.main.get_command(application()), "switchsum"))
    assert "switchsum job create" in found
    for name, command in found.items():
        assert name in page
        assert command.help, name
        for parameter in command.params:
            is_option = any(one.startswith("-") for one in parameter.opts)
            assert not is_option or getattr(parameter, "help", None), (name, parameter.opts)


def test_what_shows_the_controllers_state_can_be_watched_and_read_by_programs() -> None:
    found = dict(commands(typer.main.get_command(application()), "switchsum"))
    shows = (
        "job list",
        "job show",
        "tree list",
        "tree show",
        "link list",
        "link show",
        "switch list",
        "switch show",
        "slots",
        "stats",
        "ports",
        "explain",
    )
    for name in shows:
        options = {option for parameter in found[f"switchsum {name}"].params for option in parameter.opts}
        assert {"--watch", "--json", "--controller"} <= options, name
    # What else can be printed as JSON either changes something or shows what does not change; `top` is live itself.
    others = {
        name.removeprefix("switchsum ")
        for name, command in found.items()
        if {"--json", "--controller"} <= {option for parameter in command.params for option in parameter.opts}
    }
    assert others - {*shows} == {"agent", "conform", "job create", "job resize", "drop-probability", "top"}


def rows(page: str, first: str) -> Iterator[list[str]]:
    """Yield the cells of the table whose header starts with these."""
    lines = page.splitlines()
    start = lines.index(first)
    for line in lines[start:]:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.parametrize(
    ("states", "events", "transitions"),
    [
        (MemberState, MemberEvent, MEMBER_TRANSITIONS),
        (JobState, IncarnationEvent, INCARNATION_TRANSITIONS),
    ],
)
def test_state_machines_are_drawn_as_they_are(
    states: type[StrEnum], events: type[StrEnum], transitions: dict[tuple[StrEnum, StrEnum], StrEnum]
) -> None:
    header = f"| state | {' | '.join(events)} |"
    _, _, *body = rows((DOCS / "controller.md").read_text(), header)
    drawn = {
        (state, event): target
        for state, *targets in body
        for event, target in zip(events, targets, strict=True)
        if target
    }
    assert [row[0] for row in body] == list(states)
    assert drawn == transitions


def test_a_table_of_jobs_cuts_no_word_in_a_terminal_of_80_columns() -> None:
    job = {
        "job": "digits", "number": 1, "epoch": 27193, "state": "waiting", "workers": 2, "members": "2 expected",
        "slots": "0 to 255 (auto)", "in_flight": "-", "lanes_per_frame": 256,
    }  # fmt: skip
    console = Console(width=80)
    with console.capture() as shown:
        console.print(records_table("jobs", [job]))
    assert {"digits", "waiting", "expected", "workers", "members", "(auto)"} <= set(shown.get().split())

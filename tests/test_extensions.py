"""Commands and runners of other distributions: found by their entry points, named where they are missing."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints

import pytest
from typer.testing import CliRunner

from switchsum import extensions
from switchsum.cli.app import COMMANDS, ELSEWHERE, application
from switchsum_protocol.errors import UsageError

LABORATORY = "not installed: pip install ./lab"


def have(monkeypatch: pytest.MonkeyPatch, *entries: EntryPoint) -> None:
    """Have these entry points alone be installed."""
    found = EntryPoints(entries)
    monkeypatch.setattr("importlib.metadata.entry_points", found.select)  # imported where it is asked


def test_the_laboratory_brings_its_commands_and_runners() -> None:
    elsewhere = {name for name, where in COMMANDS.items() if where == ELSEWHERE}
    assert elsewhere == set(extensions.names(extensions.COMMANDS))
    assert elsewhere == {"simulate", "sweep", "plan", "conform", "compare"}
    assert set(extensions.names(extensions.RUNNERS)) == {"baseline", "virtual-time"}
    for name in extensions.names(extensions.RUNNERS):
        assert callable(extensions.load(extensions.RUNNERS, name, f"--{name}"))


@pytest.mark.parametrize("command", ["simulate", "sweep", "plan", "conform", "compare"])
def test_without_the_laboratory_a_command_of_it_says_where_it_is(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch)
    with pytest.raises(UsageError, match=LABORATORY):
        application(command)


@pytest.mark.parametrize("options", [["--virtual-time"], ["--baseline", "ring", "--virtual-time"]])
def test_without_the_laboratory_run_says_so_before_anything_starts(
    options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    have(monkeypatch)
    done = CliRunner().invoke(application("run"), ["run", "-n", "2", *options, "--", "python", "-c", "pass"])
    assert isinstance(done.exception, UsageError)
    assert LABORATORY in str(done.exception)


def test_help_lists_what_is_installed_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, EntryPoint("another", "switchsum.cli.doctor:doctor", extensions.COMMANDS))
    shown = CliRunner().invoke(application(), ["--help"]).output
    assert "another" in shown
    assert "doctor" in shown
    assert "Simulate an allreduce" not in shown

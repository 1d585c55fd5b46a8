"""Tests in quarantine: they run and are reported, and do not fail the build.  `quarantine.toml` names them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

LISTED: Final = Path(__file__).with_name("quarantine.toml")
WHY: Final = "in quarantine: "


@dataclass(frozen=True, slots=True)
class Entry:
    """A test that fails now and then."""

    name: str
    """Its node id. Without brackets it stands for the test with all its parameters."""
    reason: str
    """What happens, and why."""


def read(path: Path) -> list[Entry]:
    """Return the entries of a list; raises TypeError where one has other fields."""
    return [Entry(**entry) for entry in tomllib.loads(path.read_text()).get("test", [])]


class Quarantine:
    """The plugin: a listed test that fails counts as an expected failure, one that passes as an unexpected pass."""

    def __init__(self, path: Path = LISTED) -> None:
        self._reasons = {entry.name: entry.reason for entry in read(path)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Mark the tests that are listed."""
        for item in items:
            name = item.nodeid
            if reason := self._reasons.get(name) or self._reasons.get(name.partition("[")[0]):
                item.add_marker(pytest.mark.xfail(reason=WHY + reason, strict=False))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say how each test in quarantine ended."""
        ends = {"xfailed": "failed", "xpassed": "passed"}
        lines = [
            f"{end}: {report.nodeid} ({report.wasxfail.removeprefix('reason: ').removeprefix(WHY)})"
            for outcome, end in ends.items()
            for report in terminalreporter.stats.get(outcome, [])
            if WHY in getattr(report, "wasxfail", "")
        ]
        if lines:
            terminalreporter.section("quarantine")
            for line in lines:
                terminalreporter.write_line(line)

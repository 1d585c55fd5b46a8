"""What other distributions add: commands, and runners of `switchsum run`, found by their entry points.

A distribution names a function or a typer application in the group `switchsum.commands`, and a function of `RunOptions`
that returns an exit code in `switchsum.runners`.  switchsum itself imports none of them before somebody asks.
"""

from __future__ import annotations

from typing import Any, Final

from switchsum_protocol.errors import UsageError

COMMANDS: Final = "switchsum.commands"
RUNNERS: Final = "switchsum.runners"


def names(group: str) -> tuple[str, ...]:
    """Return the names that installed distributions have in a group."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - a switch and a controller start without it

    return tuple(sorted(entry_points(group=group).names))


def load(group: str, name: str, asked: str) -> Any:
    """Return what a distribution has under a name; `asked` is what the user wrote.

    Raises:
        UsageError: no distribution that is installed here has it.

    """
    from importlib.metadata import entry_points  # noqa: PLC0415 - as above

    for entry in entry_points(group=group, name=name):
        return entry.load()
    raise UsageError(f"{asked} is a part of the laboratory, which is not installed: pip install ./lab (in the clone)")

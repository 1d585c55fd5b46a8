"""Make pages of the site: the API's from the docstrings, and the commands' from the commands.

`tools/site_pages.py` writes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main

from switchsum.cli.app import application
from tools.api_pages import api_pages, cell


def command_lines(command: Any, name: str) -> Iterator[str]:
    """Yield the sections of a command and of those below it."""
    for below, child in sorted(getattr(command, "commands", {}).items()):
        yield from command_lines(child, f"{name} {below}")
    if not getattr(command, "invoke_without_command", True):
        return
    yield f"## {name}\n"
    yield f"{cell(command.help or '')}\n"
    rows = []
    for parameter in command.params:
        is_option = parameter.param_type_name == "option"
        argument = (parameter.metavar or parameter.name).upper()
        names = [*parameter.opts, *parameter.secondary_opts] if is_option else [argument]
        default = parameter.default
        shown = isinstance(default, (int, float, str)) and not isinstance(default, bool) and default != ""
        variable = getattr(parameter, "envvar", None)
        note = f" Else from {variable}." if variable else ""
        note += f" Default: {default}." if shown and "/" not in str(default) else ""
        note += " Repeatable." if getattr(parameter, "multiple", False) else ""
        note += " Required." if is_option and parameter.required else ""
        said = cell(getattr(parameter, "help", None) or "")
        rows.append(f"| {', '.join(f'`{one}`' for one in names)} | {said}{note} |")
    if rows:
        yield "| argument or option | |\n|---|---|"
        yield from rows
        yield ""


def commands_page() -> str:
    """Return docs/commands.md."""
    lines = ["# Commands", "", "Every command with its options, from the commands themselves.", ""]
    lines += [
        "[cli.md](cli.md) says what they are for.\n",
        *command_lines(typer.main.get_command(application()), "switchsum"),
    ]
    return "\n".join(lines).rstrip() + "\n"


def pages() -> dict[str, str]:
    """Return the pages, by file name in docs/."""
    return {**api_pages(), "commands.md": commands_page()}

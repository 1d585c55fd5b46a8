"""Make two pages of the site: the API's from the docstrings, and the commands' from the commands.

`tools/site_pages.py` writes them.  Modules are read and not run: PyTorch is not needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import griffe
import typer.main

from switchsum.cli import application

ROOT: Final = Path(__file__).resolve().parent.parent
MODULES: Final = {
    "switchsum": "From numpy: [numpy.md](numpy.md). Errors: [reference.md](reference.md#errors).",
    "switchsum.torch": "From PyTorch: [pytorch.md](pytorch.md).",
    "switchsum.torch.hooks": "For `register_comm_hook` of DistributedDataParallel.",
    "switchsum.host.compress": "Ways of sending less: [compression.md](compression.md).",
    "switchsum.testing.local": "Ranks in one process, for tests of your programs.",
}
"""Modules whose names are public, and where to read on."""


def public_names(module: Any) -> list[str]:
    """Return the names that a module offers."""
    if module.exports is not None:
        return sorted(str(name) for name in module.exports)
    own = (name for name, member in module.members.items() if not member.is_alias and not member.is_attribute)
    return sorted(name for name in own if not name.startswith("_"))


def text_of(node: Any) -> str:
    """Return a docstring, safe in Markdown."""
    text = node.docstring.value if node.docstring else ""
    return str(text).replace("<", "&lt;").replace("*", r"\*").replace("|", r"\|")


def signature(function: Any, name: str) -> str:
    """Return how a function is called, with an argument on each line if it is long."""
    arguments, starred = [], False
    for one in function.parameters:
        kind = one.kind.value if one.kind else ""
        if one.name in ("self", "cls"):
            continue
        if kind == "keyword-only" and not starred:
            starred = True
            arguments.append("*")
        starred |= kind == "variadic positional"
        star = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "")
        note = f": {one.annotation}" if one.annotation is not None else ""
        default = f" = {one.default}" if one.default is not None and not star else ""
        arguments.append(f"{star}{one.name}{note}{default}")
    returns = f" -> {function.returns}" if getattr(function, "returns", None) is not None else ""
    short = f"{name}({', '.join(arguments)}){returns}"
    if len(short) <= 110:
        return short
    return f"{name}(\n" + "".join(f"    {one},\n" for one in arguments) + f"){returns}"


def function_lines(function: Any, name: str, level: int) -> Iterator[str]:
    """Yield the section of a function."""
    yield f"{'#' * level} {name}\n"
    yield f"```text\n{signature(function, name)}\n```\n"
    yield f"{text_of(function)}\n"


def where_told(member: Any, of: Any) -> Any:
    """Return an attribute where it is described: in the class, or in one above; None: nowhere."""
    found = [member, *(above.members[member.name] for above in of.mro() if member.name in above.members)]
    return next((one for one in found if one.docstring), None)


def told_above(one: Any, listed: set[str]) -> dict[str, list[str]]:
    """Return the members that a class above describes which has a section of its own, by that class."""
    found: dict[str, list[str]] = {}
    for above in one.mro():
        told = {name for names in found.values() for name in names}
        for name, member in one.all_members.items():
            if name in told:
                continue
            docstring = member.docstring.value if member.docstring else ""
            is_same = member.is_alias and member.inherited and member.final_target.parent.path == above.path
            if above.path in listed and not name.startswith("_") and (is_same or docstring == f"See `{above.name}`."):
                found.setdefault(above.name, []).append(name)
    return found


def class_lines(one: Any, level: int, listed: set[str]) -> Iterator[str]:
    """Yield the section of a class: how it is made, fields, methods; inherited ones too, but for those of `listed`."""
    yield f"{'#' * level} {one.name}\n"
    bases = ", ".join(str(base).rpartition(".")[2] for base in one.bases)
    is_error = one.name.endswith("Error") or "Error" in bases or (one.docstring and not one.all_members)
    above = told_above(one, listed)
    elsewhere = {name for names in above.values() for name in names}
    shown = (item for item in one.all_members.items() if not item[0].startswith("_"))
    members = {name: member for name, member in shown if name not in elsewhere}
    if not is_error and one.parameters:
        yield f"```text\n{signature(one, one.name)}\n```\n"
    elif bases:
        yield f"A subclass of {bases}.\n"
    yield f"{text_of(one)}\n"
    if (made := one.all_members.get("__init__")) is not None and not (made.is_alias and above):
        yield f"{text_of(made)}\n"
    fields = [told for member in members.values() if member.is_attribute and (told := where_told(member, one))]
    if fields:
        yield "| attribute | |\n|---|---|"
        for field in fields:
            kind = str(field.annotation or "").replace("|", r"\|")
            yield f"| `{field.name}`{f' (`{kind}`)' if kind else ''} | {' '.join(text_of(field).split())} |"
        yield ""
    for name, members_above in above.items():
        yield f"As in `{name}`: {', '.join(f'`{member}`' for member in members_above)}.\n"
    for name, member in members.items():
        if member.is_function:
            function = member.final_target if member.is_alias else member
            yield from function_lines(function, f"{one.name}.{name}", level + 1)


def api_page() -> str:
    """Return docs/api.md."""
    root: Any = griffe.load("switchsum", search_paths=[ROOT / "src"], allow_inspection=False, resolve_aliases=True)
    lines = ["# API\n", "Every public name of the Python package, from its docstring.\n"]
    for path, where in MODULES.items():
        module = root[path.partition(".")[2]] if "." in path else root
        lines += [f"## {path}\n", f"{text_of(module)}\n", f"{where}\n"]
        members: list[Any] = [module[name] for name in public_names(module)]
        members = [member.final_target if member.is_alias else member for member in members]
        listed = {member.path for member in members}
        for name, member in zip(public_names(module), members, strict=True):
            if member.is_class:
                lines += class_lines(member, 3, listed)
            elif member.is_function:
                lines += function_lines(member, name, 3)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def cell(text: str) -> str:
    """Return text for a cell of a table."""
    return " ".join(text.split()).replace("|", r"\|").replace("<", "&lt;")


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
    return {"api.md": api_page(), "commands.md": commands_page()}

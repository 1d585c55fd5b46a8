"""Make the pages of the API from docstrings: one for each module that users import, and one that lists all names.

Modules are read and not run: PyTorch is not needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import griffe

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGES: Final = {
    "switchsum_switch": "switch/src",
    "switchsum_protocol": "protocol",
    "switchsum_host": "host",
    "switchsum": "src",
}
"""Packages of which public names are, or are handed on from, and the folders that hold them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A module that users import, on a page of its own."""

    file: str
    about: str
    """For whom it is, and where to read on."""
    first: tuple[str, ...] = ()
    """Names that come before the others."""


MODULES: Final = {
    "switchsum": Page(
        file="api-switchsum.md",
        about="For programs with numpy arrays: [numpy.md](numpy.md) has the common case.",
        first=("connect", "Communicator", "Handle", "SparseSum", "Statistics"),
    ),
    "switchsum.torch": Page(
        file="api-torch.md",
        about='For PyTorch. Most scripts need `torch.distributed.init_process_group("switchsum")` alone: '
        "[pytorch.md](pytorch.md).",
        first=("compress", "gradient_lanes", "lanes", "DiLoCo", "LocalSGD", "average", "Average", "statistics"),
    ),
    "switchsum.torch.hooks": Page(
        file="api-hooks.md",
        about="For `register_comm_hook` of DistributedDataParallel: [compression.md](compression.md).",
        first=("compressed", "CompressedHook"),
    ),
    "switchsum_host.compress": Page(
        file="api-compress.md",
        about="For programs that send less than a gradient: [compression.md](compression.md) says which to choose.",
        first=("Compressor", "ErrorFeedback", "TopK"),
    ),
    "switchsum.testing": Page(
        file="api-testing.md",
        about="For tests of programs that call a communicator: several ranks in one process.",
        first=("on_ranks",),
    ),
    "switchsum_switch": Page(
        file="api-switch.md",
        about="For tests of P4 programs: [test-your-p4.md](../switch/docs/test-your-p4.md) has the common case.",
        first=("Switch", "NamedTable"),
    ),
}
"""Modules whose names are public."""
MADE_BY_OTHERS: Final = {
    "Communicator": "`switchsum.connect` makes it.",
    "Handle": "Calls that end in `_async` return it.",
    "Statistics": "`Communicator.statistics` returns it.",
    "SparseSum": "`Communicator.allreduce_sparse` returns it.",
    "CompressedHook": "`switchsum.torch.compress` and `compressed` make it.",
    "SwitchGroup": '`torch.distributed.init_process_group("switchsum")` and `new_group` make it.',
    "GroupStatistics": "`switchsum.torch.statistics` returns it.",
    "NamedTable": "`switch.tables[...]` is one.",
    "NamedProfile": "`switch.profiles[...]` is one.",
    "ShownEntry": "`NamedTable.entries` and a trace have them.",
    "Snapshot": "`Switch.snapshot` returns it.",
    "Step": "`Switch.trace` returns it.",
    "Clock": "`switch.clock` is one.",
    "Exchanged": "`Compressor.exchange` returns it.",
}
"""Classes that nobody constructs, and where they come from."""
NOTES: Final = ("note_purpose", "purpose_of", "note_wait")
"""What PyTorch's backend tells a communicator, for reports."""
FOR_OURSELVES: Final = {
    "Communicator": {"queue", "ranks", "supports", "start", "begin_steps", "break_off", "refuse", *NOTES},
    "Handle": {
        *("finished", "memory", "saturates", "at_end", "holds", "operation", "values", "make_result"),
        *("note_finished", "call_back"),
    },
    "EachValue": {"begin", "begin_parts", "state_dict", "load_state_dict"},
    "NarrowLanes": {"begin", "begin_parts", "state_dict", "load_state_dict"},
    "SmallBlocks": {"begin", "begin_parts", "state_dict", "load_state_dict"},
    "Statistics": {"of"},
    "CompressedHook": {"compressor"},
    "Average": {"move", "group"},
    "DiLoCo": {"schedule", "average", "fragments"},
    "ElasticGroup": {"place", "ask", "give", "furthest", "leave_out", "take_in", "waiting", "communicator"},
    "Switch": {"pipeline"},
}
"""Members that this package's own modules use."""
SHOWN: Final[dict[str, set[str]]] = {
    "SwitchGroup": {"lanes", "statistics"},
    "Communicates": {"rank", "world_size"},
    "Snapshot": set(),
}
"""Of classes with many members the few that are shown: the rest is called through torch, or described elsewhere."""
TWINS: Final = ("allreduce_async", "allreduce")
"""Methods whose arguments those of the same name are alike, where a docstring does not describe its own."""


def public_names(module: Any, first: Sequence[str] = ()) -> list[str]:
    """Return the names that a module offers, those of `first` before the others, errors last."""
    names = [str(name) for name in module.exports or module.members]

    def place(name: str) -> tuple[int, bool, str]:
        return first.index(name) if name in first else len(first), is_error(target(module[name])), name

    return sorted((name for name in names if name != "hooks"), key=place)


def target(member: Any) -> Any:
    """Return what a name stands for."""
    return member.final_target if member.is_alias else member


def is_error(one: Any) -> bool:
    """Return whether this is the class of an error."""
    return bool(one.is_class) and any(above.name in ("SwitchsumError", "StateError") for above in [one, *one.mro()])


def safe(text: str) -> str:
    """Return text of a docstring, safe in Markdown."""
    return text.replace("<", "&lt;").replace("**", r"\*\*")


def cell(text: str) -> str:
    """Return text for a cell of a table."""
    return " ".join(text.split()).replace("|", r"\|").replace("<", "&lt;")


def code(value: Any) -> str:
    """Return code for a cell of a table; a vertical bar has no other form that is safe there."""
    return f"<code>{' '.join(str(value).split()).replace('<', '&lt;').replace('|', '&#124;')}</code>"


def sections(node: Any) -> list[Any]:
    """Return the parts of a docstring."""
    if not node.docstring:
        return []
    found: list[Any] = node.docstring.parse("google", returns_named_value=False, returns_multiple_items=False)
    return found


def part(node: Any, kind: str) -> list[Any]:
    """Return the items of one section of a docstring."""
    return [item for one in sections(node) if one.kind.value == kind for item in one.value]


def summary(node: Any) -> str:
    """Return the first sentences of a docstring, up to the first empty line."""
    return str(node.docstring.value).partition("\n\n")[0] if node.docstring else ""


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
        default = f"={one.default}" if one.default is not None and not star else ""
        arguments.append(f"{star}{one.name}{default}")
    short = f"{name}({', '.join(arguments)})"
    return short if len(short) <= MOST_WIDE else f"{name}(\n" + "".join(f"    {one},\n" for one in arguments) + ")"


MOST_WIDE: Final = 78
"""Characters of a line of code that fit the page."""


def parameter_rows(function: Any, siblings: dict[str, Any]) -> Iterator[str]:
    """Yield a row for each argument; what a docstring does not describe is described by the method it is like."""
    described = {item.name: item for item in part(function, "parameters")}
    likes = (function.name.removesuffix("_async"), *TWINS)
    for one in function.parameters:
        if one.name in ("self", "cls"):
            continue
        found = described.get(one.name)
        for like in likes:
            if found is None and like in siblings and like != function.name:
                found = next((item for item in part(siblings[like], "parameters") if item.name == one.name), None)
        kind = code(one.annotation) if one.annotation is not None else ""
        is_starred = one.kind is not None and one.kind.value.startswith("variadic")
        default = code(one.default) if one.default is not None and not is_starred else ""
        yield f"| `{one.name}` | {kind} | {default} | {cell(found.description) if found else ''} |"


def body(node: Any, siblings: dict[str, Any] | None = None, *, has_parameters: bool = True) -> Iterator[str]:
    """Yield what a docstring says: text, tables of parameters and errors, an example."""
    texts = [one.value for one in sections(node) if one.kind.value == "text"]
    yield from (f"{safe(text)}\n" for text in texts)
    if has_parameters and (rows := list(parameter_rows(node, siblings or {}))):
        yield "| parameter | type | default | |\n|---|---|---|---|"
        yield from rows
        yield ""
    for item in part(node, "returns"):
        yield f"**Returns** {safe(item.description)}\n"
    if errors := part(node, "raises"):
        yield "| raises | |\n|---|---|"
        yield from (f"| `{item.annotation}` | {cell(item.description)} |" for item in errors)
        yield ""
    for one in sections(node):
        if one.kind.value == "admonition":
            is_code = one.value.kind == "example"
            yield example(one.value.contents) if is_code else f"{safe(one.value.contents)}\n"


def example(text: str) -> str:
    """Return an example without prompts, so that it can be copied; text before the first prompt stays text."""
    said, prompt, code = text.partition(">>>")
    lines = []
    for line in f"{prompt}{code}".splitlines():
        bare = line.replace("  # doctest: +SKIP", "")
        if bare.startswith((">>>", "...")):
            lines.append(bare[4:])
        elif bare.strip():
            lines.append(f"# {bare}")
    shown = "\n".join(lines)
    return f"{said}\n```python\n{shown}\n```\n" if said.strip() else f"```python\n{shown}\n```\n"


def function_lines(function: Any, name: str, level: int, siblings: dict[str, Any]) -> Iterator[str]:
    """Yield the section of a function."""
    title, returns = name.removeprefix("switchsum.").rpartition(".")[2] if level == 2 else name, function.returns
    yield f"{'#' * level} {title}\n"
    yield f"```python\n{signature(function, name)}{f' -> {returns}' if returns is not None else ''}\n```\n"
    yield from body(function, siblings)


def where_described(member: Any, of: Any) -> Any:
    """Return an attribute where it is described: in the class, or in one above; None: nowhere."""
    found = [member, *(above.members[member.name] for above in of.mro() if member.name in above.members)]
    return next((one for one in found if one.docstring), None)


def described_above(one: Any, listed: set[str]) -> dict[str, list[str]]:
    """Return the members that a class above describes which has a section of its own, by that class."""
    found: dict[str, list[str]] = {}
    for above in one.mro():
        described = {name for names in found.values() for name in names}
        for name, member in one.all_members.items():
            if name in described:
                continue
            docstring = member.docstring.value if member.docstring else ""
            is_same = member.is_alias and member.inherited and member.final_target.parent.path == above.path
            if above.path in listed and not name.startswith("_") and (is_same or docstring == f"See `{above.name}`."):
                found.setdefault(above.name, []).append(name)
    return found


def class_lines(one: Any, module: str, listed: set[str]) -> Iterator[str]:
    """Yield the section of a class: how it is made, fields, methods; inherited ones too, but for those of `listed`."""
    yield f"## {one.name}\n"
    above = described_above(one, listed)
    hidden = {name for names in above.values() for name in names} | FOR_OURSELVES.get(one.name, set())
    shown = (item for item in one.all_members.items() if not item[0].startswith("_"))
    only = SHOWN.get(one.name)
    members = {name: member for name, member in shown if name not in hidden and (only is None or name in only)}
    made = one.all_members.get("__init__")
    is_made = one.name not in MADE_BY_OTHERS and bool(list(one.parameters))
    if is_made:
        yield f"```python\n{signature(one, f'{module}.{one.name}')}\n```\n"
    yield from body(one, has_parameters=False)
    if one.name in MADE_BY_OTHERS:
        yield f"{MADE_BY_OTHERS[one.name]}\n"
    elif made is not None and not (made.is_alias and above) and "dataclass" not in one.labels:
        yield from body(target(made))
    fields = [
        described for member in members.values() if member.is_attribute and (described := where_described(member, one))
    ]
    if fields:
        yield "| attribute | type | |\n|---|---|---|"
        for field in fields:
            kind = code(field.annotation) if field.annotation is not None else ""
            yield f"| `{field.name}` | {kind} | {cell(field.docstring.value)} |"
        yield ""
    for name, members_above in above.items():
        yield f"As in `{name}`: {', '.join(f'`{member}`' for member in members_above)}.\n"
    functions = {name: target(member) for name, member in members.items() if member.is_function}
    for name in sorted(functions, key=lambda name: name in ("statistics", "close", "checked", "reform")):
        yield from function_lines(functions[name], f"{one.name}.{name}", 3, functions)


def error_rows(errors: Sequence[Any]) -> Iterator[str]:
    """Yield a table of errors."""
    yield "## Errors\n"
    yield "| error | a subclass of | raised when |\n|---|---|---|"
    for one in errors:
        bases = ", ".join(f"`{str(base).rpartition('.')[2]}`" for base in one.bases)
        yield f"| `{one.name}` | {bases} | {cell(summary(one))} |"
    yield ""


def module_page(module: Any, path: str, page: Page) -> str:
    """Return the page of a module."""
    lines = [f"# {path}\n", f"{page.about}\n"]
    named = {name: target(module[name]) for name in public_names(module, page.first)}
    listed = {member.path for member in named.values()}
    functions = {name: member for name, member in named.items() if member.is_function}
    for name, member in named.items():
        if member.is_class and not is_error(member):
            lines += class_lines(member, path, listed)
        elif member.is_function:
            lines += function_lines(member, f"{path}.{name}", 2, functions)
    if errors := [member for member in named.values() if is_error(member)]:
        lines += error_rows(errors)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def api_pages() -> dict[str, str]:
    """Return the pages of the API, by file name in docs/."""
    loader = griffe.GriffeLoader(search_paths=[ROOT / folder for folder in PACKAGES.values()], allow_inspection=False)
    for package in PACKAGES:
        loader.load(package)
    loader.resolve_aliases(external=False)
    known: Any = loader.modules_collection
    made, lines = {}, ["# API\n", "Every public name of the Python package, by the module that you import.\n"]
    for path, page in MODULES.items():
        module = known[path]
        made[page.file] = module_page(module, path, page)
        lines += [f"## [{path}]({page.file})\n", f"{page.about}\n", "| name | |\n|---|---|"]
        for name in public_names(module, page.first):
            member = target(module[name])
            goal = "errors" if is_error(member) else name.lower()
            if member.is_class or member.is_function:
                lines.append(f"| [{name}]({page.file}#{goal}) | {cell(summary(member))} |")
        lines.append("")
    made["api.md"] = "\n".join(lines).rstrip() + "\n"
    return made

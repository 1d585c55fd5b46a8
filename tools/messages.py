"""List what errors, logs, notices, commands and help say, from the source: `python -m tools.messages`, read in one go.

`{...}` stands for what is put in at run time.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDERS: Final = ("controller", "host", "protocol", "src", "switch/src", "lab/src")
LOGS: Final = {"debug", "info", "warning", "error", "critical", "exception"}
NOTICES: Final = {"say", "waiting_for"}
ADVICE: Final = {"advice", "help"}
"""Arguments that are texts: what `explain` advises, and what `--help` says of an option."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One text that users may see."""

    file: str
    line: int
    kind: str
    """The error's class, or log, notice, output, help or advice."""
    text: str


def text_of(node: ast.expr | None) -> str:
    """Return a text as the source has it; empty where it comes from elsewhere."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(one) or "{...}" for one in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text_of(node.left) + text_of(node.right)
    return ""


def messages() -> Iterator[Message]:
    """Yield all texts of the source, by file and line."""
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        file = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            call, kind = None, ""
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                call, kind = node.exc, ast.unparse(node.exc.func)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOGS:
                call, kind = (node, "log") if "log" in ast.unparse(node.func.value).lower() else (None, "")
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in NOTICES:
                call, kind = node, "notice"
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "typer.echo":
                call, kind = node, "output"
            elif isinstance(node, ast.Call):
                for one in node.keywords:
                    if one.arg in ADVICE and (text := text_of(one.value)):
                        yield Message(file=file, line=node.lineno, kind=one.arg, text=text)
            if call is not None and call.args and (text := text_of(call.args[0])):
                yield Message(file=file, line=call.lineno, kind=kind, text=text)


def main() -> None:
    """Print the list."""
    for one in messages():
        print(f"{one.file}:{one.line} {one.kind}: {one.text}", flush=True)


if __name__ == "__main__":
    main()

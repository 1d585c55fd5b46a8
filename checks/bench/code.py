"""What figures depend on: named groups of files, and a digest of each group that is the same in every clone.

Comments, docstrings, imports and empty lines do not count, nor in which file of a group something stands.  The groups,
and the pages whose tables depend on them, are in code.toml.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import io
import json
import re
import token
import tokenize
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
TABLE: Final = Path(__file__).with_name("code.toml")
NOTED: Final = Path(__file__).parent / "results" / "ages.json"
"""Digests of tables that have no records: what they were measured with."""
_COMMENTS: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_BEFORE_A_STATEMENT: Final = (token.NEWLINE, token.INDENT, token.DEDENT)


@functools.cache
def table() -> dict[str, Any]:
    """Return code.toml."""
    return tomllib.loads(TABLE.read_text())


def groups(names: Iterable[str]) -> list[str]:
    """Return groups by their names and by those of ways, in the order of code.toml, each once."""
    ways, known = table()["ways"], table()["groups"]
    named = {group for name in names for group in (groups(ways[name]) if name in ways else [name])}
    if unknown := named - known.keys():
        raise KeyError(f"code.toml has no group {', '.join(sorted(unknown))}")
    return [group for group in known if group in named]


def files_of(group: str, root: Path = ROOT) -> Iterator[Path]:
    """Yield the files of a group."""
    return matching(table()["groups"][group], root)


def matching(patterns: Iterable[str], root: Path) -> Iterator[Path]:
    """Yield the files that some patterns mean; braces have words between commas."""
    for pattern in patterns:
        before, brace, rest = pattern.partition("{")
        words, _, after = rest.partition("}")
        for word in words.split(",") if brace else [""]:
            yield from root.glob(before + word + after)


def digest(files: Iterable[Path]) -> str:
    """Return the digest of what files do, wherever each of them lies."""
    found = sorted(hashlib.sha256(what_counts(path).encode()).hexdigest() for path in files)
    return hashlib.sha256("".join(found).encode()).hexdigest()[:8]


def what_counts(path: Path) -> str:
    """Return the text of a file without comments, docstrings, imports and empty lines."""
    text = path.read_text(encoding="utf-8")
    text = _python(text) if path.suffix == ".py" else _COMMENTS.sub("", text)
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())


def _python(text: str) -> str:
    """Return Python without comments, imports, and statements that are nothing but a string."""
    for node in sorted(_imports(ast.parse(text)), key=lambda node: -node.lineno):
        lines = text.split("\n")
        del lines[node.lineno - 1 : node.end_lineno]
        text = "\n".join(lines)
    found = list(tokenize.generate_tokens(io.StringIO(text).readline))
    code = [one for one in found if one.type not in (token.COMMENT, token.NL)]
    before = [token.NEWLINE, *(one.type for one in code)]
    strings = [
        one
        for kind, one, after in zip(before, code, code[1:], strict=False)
        if one.type == token.STRING and kind in _BEFORE_A_STATEMENT and after.type == token.NEWLINE
    ]
    lines = text.split("\n")
    for one in sorted([*strings, *(one for one in found if one.type == token.COMMENT)], reverse=True, key=_place):
        (first, start), (last, end) = one.start, one.end
        lines[first - 1 : last] = [lines[first - 1][:start] + lines[last - 1][end:]]
    return "\n".join(lines)


def _imports(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))


def _place(one: tokenize.TokenInfo) -> tuple[int, int]:
    return one.start


@functools.cache
def digests(root: Path = ROOT) -> str:
    """Return the digests of all groups as records have them: `engine 5f0c31aa, links 90be114c`.

    They are made once, so that a long measurement names the code that it began with.
    """
    return ", ".join(f"{group} {digest(files_of(group, root))}" for group in table()["groups"])


def changed(code: str, groups_of_it: Iterable[str], now: str) -> list[str] | None:
    """Return which groups have changed since a record was taken, or None where it does not say of what it is."""
    was, is_now = (dict(one.split() for one in text.split(", ") if one) for text in (code, now))
    return [group for group in groups_of_it if was.get(group) != is_now[group]] if was else None


def note(name: str) -> None:
    """Note that a table without records was measured just now: `docs/results/trees.md, One switch and a tree`."""
    noted = json.loads(NOTED.read_text())
    NOTED.write_text(json.dumps(noted | {name: digests()}, indent=1, sort_keys=True) + "\n")

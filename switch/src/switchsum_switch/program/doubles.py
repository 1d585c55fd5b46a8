"""Parts of a program that are there twice: two of a kind with one name or one id, which BMv2 refuses, too."""

from __future__ import annotations

from typing import Final

from ..errors import ProgramError
from .node import Node

_BOTH: Final = ("name", "id")
_DISTINCT: Final = {
    **dict.fromkeys(("header_types", "headers", "header_stacks", "header_unions", "header_union_stacks"), _BOTH),
    **dict.fromkeys(("parsers", "deparsers", "pipelines", "parse_vsets", "calculations", "checksums"), _BOTH),
    **dict.fromkeys(("register_arrays", "counter_arrays", "meter_arrays"), _BOTH),
    **dict.fromkeys(("actions", "field_lists", "learn_lists"), ("id",)),
}
"""What makes the parts of each list distinct: p4c gives several actions and lists one name."""


def refuse_doubles(root: Node) -> None:
    """Raise ProgramError if two parts of a kind have one name or one id, which BMv2 refuses, too."""
    for key, kinds in _DISTINCT.items():
        for kind in kinds:
            _require_distinct(root, key, kind)
    _refuse_double(f"{root.path}.errors", "name", [item.exactly(2)[0].value for item in root.items_of("errors")])
    # p4c writes each alias again for each parameter of type standard_metadata_t: only one of another field is refused.
    aliases = {str((one.value, field.value)): one.value for one, field in _pairs(root, "field_aliases")}
    _refuse_double(f"{root.path}.field_aliases", "name", list(aliases.values()))
    for parser in root.items_of("parsers"):
        _require_distinct(parser, "parse_states", "name")
    for pipeline in root.items_of("pipelines"):
        nodes = [*pipeline.items_of("tables"), *pipeline.items_of("conditionals")]
        _refuse_double(f"{pipeline.path}", "name", [node["name"].text() for node in nodes])
        _require_distinct(pipeline, "action_profiles", "name")


def _pairs(root: Node, key: str) -> list[tuple[Node, Node]]:
    return [(pair[0], pair[1]) for pair in (item.exactly(2) for item in root.items_of(key))]


def _require_distinct(node: Node, key: str, kind: str) -> None:
    found = [item.get(kind) for item in node.items_of(key)]
    _refuse_double(f"{node.path}.{key}", kind, [one.value for one in found if one is not None])


def _refuse_double(path: str, kind: str, values: list[object]) -> None:
    seen: set[str] = set()
    for value in values:
        shown = str(value)
        if shown in seen:
            raise ProgramError(f"not a BMv2 program: {path} has the {kind} {shown} twice")
        seen.add(shown)

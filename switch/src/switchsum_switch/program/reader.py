"""Reads the text of a BMv2 JSON file into the typed model, and refuses a text that does not have the format's form.

Every value that is read comes through a `Node`, which knows its path in the file.  So a file that a user has edited by
hand gives an error text such as "root.pipelines[0].tables[2] has no key", and never a KeyError.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, TypeVar

from ..errors import ProgramError
from ..state import value_sets
from ..state.tables import NO_ACTION
from . import model
from .architectures import refuse_other_architectures
from .doubles import refuse_doubles
from .node import Node

_T = TypeVar("_T")

_CORE_ERRORS: Final = (
    *("NoError", "PacketTooShort", "NoMatch", "StackOutOfBounds"),
    *("HeaderTooShort", "ParserTimeout", "ParserInvalidArgument"),
)
_NO_ACTION: Final = model.Action(name=NO_ACTION, id=-1, params=(), primitives=(), source=None)
"""The default action of a table for which the program gives none."""
_NAMED = {
    *("header", "header_stack", "header_union", "header_union_stack", "calculation"),
    *("register_array", "counter_array", "meter_array", "extern", "string"),
}


def read_program(text: str | bytes) -> model.Bmv2Program:
    """Return the program that the text of a BMv2 JSON file describes; raises ProgramError."""
    try:
        root = Node(json.loads(text), "root")
    except (ValueError, RecursionError) as error:
        raise ProgramError(f"not a BMv2 program: not JSON ({error})") from None
    # The major version changes when older readers would misread the file; minor versions only add to the format.
    # p4c wrote no version before 2016, and BMv2 takes such a file.
    if (meta := root.get("__meta__")) is not None:
        version = [item.integer() for item in meta["version"].items()]
        if not version or version[0] != 2:
            shown = ".".join(map(str, version)) or "none"
            raise ProgramError(f"BMv2 JSON of version {shown}; this switch reads version 2")
    refuse_other_architectures(root)
    refuse_doubles(root)
    types = {header.name: header for header in root.list("header_types", _header_type)}
    headers = {node["id"].integer(): _header(node, types) for node in root["headers"].items()}
    names = {number: header.name for number, header in headers.items()}
    parts = dict(root.list("header_union_types", _union_type))
    unions = dict(root.list("header_unions", lambda node: _union(node, names, parts)))
    actions = (*root.list("actions", _action), _NO_ACTION)
    return model.Bmv2Program(
        name=root.text_or_none("program") or "",
        headers=tuple(headers.values()),
        stacks=root.list("header_stacks", lambda node: _stack(node, "header_ids", names)),
        unions=tuple(unions.values()),
        union_stacks=root.list(
            "header_union_stacks",
            lambda node: _stack(node, "header_union_ids", {number: union.name for number, union in unions.items()}),
        ),
        field_lists=dict(root.list("field_lists", _field_list)),
        learn_lists=dict(root.list("learn_lists", _learn_list)),
        errors=_with_core_errors(dict(root.list("errors", _error))),
        parser=_named(root, "parsers", "parser", _parser),
        value_sets=dict(root.list("parse_vsets", _value_set)),
        deparser=_named(root, "deparsers", "deparser", lambda node: node.list("order", Node.text)),
        deparsing=_named(root, "deparsers", "deparser", lambda node: node.list("primitives", _primitive)),
        registers=root.list("register_arrays", _array),
        counters=root.list("counter_arrays", _array),
        meters=root.list("meter_arrays", _array),
        calculations=root.list("calculations", _calculation),
        checksums=root.list("checksums", _checksum),
        actions=actions,
        ingress=_named(root, "pipelines", "ingress", lambda node: _control(node, actions)),
        egress=_named(root, "pipelines", "egress", lambda node: _control(node, actions)),
        externs=root.list("extern_instances", _name),
        aliases=dict(root.list("field_aliases", _alias)),
    )


def _named(root: Node, key: str, name: str, read: Callable[[Node], _T]) -> _T:
    for node in root[key].items():
        if node["name"].text() == name:
            return read(node)
    raise ProgramError(f"not a v1model program: {key} has no {name}")


def _name(node: Node) -> str:
    return node["name"].text()


def _field_list(node: Node) -> tuple[int, tuple[model.Operand, ...]]:
    return node["id"].integer(), node.list("elements", _operand)


def _learn_list(node: Node) -> tuple[int, model.LearnList]:
    elements = node.list("elements", _operand)
    return node["id"].integer(), model.LearnList(name=_name(node), elements=elements, source=node.source())


def _value_set(node: Node) -> tuple[str, int]:
    size = node.get("max_size")
    return _name(node), size.natural() if size else value_sets.DEFAULT_SIZE


def _error(node: Node) -> tuple[str, int]:
    name, number = node.exactly(2)
    return name.text(), number.natural()


def _with_core_errors(errors: dict[str, int]) -> dict[str, int]:
    """Add the errors of core.p4 that a file does not number, behind those that it numbers, as BMv2 does."""
    following = max(errors.values(), default=-1) + 1
    missing = [name for name in _CORE_ERRORS if name not in errors]
    return errors | {name: following + place for place, name in enumerate(missing)}


def _alias(node: Node) -> tuple[str, model.FieldName]:
    name, target = node.exactly(2)
    return name.text(), _field_name(target)


def _field_name(node: Node) -> model.FieldName:
    header, field = node.exactly(2)
    return model.FieldName(header.text(), field.text())


def _header_type(node: Node) -> model.HeaderType:
    fields = node.list("fields", _field_type)
    # The file gives the most bytes of the whole header.
    most = 8 * length.integer() if (length := node.get("max_length")) else 0
    rest = max(0, most - sum(field.width for field in fields))
    return model.HeaderType(
        name=_name(node), fields=tuple(replace(field, width=rest) if field.variable else field for field in fields)
    )


def _field_type(node: Node) -> model.FieldType:
    name, width, *rest = node.exactly(-2)
    signed = bool(rest and rest[0].value)
    if width.value == "*":
        return model.FieldType(name=name.text(), width=0, signed=signed, variable=True)
    return model.FieldType(name=name.text(), width=width.integer(), signed=signed)


def _header(node: Node, types: dict[str, model.HeaderType]) -> model.HeaderInstance:
    type_name = node["header_type"].text()
    if type_name not in types:
        raise ProgramError(f"not a BMv2 program: {node.path} has the unknown type {type_name}")
    return model.HeaderInstance(name=_name(node), type=types[type_name], metadata=node.truth("metadata"))


def _stack(node: Node, key: str, names: dict[int, str]) -> model.HeaderStack:
    return model.HeaderStack(name=_name(node), members=_members(node, key, names))


def _members(node: Node, key: str, names: dict[int, str]) -> tuple[str, ...]:
    identifiers = node.list(key, Node.integer)
    if not identifiers or not set(identifiers) <= names.keys():
        raise ProgramError(f"not a BMv2 program: {node.path} has no headers, or unknown ones")
    return tuple(names[number] for number in identifiers)


def _union_type(node: Node) -> tuple[str, tuple[str, ...]]:
    return _name(node), node.list("headers", lambda part: part.exactly(2)[0].text())


def _union(node: Node, names: dict[int, str], types: dict[str, tuple[str, ...]]) -> tuple[int, model.HeaderUnion]:
    members, parts = _members(node, "header_ids", names), types.get(node["union_type"].text(), ())
    if len(members) != len(parts):
        raise ProgramError(f"not a BMv2 program: {node.path} does not have the headers of its type")
    return node["id"].integer(), model.HeaderUnion(name=_name(node), members=members, parts=parts)


def _operand(node: Node) -> model.Operand:
    kind = node["type"].text()
    if kind == "field":
        return _field_name(node["value"])
    if kind == "hexstr":
        width = node.get("bitwidth")
        return model.Number(node["value"].hexadecimal(), width.natural() if width else None)
    if kind == "expression":
        return _expression(node["value"])
    # p4c writes "runtime_data" in actions and "local" in expressions within them; both are a parameter's index.
    if kind in ("runtime_data", "local"):
        return model.Argument(node["value"].natural())
    if kind == "bool":
        return model.Truth(node.truth("value"))
    if kind == "stack_field":
        name = _field_name(node["value"])
        return model.StackField(name.header, name.field)
    if kind == "union_stack_field":
        stack, part, field = node["value"].exactly(3)
        return model.StackField(stack.text(), field.text(), part.text())
    if kind == "union_stack":
        stack, part = node["value"].exactly(2)
        return model.NextUnion(stack.text(), part.text())
    if kind == "lookahead":
        offset, bits = node["value"].exactly(2)
        return model.Peek(offset.natural(), bits.natural())
    if kind in ("regular", "stack"):
        return model.Named("header" if kind == "regular" else "header_stack", node["value"].text())
    if kind in _NAMED:
        return model.Named(kind, node["value"].text())
    # An empty vector is written as {} and not as [].
    if kind == "parameters_vector":
        items = node["value"]
        return model.Vector(() if items.value == {} else tuple(_operand(item) for item in items.items()))
    # A kind that is not known here is refused by `lower`, which knows the statement and its line.
    value = node.get("value")
    return model.Named(kind, value.value if value and isinstance(value.value, str) else "")


def _expression(node: Node) -> model.Operand:
    operator = node.get("op")
    if operator is None:
        return _operand(node)
    left, right, condition = node.get("left"), node["right"], node.get("cond")
    return model.Operation(
        operator.text(),
        _operand(left) if left else None,
        right.natural() if operator.value in ("access_field", "access_union_header") else _operand(right),
        _operand(condition) if condition else None,
    )


def _primitive(node: Node) -> model.Primitive:
    return model.Primitive(
        operation=node["op"].text(), operands=node.list("parameters", _operand), source=node.source()
    )


def _action(node: Node) -> model.Action:
    return model.Action(
        name=_name(node),
        id=node["id"].integer(),
        # A parameter of bit<0> is one bit, which nothing reads.
        params=node.list("runtime_data", lambda item: (_name(item), item["bitwidth"].natural() or 1)),
        primitives=node.list("primitives", _primitive),
        source=node.source(),
    )


def _parser(node: Node) -> model.Parser:
    return model.Parser(start=node.text_or_none("init_state"), states=node.list("parse_states", _parser_state))


def _parser_state(node: Node) -> model.ParserState:
    return model.ParserState(
        name=_name(node),
        operations=node.list("parser_ops", _parser_operation),
        key=node.list("transition_key", _operand),
        transitions=node.list("transitions", _transition),
        source=node.source(),
    )


def _parser_operation(node: Node) -> model.Primitive:
    operation = node["op"].text()
    # An extern call in the parser is wrapped in a "primitive"; "shift" counts bytes, "advance" bits.
    if operation == "primitive":
        return _primitive(node["parameters"].exactly(1)[0])
    if operation == "shift":
        count = node["parameters"].exactly(1)[0]
        return model.Primitive(operation="advance", operands=(model.Number(8 * count.natural()),), source=node.source())
    return _primitive(node)


def _transition(node: Node) -> model.Transition:
    # p4c wrote no type before April 2020, when the default case had the value "default".
    given = node.text_or_none("type") or "hexstr"
    is_default = given == "hexstr" and node["value"].value == "default"
    kind = "default" if is_default else given
    if kind not in ("hexstr", "default", "parse_vset"):
        raise ProgramError(f"not a BMv2 program: {node.path} has the unknown type {kind}")
    mask = node.get("mask")
    if mask is not None and kind == "hexstr":
        wide = [_digits(part) for part in (node["value"], mask)]
        if wide[0] != wide[1]:
            raise ProgramError(
                f"not a BMv2 program: {node.path} has a value of {wide[0]} bytes, and a mask of {wide[1]}"
            )
    return model.Transition(
        value=node["value"].hexadecimal() if kind == "hexstr" else None,
        mask=mask.hexadecimal() if mask else None,
        next_state=node.text_or_none("next_state"),
        value_set=node["value"].text() if kind == "parse_vset" else None,
    )


def _digits(node: Node) -> int:
    """Return the number of bytes of a string of hexadecimal digits, those of zeros in front among them."""
    return (len(node.text().removeprefix("0x")) + 1) // 2


def _array(node: Node) -> model.Array:
    width = node.get("bitwidth")
    size = node.get("size")
    return model.Array(
        name=_name(node),
        size=size.natural() if size else 0,
        width=width.natural() if width else 0,
        direct=node.truth("is_direct"),
        unit=node.text_or_none("type") or "",
        target=_field_name(target) if (target := node.get("result_target")) else None,
        source=node.source(),
    )


def _calculation(node: Node) -> model.Calculation:
    return model.Calculation(
        name=_name(node), algorithm=node["algo"].text(), inputs=node.list("input", _operand), source=node.source()
    )


def _checksum(node: Node) -> model.Checksum:
    condition = node.get("if_cond")
    return model.Checksum(
        target=_field_name(node["target"]),
        calculation=node["calculation"].text(),
        verify=node.truth("verify", True),
        update=node.truth("update", True),
        condition=_operand(condition) if condition else None,
        source=node.source(),
    )


def _control(node: Node, actions: tuple[model.Action, ...]) -> model.Control:
    return model.Control(
        name=_name(node),
        start=node.text_or_none("init_table"),
        tables=node.list("tables", lambda item: _table(item, actions)),
        conditionals=node.list("conditionals", _conditional),
        profiles=(*node.list("action_profiles", _profile), *_profiles_of_tables(node)),
    )


def _profiles_of_tables(node: Node) -> Iterator[model.Profile]:
    """Yield the profiles that tables have in themselves, as in files from before 2017; their size is the table's."""
    for table in node["tables"].items():
        if (name := table.text_or_none("act_prof_name")) is not None:
            yield _profile(table, name)


def _profile(node: Node, name: str | None = None) -> model.Profile:
    name, selector = name or _name(node), node.get("selector")
    calculation = None
    if selector is not None:
        calculation = model.Calculation(
            name=name,
            algorithm=selector["algo"].text(),
            inputs=selector.list("input", _operand),
            source=node.source(),
        )
    return model.Profile(name=name, size=node["max_size"].natural(), selector=calculation)


def _conditional(node: Node) -> model.Conditional:
    return model.Conditional(
        name=_name(node),
        condition=_operand(node["expression"]),
        true_next=node.text_or_none("true_next"),
        false_next=node.text_or_none("false_next"),
        source=node.source(),
    )


def _table(node: Node, actions: tuple[model.Action, ...]) -> model.Table:
    names = node.list("actions", Node.text)
    by_name = {action.name: action.id for action in reversed(actions)}
    if node.get("action_ids") is not None:
        action_ids = node.list("action_ids", Node.integer)
    else:  # before 2017 an action had one place in the file, and tables named it
        action_ids = tuple(by_name.get(name, -1) for name in names)
    known = {action.id for action in actions}
    if not set(action_ids) <= known:
        raise ProgramError(f"not a BMv2 program: {node.path} names unknown actions")
    if len(names) != len(action_ids):
        raise ProgramError(f"not a BMv2 program: {node.path} has {len(action_ids)} action ids and {len(names)} actions")
    following = {
        key: Node(value, f"{node.path}.next_tables").text() if value is not None else None
        for key, value in node["next_tables"].pairs().items()
    }
    otherwise = node.text_or_none("base_default_next")
    # `if (table.apply().hit)` gives the keys __HIT__ and __MISS__ in the place of action names.
    by_hit = None
    if "__HIT__" in following or "__MISS__" in following:
        by_hit = following.get("__HIT__", otherwise), following.get("__MISS__", otherwise)
    default, profile = node.get("default_entry"), node.text_or_none("action_profile")
    profile = profile or node.text_or_none("act_prof_name")
    # On a miss a table without a default action does nothing, as in BMv2.
    nothing = model.DefaultEntry(action_id=_NO_ACTION.id, arguments=(), const=False)
    return model.Table(
        name=_name(node),
        kind=node["type"].text(),
        size=node["max_size"].natural(),
        keys=node.list("key", _table_key),
        action_ids=(*action_ids, _NO_ACTION.id) if default is None or profile else action_ids,
        next_by_action={
            number: following[name] for number, name in zip(action_ids, names, strict=True) if name in following
        },
        next_by_hit=by_hit,
        next_default=otherwise,
        default=_default_entry(default) if default else nothing,
        entries=node.list("entries", _table_entry),
        const_entries=node.get("entries") is not None,
        counters=node.truth("with_counters"),
        meter=node.text_or_none("direct_meters"),
        timeout=node.truth("support_timeout"),
        profile=profile,
        source=node.source(),
    )


def _table_key(node: Node) -> model.TableKey:
    kind = node["match_type"].text()
    mask = node.get("mask")
    target = node["target"]
    # A key `hdr.isValid()` names the header alone.
    operand = model.FieldName(target.text(), "$valid$") if kind == "valid" else _field_name(target)
    return model.TableKey(
        name=node.text_or_none("name") or f"{operand.header}.{operand.field}",
        kind=kind,
        operand=operand,
        mask=mask.hexadecimal() if mask else None,
    )


def _default_entry(node: Node) -> model.DefaultEntry:
    return model.DefaultEntry(
        action_id=node["action_id"].integer(),
        arguments=node.list("action_data", Node.hexadecimal),
        const=node.truth("action_entry_const"),
    )


def _table_entry(node: Node) -> model.TableEntry:
    action = node["action_entry"]
    return model.TableEntry(
        match=node.list("match_key", _entry_match),
        action_id=action["action_id"].integer(),
        arguments=action.list("action_data", Node.hexadecimal),
        priority=node["priority"].integer(),
    )


def _entry_match(node: Node) -> tuple[str, int, int]:
    kind = node["match_type"].text()
    if kind == "range":
        return kind, node["start"].hexadecimal(), node["end"].hexadecimal()
    if kind == "valid":
        return "exact", int(node.truth("key")), 0
    key = node["key"].hexadecimal()
    if kind == "lpm":
        return kind, key, node["prefix_length"].integer()
    return kind, key, node["mask"].hexadecimal() if kind == "ternary" else 0

"""A case: what is done to a switch, in order, as data; and as the text of an STF test."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from switchsum_switch.messages.matches import Exact, Lpm, Match, Range, Ternary
from switchsum_switch.stf import Names, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert:
    """An entry is added; in a table with a selector its action is the first member of a group."""

    table: str
    match: tuple[Match, ...]
    priority: int
    action: str
    params: tuple[int, ...]
    others: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Actions and parameters of the group's further members."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Default:
    """A default action is set."""

    table: str
    action: str
    params: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A multicast group is made."""

    group: int
    replicas: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A clone session is made; with one replica of instance 0."""

    session: int
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetMember:
    """A parser value set gets a member."""

    value_set: str
    value: int
    """The bits of its fields side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """A frame arrives."""

    port: int
    frame: bytes


Step = Insert | Default | Group | Session | SetMember | Packet


def apply(step: Step, switch: Target, line: int) -> None:
    """Do one step on a switch."""
    match step:
        case Insert(others=()):
            switch.insert(step.table, step.match, step.priority, step.action, step.params)
        case Insert():
            members = [(step.action, step.params), *step.others]
            switch.insert_group(step.table, step.match, members, priority=step.priority)
        case Default():
            switch.set_default(step.table, step.action, step.params)
        case Group():
            switch.set_group(step.group, step.replicas)
        case Session():
            switch.set_session(step.session, [(step.port, 0)])
        case SetMember():
            switch.add_member(step.value_set, step.value)
        case Packet():
            switch.send(step.port, step.frame, line)


def stf_text(steps: Iterable[Step], names: Names) -> str:
    """Return a case as the text of an STF test without expectations."""
    lines, nodes = [], 0
    for step in steps:
        match step:
            case Insert():
                table = names.table(step.table)
                keys = [key for key in table.keys if key.kind != "selector"]
                matches = [
                    f'"{key.name}":{_text(one, names.width(key))}' for key, one in zip(keys, step.match, strict=True)
                ]
                priority = [str(step.priority - 1)] if step.priority else []
                call = _call(names, step.table, step.action, step.params)
                lines.append(" ".join(["add", f'"{step.table}"', *priority, *matches, call]))
                # STF has no groups.
                lines += [f"# its group has {_call(names, step.table, *other)} too" for other in step.others]
            case Default():
                lines.append(f'setdefault "{step.table}" {_call(names, step.table, step.action, step.params)}')
            case Group():
                lines.append(f"mc_mgrp_create {step.group}")
                for port, instance in step.replicas:
                    lines += [f"mc_node_create {instance} {port}", f"mc_node_associate {step.group} {nodes}"]
                    nodes += 1
            case Session():
                lines.append(f"mirroring_add {step.session} {step.port}")
            case SetMember():
                lines.append(f"parse_vset_add {step.value_set} {step.value:#x}")
            case Packet():
                lines.append(f"packet {step.port} {step.frame.hex()}")
    return "".join(line + "\n" for line in lines)


def _call(names: Names, table: str, action: str, params: tuple[int, ...]) -> str:
    [found] = [one for one in map(names.action, names.table(table).action_ids) if one.name == action]
    given = [f"{name}:{value:#x}" for (name, _), value in zip(found.params, params, strict=True)]
    return f'"{action}"({", ".join(given)})'


def _text(match: Match, width: int) -> str:
    match match:
        case Exact(value):
            return f"{value:#x}"
        case Lpm(value, length):
            return f"{value:#x}/{length}"
        case Ternary(value, mask):
            return f"{value:#x}&&&{mask:#x}"
        case Range(low, high):
            return f"{low:#x}..{high:#x}"

"""Action profiles: ActionProfileMember and ActionProfileGroup (P4Runtime specification, section 9.2).

Each `write` returns a function that takes the write back, for atomic batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from switchsum_switch.messages.p4runtime import v1

from ..errors import EntryExists
from ..state.profiles import Profile, Weighted
from .refusal import invalid
from .schema import ProfileSchema, Schema, lookup
from .table_entries import DELETE, INSERT
from .targets import Undo, decode_watch, encode_watch
from .translate import decode_action_of, encode_action_of


@dataclass(frozen=True, slots=True)
class _Old:
    """A group as it was before a write."""

    members: tuple[Weighted, ...]
    max_size: int


class Profiles:
    """The members and groups of one program's action profiles; every method is called under the program's lock."""

    def __init__(self, schema: Schema) -> None:
        self._profiles = schema.profiles

    def write_member(self, kind: int, message: Any) -> Undo:
        """Carry out an update of an ActionProfileMember."""
        schema = lookup("action profile", self._profiles, message.action_profile_id)
        profile, number = schema.profile, _number("member", message.member_id)
        if kind == DELETE:
            old = profile.member(number)
            profile.delete_member(number)
            return lambda: profile.add_member(number, old.action, old.params, old.order)
        if not message.HasField("action"):
            raise invalid(f"member {number} of action profile {profile.name} needs an action")
        action, params = decode_action_of(schema, message.action, as_default=False)
        if kind == INSERT:
            _refuse_sets(profile)
            profile.add_member(number, action, params)
            return lambda: profile.delete_member(number)
        old = profile.member(number)
        profile.modify_member(number, action, params)
        return lambda: profile.modify_member(number, old.action, old.params)

    def read_member(self, query: Any) -> Iterator[Any]:
        """Yield the members that an ActionProfileMember selects; id 0 stands for all."""
        for schema in self._selected(query):
            members = schema.profile.members()
            if query.member_id:
                members = {query.member_id: schema.profile.member(query.member_id)}
            for number, member in members.items():
                message = v1.ActionProfileMember(action_profile_id=schema.identifier, member_id=number)
                encode_action_of(schema, member.action, member.params, message.action)
                yield message

    def write_group(self, kind: int, message: Any) -> Undo:
        """Carry out an update of an ActionProfileGroup."""
        schema = lookup("action profile", self._profiles, message.action_profile_id)
        profile, number = schema.profile, _number("group", message.group_id)
        old = _group(profile, number) if kind != INSERT or number in profile.groups() else None
        if kind == DELETE:
            profile.delete_group(number)
        else:
            if kind == INSERT and old is not None:
                raise EntryExists(f"action profile {profile.name} has a group {number} already")
            _refuse_sets(profile)
            _set_group(schema, number, message, old)
        if old is None:
            return lambda: profile.delete_group(number)
        return lambda: profile.set_group(number, old.members, old.max_size)

    def read_group(self, query: Any) -> Iterator[Any]:
        """Yield the groups that an ActionProfileGroup selects; id 0 stands for all."""
        for schema in self._selected(query):
            groups = schema.profile.groups()
            if query.group_id:
                groups = {query.group_id: schema.profile.group(query.group_id)}
            for number, group in groups.items():
                message = v1.ActionProfileGroup(action_profile_id=schema.identifier, group_id=number)
                message.max_size = group.max_size
                for one in group.members:
                    weight = schema.rules.written_weight(one.weight)
                    encode_watch(one.watch, message.members.add(member_id=one.member, weight=weight))
                yield message

    def _selected(self, query: Any) -> Iterable[ProfileSchema]:
        if query.action_profile_id:
            return [lookup("action profile", self._profiles, query.action_profile_id)]
        return self._profiles.values()


def _set_group(schema: ProfileSchema, number: int, message: Any, old: _Old | None) -> None:
    what, rules = f"group {number} of action profile {schema.name}", schema.rules
    if message.max_size < 0 or (rules.max_group_size and message.max_size > rules.max_group_size):
        raise invalid(f"{what}: max_size is {message.max_size}, and P4Info allows {rules.max_group_size}")
    if old is not None and message.max_size not in (0, old.max_size):
        raise invalid(f"{what}: max_size cannot be changed")
    max_size = message.max_size or (old.max_size if old else 0)
    members = []
    for one in message.members:
        weight = rules.weight(one.weight, f"member {one.member_id} of {what}")
        members.append(Weighted(one.member_id, weight, decode_watch(one)))
    rules.check_size([one.weight for one in members], max_size, what)
    schema.profile.set_group(number, members, max_size)


def _refuse_sets(profile: Profile) -> None:
    """Raise Refused if entries have sets of actions: a selector is used in one way or the other (section 9.2.3)."""
    if profile.has_sets:
        raise invalid(f"entries have sets of actions of action profile {profile.name}: it has no other members")


def _group(profile: Profile, number: int) -> _Old:
    found = profile.group(number)
    return _Old(found.members, found.max_size)


def _number(what: str, number: int) -> int:
    if not number:
        raise invalid(f"no {what} has the number 0")
    return number

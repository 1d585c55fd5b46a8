"""What a table entry leads to: an action, a member or a group of an action profile, or a set of actions of its own.

A set of actions (section 9.2.3, "one shot") is a group that no client can name: it comes and goes with its entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from switchsum_switch.messages.p4runtime import encode_uint, v1

from ..messages.matches import Match
from ..state.profiles import ONE_SHOT, Profile, SetAction, Watch
from ..state.tables import Entry, Group, ProfileMember
from .refusal import invalid
from .schema import TableSchema
from .translate import PORT_BITS, decode_action, decode_action_of, decode_value, encode_action, encode_action_of

Undo = Callable[[], object]
"""Takes a write back; called under the same lock, for the newest write first."""


def make_entry(
    schema: TableSchema, match: tuple[Match, ...], priority: int, idle_timeout_ns: int, message: Any
) -> tuple[Entry, Undo]:
    """Read a TableAction; return an entry that leads there, and what takes back what it needed.  Raises Refused."""
    profile = schema.table.profile
    if not isinstance(profile, Profile):
        action, params = decode_action(schema, message, as_default=False)
        entry = Entry(match=match, priority=priority, action=action, params=params, idle_timeout_ns=idle_timeout_ns)
        return entry, _nothing
    made = partial(Entry, match=match, priority=priority, idle_timeout_ns=idle_timeout_ns)
    match message.WhichOneof("type"):
        case "action_profile_member_id":
            return made(via=ProfileMember(message.action_profile_member_id)), _nothing
        case "action_profile_group_id":
            return made(via=Group(message.action_profile_group_id)), _nothing
        case "action_profile_action_set":
            wanted = message.action_profile_action_set
            if profile.has_members:
                raise invalid(
                    f"action profile {profile.name} has members or groups: its tables take no sets of actions"
                )
            modes = wanted.action_selection_mode, wanted.size_semantics
            group = profile.add_set(_decode_set(schema, wanted), modes=modes)
            return made(via=group), lambda: profile.drop_set(group)
    raise invalid(f"table {schema.name} takes members, groups and sets of actions, not {message.WhichOneof('type')}")


def drop_set(schema: TableSchema, entry: Entry) -> Undo:
    """Remove the set of actions of an entry that is gone, if it had one; return what brings the set back."""
    profile, via = schema.table.profile, entry.via
    if not isinstance(profile, Profile) or not isinstance(via, Group) or via.number < ONE_SHOT:
        return _nothing
    modes = profile.group(via.number).modes
    actions = profile.drop_set(via)
    return lambda: profile.add_set(actions, via, modes)


def encode_target(schema: TableSchema, entry: Entry) -> Any:
    """Write the TableAction of an entry; return None for an action that P4Info does not list."""
    profile, message = schema.table.profile, v1.TableAction()
    match entry.via:
        case ProfileMember(number):
            message.action_profile_member_id = number
        case Group(number) if number >= ONE_SHOT and isinstance(profile, Profile):
            made_set = message.action_profile_action_set
            made_set.action_selection_mode, made_set.size_semantics = profile.group(number).modes
            for one in profile.actions_of(entry.via):
                weight = schema.rules.written_weight(one.weight) if schema.rules else one.weight
                made = made_set.action_profile_actions.add(weight=weight)
                encode_action_of(schema, one.action, one.params, made.action)
                encode_watch(one.watch, made)
        case Group(number):
            message.action_profile_group_id = number
        case None:
            return encode_action(schema, entry.action, entry.params)
    return message


def decode_watch(message: Any) -> Watch | None:
    """Read which port a member of a group or a set watches; None: none."""
    match message.WhichOneof("watch_kind"):
        case "watch_port":
            return Watch(decode_value(message.watch_port, PORT_BITS, "watch_port"))
        case "watch":
            return Watch(message.watch, by_number=True)
    return None


def encode_watch(watch: Watch | None, message: Any) -> None:
    """Write which port a member watches, in the field in which a client gave it."""
    if watch is None:
        return
    if watch.by_number:
        message.watch = watch.port
    else:
        message.watch_port = encode_uint(watch.port)


@contextmanager
def undone(undo: Undo) -> Iterator[None]:
    """Call `undo` if what follows raises."""
    try:
        yield
    except BaseException:
        undo()
        raise


def _decode_set(schema: TableSchema, message: Any) -> list[SetAction]:
    if not message.action_profile_actions or schema.rules is None:
        raise invalid(f"table {schema.name}: a set of actions has one at least")
    made = []
    for one in message.action_profile_actions:
        action, params = decode_action_of(schema, one.action, as_default=False)
        weight = schema.rules.weight(one.weight, f"an action of table {schema.name}")
        made.append(SetAction(action, params, weight, decode_watch(one)))
    schema.rules.check_set(message, [one.weight for one in made], f"table {schema.name}")
    return made


def _nothing() -> None:
    """Take nothing back."""

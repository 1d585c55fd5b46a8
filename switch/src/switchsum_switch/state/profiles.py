"""Action profiles: entries of a table name a member, which has the action, or a group, of which a hash picks a member.

Each member has a slot, and native code a row for each slot.  Each member and each group is a *choice*: a list of slots.
A group's list has each of its members as often as its weight says, in the order in which the members were added, and
the selector's hash, modulo the length of the list, is the place in it.  BMv2 chooses in this order, too.  A set of
actions may ask for a random number in place of the hash; BMv2 does not have that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..errors import BadEntry, EntryExists, EntryMissing, InUse, MemberMissing, StateError, TableFull
from ..queues.queues import PORTS
from .liveness import Liveness
from .lock import StateLock
from .tables import NO_ACTION, Group, Mirror, ProfileMember, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileInfo:
    """An action profile."""

    name: str
    size: int
    """Most members."""
    has_groups: bool


@dataclass(frozen=True, slots=True)
class MemberAction:
    """What a member does."""

    slot: int
    """Place among the profile's members."""
    order: int
    """Grows from one member to the next that is added."""
    action: str
    params: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Watch:
    """The port of which a member of a group depends."""

    port: int
    by_number: bool = False
    """A client named it in P4Runtime's deprecated field `watch`, and reads it there."""


@dataclass(frozen=True, slots=True)
class Weighted:
    """A member of a group."""

    member: int
    weight: int = 1
    """How often it is chosen, compared with the group's other members."""
    watch: Watch | None = None
    """It is chosen only while this port is up."""


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """The members of a group."""

    choice: int
    """Number of its list of slots."""
    members: tuple[Weighted, ...]
    max_size: int = 0
    """Most members of the group, as a P4Runtime client gave it; the switch itself does not look at it."""
    modes: tuple[int, int] = (0, 0)
    """Mode of choice and size of a set of actions, as a P4Runtime client gave it."""

    @property
    def at_random(self) -> bool:
        """Whether a random number chooses the member."""
        return self.modes[0] == AT_RANDOM


@dataclass(frozen=True, slots=True)
class ProfileContent:
    """What `Profile.save` keeps."""

    members: dict[int, MemberAction]
    groups: dict[int, GroupMembers]


@dataclass(frozen=True, slots=True)
class SetAction:
    """One action of a set that belongs to one entry."""

    action: str
    params: tuple[int, ...]
    weight: int
    watch: Watch | None = None
    """It is chosen only while this port is up."""


AT_RANDOM = 2
"""P4Runtime's number for choosing at random (`ActionSelectionMode`)."""
ONE_SHOT = 1 << 32
"""Least number of the members and groups of such sets: P4Runtime's own numbers have 32 bits."""
MOST_CHOICES = 1 << 16
"""Members and groups of one profile together."""


class Numbers:
    """Hands out numbers from `first` to `end` - 1, those that were given back before new ones."""

    def __init__(self, first: int, end: int) -> None:
        self._first = self._next = first
        self._end = end
        self._free: list[int] = []

    def take(self) -> int | None:
        """Return a number; None if all are taken."""
        if self._free:
            return self._free.pop()
        if self._next >= self._end:
            return None
        self._next += 1
        return self._next - 1

    def give(self, number: int) -> None:
        """Take a number back."""
        self._free.append(number)

    def reset(self, taken: set[int]) -> None:
        """Begin anew with numbers that are taken."""
        self._next = max(taken, default=self._first - 1) + 1
        self._free = [number for number in range(self._first, self._next) if number not in taken]


class Profile:
    """The members and groups of one action profile; every method holds the pipeline's lock."""

    def __init__(self, info: ProfileInfo, tables: Sequence[Table], lock: StateLock, ports: Liveness) -> None:
        self._ports = ports
        ports.follow(self)
        self.name = info.name
        self.size = info.size
        """Most members."""
        self.has_groups = info.has_groups
        self.tables = tuple(tables)
        """The tables that use it."""
        self._lock = lock
        self._members: dict[int, MemberAction] = {}
        self._groups: dict[int, GroupMembers] = {}
        self._order = 0
        self._slots = Numbers(0, info.size)
        self._choices = Numbers(1 + info.size, MOST_CHOICES)
        self._sets = 0
        """Groups that belong to one entry each."""
        self._set_members = 0
        """Members that belong to such groups."""
        self._last_set = ONE_SHOT
        self._mirrors: list[Mirror] = []
        for table in tables:
            table.profile = self

    def members(self) -> dict[int, MemberAction]:
        """Return all members by number, without those of sets."""
        with self._lock:
            return {number: member for number, member in self._members.items() if number < ONE_SHOT}

    def groups(self) -> dict[int, GroupMembers]:
        """Return all groups by number, without sets."""
        with self._lock:
            return {number: group for number, group in self._groups.items() if number < ONE_SHOT}

    def member(self, number: int) -> MemberAction:
        """Return a member; raises EntryMissing."""
        with self._lock:
            if number not in self._members:
                raise EntryMissing(f"action profile {self.name} has no member {number}")
            return self._members[number]

    def group(self, number: int) -> GroupMembers:
        """Return a group; raises EntryMissing."""
        with self._lock:
            if number not in self._groups:
                raise EntryMissing(f"action profile {self.name} has no group {number}")
            return self._groups[number]

    def add_member(self, number: int, action: str, params: tuple[int, ...] = (), order: int | None = None) -> None:
        """Add a member; raises EntryExists, TableFull or BadEntry.

        `order` is that of a member which was deleted and comes back to its place; None: it is the newest.
        """
        with self._lock:
            if number in self._members:
                raise EntryExists(f"action profile {self.name} has a member {number} already")
            self._check_action(action, params)
            slot = self._slots.take()
            if slot is None:
                raise TableFull(f"action profile {self.name} is full ({self.size} members)")
            self._set_members += number >= ONE_SHOT
            self._order += order is None
            self._put_member(number, MemberAction(slot, self._order if order is None else order, action, params))

    def modify_member(self, number: int, action: str, params: tuple[int, ...] = ()) -> None:
        """Change what a member does; raises EntryMissing or BadEntry."""
        with self._lock:
            old = self.member(number)
            self._check_action(action, params)
            self._put_member(number, replace(old, action=action, params=params))

    def delete_member(self, number: int) -> None:
        """Remove a member; raises EntryMissing, or InUse while an entry or a group names it."""
        with self._lock:
            self.member(number)
            for group, found in self._groups.items():
                if any(one.member == number for one in found.members):
                    raise InUse(f"member {number} of action profile {self.name} is in group {group}")
            self._check_unused(ProfileMember(number))
            self._slots.give(self._members.pop(number).slot)
            self._set_members -= number >= ONE_SHOT

    def set_group(
        self, number: int, members: Sequence[Weighted], max_size: int = 0, modes: tuple[int, int] = (0, 0)
    ) -> None:
        """Create a group or replace its members; raises BadEntry or TableFull."""
        with self._lock:
            made = tuple(members)
            self._check_group(number, made)
            old = self._groups.get(number)
            choice = old.choice if old else self._choices.take()
            if choice is None:
                raise TableFull(f"action profile {self.name} has room for {MOST_CHOICES - 1 - self.size} groups")
            self._sets += old is None and number >= ONE_SHOT
            self._groups[number] = GroupMembers(choice, made, max_size, modes)
            self._put_group(number)

    def delete_group(self, number: int) -> None:
        """Remove a group; raises EntryMissing, or InUse while an entry names it."""
        with self._lock:
            self.group(number)
            self._check_unused(Group(number))
            self._choices.give(self._groups.pop(number).choice)
            self._sets -= number >= ONE_SHOT

    @property
    def has_sets(self) -> bool:
        """Whether entries have sets of actions of their own."""
        return self._sets > 0

    @property
    def has_members(self) -> bool:
        """Whether there are members or groups that belong to no entry."""
        return len(self._members) > self._set_members or len(self._groups) > self._sets

    def add_set(
        self, actions: Sequence[SetAction], group: Group | None = None, modes: tuple[int, int] = (0, 0)
    ) -> Group:
        """Add a group with members of its own, for one entry; raises TableFull or BadEntry, and then adds nothing.

        `group` is one that was dropped and comes back.
        """
        with self._lock:
            first = self._last_set + 1
            self._last_set += 1 + len(actions)
            made = group or Group(first)
            added: list[Weighted] = []
            try:
                for number, one in enumerate(actions, start=first + 1):
                    self.add_member(number, one.action, one.params)
                    added.append(Weighted(number, one.weight, one.watch))
                self.set_group(made.number, added, modes=modes)
            except StateError:
                for weighted in added:
                    self.delete_member(weighted.member)
                raise
            return made

    def drop_set(self, group: Group) -> list[SetAction]:
        """Remove such a group and its members, and return what they were; no entry names it any more."""
        with self._lock:
            actions, members = self.actions_of(group), self.group(group.number).members
            self.delete_group(group.number)
            for one in members:
                self.delete_member(one.member)
            return actions

    def actions_of(self, group: Group) -> list[SetAction]:
        """Return the actions of a group's members; raises EntryMissing."""
        with self._lock:
            found = [(self._members[one.member], one) for one in self.group(group.number).members]
            return [SetAction(member.action, member.params, one.weight, one.watch) for member, one in found]

    def number_of(self, via: ProfileMember | Group) -> int:
        """Return the number of the choice that a member or group is; raises MemberMissing if there is none."""
        if isinstance(via, ProfileMember):
            if via.number not in self._members:
                raise MemberMissing(f"action profile {self.name} has no member {via.number}")
            return 1 + self._members[via.number].slot
        if via.number not in self._groups:
            raise MemberMissing(f"action profile {self.name} has no group {via.number}")
        return self._groups[via.number].choice

    def choose(self, via: ProfileMember | Group, selected: int) -> tuple[str, tuple[int, ...]]:
        """Return the action and parameters of a member, or of the member of a group that a hash selects."""
        numbers = [via.number] if isinstance(via, ProfileMember) else self._listed(self._groups[via.number])
        if not numbers:
            return NO_ACTION, ()
        member = self._members[numbers[selected % len(numbers)]]
        return member.action, member.params

    def at_random(self, via: ProfileMember | Group) -> bool:
        """Return whether a random number, not the selector's hash, chooses the member."""
        return isinstance(via, Group) and self._groups[via.number].at_random

    def attach(self, mirror: Mirror) -> None:
        """Write all members and choices to a mirror, and tell it of every change from now on."""
        self._mirrors.append(mirror)
        for number, member in self._members.items():
            self._put_member(number, member)
        for number in self._groups:
            self._put_group(number)

    def ports_changed(self) -> None:
        """Choose among the members whose ports are up."""
        with self._lock:
            for number in self._groups:
                self._put_group(number)

    def save(self) -> ProfileContent:
        """Return a copy of everything that can change."""
        with self._lock:
            return ProfileContent(dict(self._members), dict(self._groups))

    def restore(self, content: ProfileContent) -> None:
        """Bring back what `save` has returned; the tables that use the profile are restored after it."""
        with self._lock:
            self._members, self._groups = {}, dict(content.groups)
            self._slots.reset({member.slot for member in content.members.values()})
            self._choices.reset({group.choice for group in content.groups.values()})
            self._sets, self._set_members = (
                sum(number >= ONE_SHOT for number in numbers) for numbers in (content.groups, content.members)
            )
            self._last_set = max([self._last_set, *content.groups, *content.members])
            for number, member in content.members.items():
                self._put_member(number, member)
            for number in self._groups:
                self._put_group(number)

    def _put_member(self, number: int, member: MemberAction) -> None:
        self._members[number] = member
        for mirror in self._mirrors:
            mirror.put_member(member.slot, member.action, member.params)
            mirror.put_choice(1 + member.slot, [member.slot], at_random=False)

    def _put_group(self, number: int) -> None:
        group = self._groups[number]
        slots = [self._members[one].slot for one in self._listed(group)]
        for mirror in self._mirrors:
            mirror.put_choice(group.choice, slots, at_random=group.at_random)

    def _listed(self, group: GroupMembers) -> list[int]:
        """Return the members of a group by the order in which they were added, each as often as its weight says.

        Members whose port is down are left out.
        """
        up = [one for one in group.members if one.watch is None or self._ports.is_up(one.watch.port)]
        ordered = sorted(up, key=lambda one: self._members[one.member].order)
        return [one.member for one in ordered for _ in range(one.weight)]

    def _check_action(self, action: str, params: tuple[int, ...]) -> None:
        for table in self.tables:
            table.check_action(action, params)

    def _check_group(self, number: int, members: tuple[Weighted, ...]) -> None:
        what = f"group {number} of action profile {self.name}"
        if not self.has_groups:
            raise BadEntry(f"action profile {self.name} has no selector, and so no groups")
        if len({one.member for one in members}) != len(members):
            raise BadEntry(f"{what} names a member twice: give it a weight")
        for one in members:
            if one.member not in self._members:
                raise MemberMissing(f"{what}: there is no member {one.member}")
            if one.watch is not None and not 0 <= one.watch.port < PORTS:
                raise BadEntry(f"{what}: member {one.member} watches port {one.watch.port}, and there is none")
            if one.weight < 1:
                raise BadEntry(f"{what}: member {one.member} has the weight {one.weight}, not 1 or more")
        total = sum(one.weight for one in members)
        if total > MOST_CHOICES:
            raise TableFull(f"{what} has room for {MOST_CHOICES} members by weight, not {total}")

    def _check_unused(self, via: ProfileMember | Group) -> None:
        for table in self.tables:
            if any(entry.via == via for entry in table.entries()):
                what = "member" if isinstance(via, ProfileMember) else "group"
                raise InUse(f"{what} {via.number} of action profile {self.name} is in table {table.spec.name}")

"""An action profile as the writer of a P4 program uses it: actions and parameters by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..errors import BadEntry
from ..state.profiles import ONE_SHOT, MemberAction, Profile, Watch, Weighted
from .named import Named
from .named_tables import params_of
from .values import text_of


class NamedProfile:
    """An action profile of a `Switch`.

    Example:
        >>> profile = switch.profiles["ingress.ecmp"]  # doctest: +SKIP
        >>> profile.add_member(1, "forward", port=3)  # doctest: +SKIP
        >>> profile.add_member(2, "forward", port=4)  # doctest: +SKIP
        >>> profile.set_group(1, {1: 2, 2: 1})  # member 1 twice as often  # doctest: +SKIP
        >>> switch.tables["routes"].insert({"dst": "10.0.0.0/8"}, Group(1))  # doctest: +SKIP

    """

    def __init__(self, profile: Profile) -> None:
        """Show `profile`."""
        self.profile = profile
        """The profile itself, with numbers in the place of names."""
        self.name = profile.name
        actions = {action.name: action for table in profile.tables for action in table.spec.actions}
        self._actions = Named(f"action of profile {self.name}", actions)

    def add_member(self, number: int, action: str, /, **params: Any) -> None:
        """Add a member.

        Args:
            number: Number of the member.
            action: Name of its action.
            params: The action's parameters by name.

        Raises:
            EntryExists: The profile has a member of this number.
            TableFull: The profile has no room.
            KeyError: As in `NamedTable.insert`; also ValueError and TypeError.

        """
        spec = self._actions[action]
        self.profile.add_member(_checked("member", number), spec.name, params_of(spec, params))

    def modify_member(self, number: int, action: str, /, **params: Any) -> None:
        """Change the action of a member.

        Args:
            number: Number of the member.
            action: Name of its new action.
            params: The action's parameters by name.

        Raises:
            EntryMissing: There is no such member.
            KeyError: As in `NamedTable.insert`; also ValueError and TypeError.

        """
        spec = self._actions[action]
        self.profile.modify_member(number, spec.name, params_of(spec, params))

    def delete_member(self, number: int) -> None:
        """Remove a member.

        Args:
            number: Number of the member.

        Raises:
            EntryMissing: There is no such member.
            InUse: An entry or a group names it.

        """
        self.profile.delete_member(number)

    def set_group(
        self, number: int, members: Iterable[int] | Mapping[int, int], watch: Mapping[int, int] | None = None
    ) -> None:
        """Create a group, or replace its members.

        Args:
            number: Number of the group.
            members: Numbers of members, or a weight for each: `{1: 2, 2: 1}` chooses member 1 twice as often.
            watch: A port for each of some members: such a member is chosen only while its port is up.

        Raises:
            BadEntry: A member does not exist, or a weight is out of range.

        """
        weights = members if isinstance(members, Mapping) else dict.fromkeys(members, 1)
        ports = {member: Watch(port) for member, port in (watch or {}).items()}
        self.profile.set_group(
            _checked("group", number),
            [Weighted(one, weight, ports.get(one)) for one, weight in weights.items()],
        )

    def delete_group(self, number: int) -> None:
        """Remove a group.

        Args:
            number: Number of the group.

        Raises:
            EntryMissing: There is no such group.
            InUse: An entry names it.

        """
        self.profile.delete_group(number)

    @property
    def members(self) -> dict[int, str]:
        """What each member does, by its number."""
        return {number: self._text(member) for number, member in self.profile.members().items()}

    @property
    def groups(self) -> dict[int, dict[int, int]]:
        """The members of each group and their weights, by the group's number."""
        groups = self.profile.groups().items()
        return {number: {one.member: one.weight for one in group.members} for number, group in groups}

    def __repr__(self) -> str:
        """Say what is in the profile."""
        members, groups = len(self.profile.members()), len(self.profile.groups())
        return f"<action profile {self.name}: {members} of {self.profile.size} members, {groups} groups>"

    def _text(self, member: MemberAction) -> str:
        pairs = zip(self._actions[member.action].params, member.params, strict=True)
        shown = ", ".join(f"{one.name}={text_of(value, one.width, one.name)}" for one, value in pairs)
        return f"{member.action}({shown})"


def _checked(what: str, number: int) -> int:
    """Return the number of a member or group; raises TypeError or BadEntry."""
    if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
        raise TypeError(f"a {what} has a number, not {number!r}")
    if not 0 <= number < ONE_SHOT:
        raise BadEntry(f"a {what} has a number from 0 to {ONE_SHOT - 1}, not {number}")
    return int(number)

"""An action profile as the writer of a P4 program uses it: actions and parameters by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .named import Named
from .named_tables import params_of
from .profiles import Profile, Watch, Weighted


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
        """Add a member; raises EntryExists, TableFull, and what `NamedTable.insert` raises for an action."""
        spec = self._actions[action]
        self.profile.add_member(number, spec.name, params_of(spec, params))

    def modify_member(self, number: int, action: str, /, **params: Any) -> None:
        """Change what a member does; raises EntryMissing, and what `NamedTable.insert` raises for an action."""
        spec = self._actions[action]
        self.profile.modify_member(number, spec.name, params_of(spec, params))

    def delete_member(self, number: int) -> None:
        """Remove a member; raises EntryMissing, or InUse while an entry or a group names it."""
        self.profile.delete_member(number)

    def set_group(
        self, number: int, members: Iterable[int] | Mapping[int, int], watch: Mapping[int, int] | None = None
    ) -> None:
        """Create a group or replace its members, given as numbers, or as numbers with weights; raises BadEntry.

        `watch` gives members a port each: such a member is chosen only while its port is up.
        """
        weights = members if isinstance(members, Mapping) else dict.fromkeys(members, 1)
        ports = {member: Watch(port) for member, port in (watch or {}).items()}
        self.profile.set_group(number, [Weighted(one, weight, ports.get(one)) for one, weight in weights.items()])

    def delete_group(self, number: int) -> None:
        """Remove a group; raises EntryMissing, or InUse while an entry names it."""
        self.profile.delete_group(number)

    def __repr__(self) -> str:
        """Say what is in the profile."""
        members, groups = len(self.profile.members()), len(self.profile.groups())
        return f"<action profile {self.name}: {members} of {self.profile.size} members, {groups} groups>"

"""What P4Info says of the groups of an action selector: sizes and weights (P4Runtime specification, 9.2.2, 9.2.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from switchsum_switch.messages.p4runtime import Code, v1

from .refusal import Refused, invalid

_Set = v1.ActionProfileActionSet


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRules:
    """The limits of a selector's groups."""

    max_group_size: int
    """0: P4Info does not say."""
    by_members: bool
    """A group's size is the number of its members; if not, the sum of their weights."""
    max_member_weight: int
    """0: P4Info does not say."""
    weights_disallowed: bool
    """The switch chooses the weights, and clients write none."""

    @classmethod
    def of(cls, info: Any) -> GroupRules:
        """Return the rules of an action profile of P4Info."""
        return cls(
            max_group_size=info.max_group_size,
            by_members=info.HasField("sum_of_members"),
            max_member_weight=info.sum_of_members.max_member_weight,
            weights_disallowed=info.weights_disallowed,
        )

    def weight(self, given: int, what: str) -> int:
        """Return how often a member counts; raises Refused for a weight that P4Info does not allow."""
        if self.weights_disallowed:
            if given:
                raise invalid(f"{what}: the switch chooses the weights, {given} is given")
            return 1
        if given < 1:
            raise invalid(f"{what}: a weight is 1 or more, not {given}")
        if self.by_members and self.max_member_weight and given > self.max_member_weight:
            raise invalid(f"{what}: a weight is at most {self.max_member_weight}, not {given}")
        return given

    def written_weight(self, weight: int) -> int:
        """Return the weight as clients write it."""
        return 0 if self.weights_disallowed else weight

    def check_size(self, weights: Sequence[int], max_size: int, what: str) -> None:
        """Raise Refused if a group is larger than a client or P4Info allows."""
        most, size = max_size or self.max_group_size, len(weights) if self.by_members else sum(weights)
        if most and size > most:
            by = "members" if self.by_members else "members by weight"
            raise Refused(Code.RESOURCE_EXHAUSTED, f"{what} has room for {most} {by}, not {size}")

    def check_set(self, message: Any, weights: Sequence[int], what: str) -> None:
        """Raise Refused if a set of actions has what P4Runtime 1.5 does not know, or is too large."""
        if message.HasField("group_action"):
            raise Refused(Code.UNIMPLEMENTED, f"{what}: sets have no action of the group's own (P4Runtime 1.6)")
        by_members = {_Set.SUM_OF_WEIGHTS: False, _Set.SUM_OF_MEMBERS: True}.get(
            message.size_semantics, self.by_members
        )
        size = len(weights) if by_members else sum(weights)
        if self.max_group_size and size > self.max_group_size:
            raise invalid(f"{what}: a set has {self.max_group_size} actions at most, not {size}")

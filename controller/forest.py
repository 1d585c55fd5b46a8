"""A job over trees of switches: what each switch reserves for it, and the branches that each one gets.

Both steps are pure functions over what is known of all switches, so that a job that cannot be served is refused before
anything is written to any of them.

`reserve` takes slots and multicast groups, when the job is made.  Each switch numbers its own slots; those that it has
for a job's trees lie side by side, in the order of the trees.  `lay_out` gives every switch its members and the switch
above, when all workers have said hello.  A switch has 32 bits, one for each of its members: those are workers that
joined at it, and switches below.  So a bit is a place at one switch, and no rank; ranks beyond those of the workers name the
switches, one for each tree that a switch is not the root of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from switchsum.protocol.errors import NoCapacity, UsageError
from switchsum.protocol.frame import MAX_WORKERS, padding_bytes
from switchsum.protocol.wire import Address

from .branch import Above, Branch, Place
from .slots import SlotRange, first_fit

if TYPE_CHECKING:
    from .trees import AggregationTree

LAST_RANK: Final = 0xFFFE
"""65535 is the rank of a job's record."""
LAST_TREE: Final = 0xFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A switch, as far as a job over trees depends on it."""

    address: Address
    ports: Mapping[str, int]
    """The port that leads to each switch beside it."""
    lanes: int
    """Lanes of a frame of the program that it runs."""
    total_slots: int
    growth_bytes: int = 0xFFFF
    """Most bytes by which its frames may grow; 65535: no limit."""
    taken: tuple[SlotRange, ...] = ()
    """Slots of other jobs."""
    groups: frozenset[int] = frozenset()
    """Multicast groups of other jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A worker as its hello came: where, and from which address."""

    host: str
    switch: str
    port: int
    address: Address
    cookie: int
    record: bytes = b""
    """Metadata of its admission."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """What one switch has for the trees of a job that pass it, by the tree's number."""

    slots: dict[int, SlotRange] = field(default_factory=dict)
    groups: dict[int, int] = field(default_factory=dict)

    @property
    def all_slots(self) -> SlotRange:
        """The slots of all trees together."""
        first = min(self.slots.values())
        return SlotRange(first=first.first, count=sum(slots.count for slots in self.slots.values()))


def reserve(
    trees: Sequence[AggregationTree], sites: Mapping[str, Site], *, first_group: int, last_group: int
) -> dict[str, Reserved]:
    """Find slots and groups on every switch of the trees.

    Raises UsageError for a switch that is not there, runs another program or has no port to the next one, and
    NoCapacity for one that has too few slots or groups left.
    """
    if not 1 <= len(trees) <= LAST_TREE + 1:
        raise UsageError(f"a job has 1 to {LAST_TREE + 1} trees, not {len(trees)}")
    passing: dict[str, list[int]] = {}
    for number, tree in enumerate(trees):
        for switch in switches_of(tree):
            passing.setdefault(switch, []).append(number)
    _check_sites(trees, list(passing), sites)
    found = {}
    for switch, numbers in passing.items():
        site, count = sites[switch], sum(trees[number].slots for number in numbers)
        slots = first_fit(site.taken, count, site.total_slots)
        if slots is None:
            free = site.total_slots - sum(taken.count for taken in site.taken)
            raise NoCapacity(f"switch {switch}: no {count} slots in a row are free ({free} are free in all; --slots)")
        groups = [group for group in range(first_group, last_group + 1) if group not in site.groups][: len(numbers)]
        if len(groups) < len(numbers):
            raise NoCapacity(f"switch {switch}: it has no {len(numbers)} multicast groups left")
        reserved, first = Reserved(groups=dict(zip(numbers, groups, strict=True))), slots.first
        for number in numbers:
            reserved.slots[number] = SlotRange(first=first, count=trees[number].slots)
            first += trees[number].slots
        found[switch] = reserved
    return found


def switches_of(tree: AggregationTree) -> list[str]:
    """Return the switches of a tree, each behind the one above it."""
    order = [tree.root]
    parents = set(tree.parents.values())
    for switch in order:
        order += sorted(child for child, parent in tree.parents.items() if parent == switch and child in parents)
    return order


def lay_out(
    trees: Sequence[AggregationTree],
    reserved: Mapping[str, Reserved],
    sites: Mapping[str, Site],
    seats: Sequence[Seat],
    *,
    job: int,
    epoch: int,
    draw_cookie: Callable[[], int],
    record: bytes = b"",
) -> dict[str, list[Branch]]:
    """Give each switch its part in each tree; `seats` are the workers by rank.

    Switches are in an order in which each comes behind those above it, so that one that is written in this order never sends
    to a switch that does not know it yet.  Raises UsageError for workers that the trees do not serve.
    """
    _check_seats(trees, seats)
    found: dict[str, list[Branch]] = {}
    next_rank = len(seats)
    for number, tree in enumerate(trees):
        order = switches_of(tree)
        ranks = {switch: next_rank + place for place, switch in enumerate(order[1:])}
        next_rank += len(ranks)
        if next_rank > LAST_RANK + 1:
            raise UsageError(f"{len(seats)} workers and the switches of {len(trees)} trees are more than {LAST_RANK + 1}")
        cookies = {switch: draw_cookie() for switch in ranks}
        for switch in order:
            places = [
                Place(
                    rank=rank,
                    bit=0,
                    address=seat.address,
                    port=seat.port,
                    cookie=seat.cookie,
                    record=seat.record,
                )
                for rank, seat in enumerate(seats)
                if seat.switch == switch
            ]
            places += [
                Place(
                    rank=ranks[below],
                    bit=0,
                    address=sites[below].address,
                    port=sites[switch].ports[below],
                    cookie=cookies[below],
                    is_switch=True,
                    record=record,
                )
                for below in order[1:]
                if tree.parents[below] == switch
            ]

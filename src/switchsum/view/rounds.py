"""The newest round of each slot, over all switches of the tree to which the slot belongs: who is missing in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from switchsum_protocol import rpc
from switchsum_protocol.frame import Flag
from switchsum_protocol.serial import is_older

UNUSED: Final = (0, 0, 0)
"""Number, ranks and flags of a slot that was never used; known by its identity, for the first round has number 0."""


class Round(NamedTuple):  # of which a page makes a thousand at a time
    """The newest round of a slot."""

    slot: int
    number: int
    contributed: int
    """Bitmap of the ranks that have contributed, at whatever switch; 0: the slot was never used."""
    missing: list[int]
    """The other ranks, ascending."""
    is_complete: bool
    """All have contributed, and where several switches add, one of the lower ones has the sum of all."""


def newest_rounds(job: rpc.JobInfo, cells: Sequence[rpc.SlotInfo]) -> list[Round]:
    """Return the newest round of each slot of a job, by slot.

    A bit of a cell is a member of that switch: its ranks in order, behind them the switches below, of which each adds
    up its own.  All switches of a tree give a round the same number, and so does a fallback.
    """
    newest: dict[int, tuple[int, int, int]] = {}  # by slot: number, ranks that have contributed, flags
    bitmaps: dict[tuple[str, int], int] = {}  # of ranks; few bitmaps of cells differ, so each is looked at once
    for cell in _own_cells(job, cells) if job.shares_slots else cells:
        key = cell.switch, cell.seen
        if key not in bitmaps:
            bitmaps[key] = sum(1 << rank for rank in ranks_of(job, cell))
        found = newest.get(cell.slot, UNUSED)
        if not cell.seen:
            newest[cell.slot] = found
        elif found is not UNUSED and cell.number == found[0]:
            newest[cell.slot] = cell.number, found[1] | bitmaps[key], found[2] | cell.flags
        elif found is UNUSED or is_older(found[0], cell.number):
            newest[cell.slot] = cell.number, bitmaps[key], cell.flags
    missing = {
        contributed: [rank for rank in range(job.workers) if not contributed >> rank & 1]
        for contributed in {one[1] for one in newest.values()}
    }
    rounds = []
    for slot, found in sorted(newest.items()):
        number, contributed, flags = found
        has_all = found is not UNUSED and not missing[contributed] and (not job.tree or bool(flags & Flag.FINAL))
        rounds.append(Round(slot, number, contributed, [] if found is UNUSED else missing[contributed], has_all))
    return rounds


def _own_cells(job: rpc.JobInfo, cells: Sequence[rpc.SlotInfo]) -> Iterator[rpc.SlotInfo]:
    """Yield what a job has of slots that it shares; its slots at the fallback under the numbers of those."""
    for cell in cells:
        if cell.job != job.job:
            continue
        is_there = cell.switch == job.fallback
        yield replace(cell, slot=cell.slot - job.fallback_slot + job.first_slot) if is_there else cell


def ranks_of(job: rpc.JobInfo, cell: rpc.SlotInfo) -> list[int]:
    """Return the ranks whose bits are set in a cell."""
    return [rank for bit, rank in enumerate(ranks_at(job, cell.switch)) if cell.seen >> bit & 1]


def switches_in(job: rpc.JobInfo, cell: rpc.SlotInfo) -> int:
    """Return how many switches below have contributed to a cell."""
    return (cell.seen >> len(ranks_at(job, cell.switch))).bit_count()


def ranks_at(job: rpc.JobInfo, switch: str) -> list[int]:
    """Return the ranks that have a link to a switch; all where a job's switches are not below one another."""
    return [member.rank for member in job.members if not job.tree or switch in (member.switches or [member.switch])]


def trees_of(job: rpc.JobInfo) -> dict[int, dict[str, str]]:
    """Return the switches above others in each tree, by its number; a tree of one switch has none, and is not there."""
    found: dict[int, dict[str, str]] = {}
    for child, above, *number in job.tree:
        found.setdefault(int(number[0]) if number else 0, {})[child] = above
    return found


def parts_of(job: rpc.JobInfo) -> list[tuple[int, dict[str, str], dict[int, str]]]:
    """Return each tree by its number: the switches above others, and the switch of each rank."""
    trees = trees_of(job)
    if not any(member.switches for member in job.members):
        ranks = {member.rank: member.switch for member in job.members}
        return [(number, parents, ranks) for number, parents in (trees or {0: {}}).items()]
    found = []
    for link in range(len(job.link_rates)):
        ranks = {member.rank: dict(enumerate(member.switches)).get(link, "") for member in job.members}
        first = link * job.trees_of_link
        numbers = [number for number in range(first, first + job.trees_of_link) if number in trees]
        if link not in job.links_down:
            found += [(number, trees.get(number, {}), ranks) for number in numbers or [first]]
    return found

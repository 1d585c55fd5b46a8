"""The newest round of each slot, over all switches of the tree to which the slot belongs: who is missing in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from switchsum.protocol import rpc
from switchsum.protocol.frame import Flag
from switchsum.protocol.serial import is_older


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
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
    up its own.  All switches of a tree give a round the same number.
    """
    newest: dict[int, list[rpc.SlotInfo]] = {}
    for cell in cells:
        found = newest.setdefault(cell.slot, [])
        if not cell.seen or (found and is_older(cell.number, found[0].number)):
            continue
        if found and cell.number != found[0].number:
            found.clear()
        found.append(cell)
    rounds = []
    for slot, found in sorted(newest.items()):
        ranks = {rank for cell in found for rank in ranks_of(job, cell)}
        missing = [rank for rank in range(job.workers) if rank not in ranks] if found else []
        has_sum = not job.tree or any(cell.flags & Flag.FINAL for cell in found)
        rounds.append(
            Round(
                slot=slot,
                number=found[0].number if found else 0,
                contributed=sum(1 << rank for rank in ranks),
                missing=missing,
                is_complete=bool(found) and not missing and has_sum,
            )
        )
    return rounds


def ranks_of(job: rpc.JobInfo, cell: rpc.SlotInfo) -> list[int]:
    """Return the ranks whose bits are set in a cell."""
    return [rank for bit, rank in enumerate(_ranks_at(job, cell.switch)) if cell.seen >> bit & 1]


def switches_in(job: rpc.JobInfo, cell: rpc.SlotInfo) -> int:
    """Return how many switches below have contributed to a cell."""
    return (cell.seen >> len(_ranks_at(job, cell.switch))).bit_count()


def _ranks_at(job: rpc.JobInfo, switch: str) -> list[int]:
    return [member.rank for member in job.members if not job.tree or member.switch == switch]

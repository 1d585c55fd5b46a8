"""The group in which a rank of a row adds: its job's communicator, or a process group of PyTorch's.

Where some ranks are the group, others have one of their own with a rank that is in both.  Ranks add in that one before
each step, and these sums have to be exact, whatever happens in the row.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist

import switchsum
from switchsum_host.api.communicator import Communicator

from .columns import COMMUNICATOR, SOME
from .orders import STEPS, Order

LIMIT_S: Final = 150.0
"""How long ranks wait for one another: also for one that waits until another process has compiled for all."""
OTHERS: Final = (0, 2)
"""Ranks of the group beside: one that is not in the row's, and one that is."""
VALUES: Final = 1000
"""Of an array of the group beside."""


class Beside:
    """Sums in another group than the row's."""

    def __init__(self, group: Any, ranks: tuple[int, ...], rank: int) -> None:
        self._group, self._ranks, self._rank = group, ranks, rank
        self._begun: list[tuple[Any, torch.Tensor]] = []

    def begin(self) -> None:
        """Begin the next sum."""
        if len(self._begun) < STEPS:
            tensor = self._array(self._rank, len(self._begun))
            self._begun.append((dist.all_reduce(tensor, group=self._group, async_op=True), tensor))

    def finish(self) -> int:
        """Begin the sums that are left; return how many values of all sums are wrong."""
        while len(self._begun) < STEPS:
            self.begin()
        wrong = 0
        for step, (work, tensor) in enumerate(self._begun):
            work.wait()
            wrong += int((tensor != sum(self._array(rank, step) for rank in self._ranks)).sum())
        return wrong

    @staticmethod
    def _array(rank: int, step: int) -> torch.Tensor:
        return torch.arange(VALUES, dtype=torch.int64) * (rank + 1) + step


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """A rank's place in a row."""

    order: Order
    """With the members of the group, and the rank's number among them."""
    group: Any
    """The communicator or process group; None: the rank is not in it."""
    beside: Beside | None = None


def leave(group: Any) -> None:
    """Leave a group, and all others that were made with it."""
    if isinstance(group, Communicator):
        group.close()
    else:
        dist.destroy_process_group()


def take(order: Order) -> Membership:
    """Join the job of an order, as its row says; raises what joining raises."""
    ranks = tuple(range(len(order.members)))
    kind = order.row["group"]
    if kind == COMMUNICATOR:
        joined = switchsum.connect(
            job=order.job, rank=order.rank, world_size=len(ranks), link=order.link, timeout_s=LIMIT_S
        )
        return Membership(order=order, group=joined)
    os.environ.update(SWITCHSUM_JOB=order.job, SWITCHSUM_LINK=order.link)
    store = dist.FileStore(order.store, len(ranks))
    dist.init_process_group(
        "switchsum", store=store, rank=order.rank, world_size=len(ranks), timeout=timedelta(seconds=LIMIT_S)
    )
    if kind != SOME:
        return Membership(order=order, group=dist.group.WORLD)
    some = ranks[1:]
    group, beside = dist.new_group(list(some)), dist.new_group(list(OTHERS))
    shared = Beside(beside, OTHERS, order.rank) if order.rank in OTHERS else None
    if order.rank not in some:
        return Membership(order=order, group=None, beside=shared)
    members = tuple(order.members[rank] for rank in some)
    return Membership(order=replace(order, members=members, rank=some.index(order.rank)), group=group, beside=shared)

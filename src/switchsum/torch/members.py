"""Names the groups of a training, so that the ranks of a group find one another."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import torch.distributed as dist

LONGEST_JOB: Final = 44
"""Characters of the name of the job of all ranks: what is left of `LONGEST` is for those of some."""
LONGEST: Final = 64
"""Characters of a job's name, which the controller takes."""
_RUN: Final = "switchsum/run"
_MOST_KEPT: Final = 4
"""A rank that others wait for in vain is said to have made so many groups, the latest ones."""


def job_name(store: dist.Store) -> str:
    """Return a name for the job of this training: the same after torchrun has restarted it, and no other training's.

    Only the first rank calls it.  The run's name and the port have defaults, so two trainings that share a controller
    may have the same.  So the job's name ends with a random word that stays in the training's own store.
    """
    while isinstance(store, dist.PrefixStore):  # torchrun gives each restart a prefix of its own
        store = store.underlying_store
    if not store.check([_RUN]):
        store.set(_RUN, secrets.token_hex(4))
    run = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    if run == "none":
        run = "-".join(os.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT")).strip("-")
    return fitting("-".join(filter(None, ("torch", run, store.get(_RUN).decode()))), LONGEST_JOB)


def fitting(name: str, most: int) -> str:
    """Return a name of so many characters at most: what is too long ends with a digest of all of it."""
    if len(name) <= most:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    return f"{name[: most - len(digest) - 1]}~{digest}"


def listed(ranks: Sequence[int]) -> str:
    """Return ranks in their order, those that follow one another as one: "0-3,8"."""
    starts = [0] + [index for index, (one, other) in enumerate(pairwise(ranks), 1) if other != one + 1]
    runs = [ranks[begin:end] for begin, end in zip(starts, [*starts[1:], len(ranks)], strict=True)]
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)


@dataclass(frozen=True, slots=True)
class Members:
    """A group of some ranks: torch numbers groups in each rank's own order."""

    ranks: tuple[int, ...]
    """Among all ranks, in the group's order."""
    count: int
    """Number of groups of exactly these ranks, this one included."""

    @property
    def key(self) -> str:
        """Name the group, alike on all its ranks and unlike any other group of them."""
        return listed(self.ranks) + (f"#{self.count}" if self.count > 1 else "")

    def job(self, parent: str) -> str:
        """Return the name of the group's job, given that of all ranks."""
        return f"{parent}/{fitting(self.key, LONGEST - len(parent) - 1)}"


class Made:
    """The groups of some ranks that this rank has made, told to the others, whose time-outs name them."""

    def __init__(self, store: dist.Store, rank: int) -> None:
        self._store, self._rank = store, rank
        self._counts: Counter[tuple[int, ...]] = Counter()
        self._latest: list[str] = []

    def note(self, ranks: Sequence[int]) -> Members:
        """Take note of a group that is being made."""
        self._counts[tuple(ranks)] += 1
        members = Members(tuple(ranks), self._counts[tuple(ranks)])
        self._latest = [*self._latest, members.key][-_MOST_KEPT:]
        self._store.set(f"made/{self._rank}", json.dumps(self._latest))
        return members

    def compared(self, members: Members, missing: Sequence[int]) -> str:
        """Say what the ranks with these places in a group have made instead of it."""
        said = []
        for rank in (members.ranks[place] for place in missing):
            key = f"made/{rank}"
            groups = json.loads(self._store.get(key)) if self._store.check([key]) else []
            what = " and ".join(f"[{one}]" for one in groups) if groups else "no group of some ranks"
            said.append(f"rank {rank} has made {what}")
        return f"rank {self._rank} waits in the group [{members.key}] in vain: {'; '.join(said)}"

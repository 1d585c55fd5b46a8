"""Messages of the method Agree: members ask the controller which ranks an operation may go on without."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from .errors import UsageError

KEEP: Final = 4
"""Default of `Terms.keep`: members keep the results of so many operations for ranks that were absent."""
GO_ON: Final = "; to go on without it, all ranks that are left call comm.reform()"
"""What an error says about how to go on after a rank was lost."""
MOST_KEPT: Final = 64
"""Most results that members may be asked to keep: each is as large as an array."""
MOST_PATIENCE_S: Final = 86_400.0
"""Longest patience, a day: who would wait for longer needs no quorum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """On which terms operations go on without some ranks; the same on all ranks of a job."""

    quorum: float
    """Share of the ranks that must take part, above 0 and up to 1."""
    patience_s: float
    """Seconds to wait for the others once an operation could begin."""
    keep: int = KEEP
    """Number of operations whose results are kept for ranks that were absent."""
    gives_model: bool = False
    """True: the others give the model to a rank that lacks more results than that. False: such a rank is lost."""
    model: str = ""
    """What that model is, in words and with a digest of what ranks must have alike in it."""

    def check(self) -> None:
        """Raise UsageError if a term has the wrong type or is out of range."""
        for name, value in (("quorum", self.quorum), ("patience_s", self.patience_s), ("keep", self.keep)):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise UsageError(f"{name} is a number, not {value!r}")
        if not 0 < self.quorum <= 1:
            raise UsageError(f"a quorum is a share of the ranks, above 0 and up to 1, not {self.quorum!r}")
        if not 0 < self.patience_s <= MOST_PATIENCE_S:
            raise UsageError(
                f"patience_s is a time above 0 and up to {MOST_PATIENCE_S:,.0f} seconds, not {self.patience_s!r}"
            )
        if not isinstance(self.keep, int) or not 1 <= self.keep <= MOST_KEPT:
            raise UsageError(f"keep is a whole number from 1 to {MOST_KEPT}, not {self.keep!r}")

    def least(self, workers: int) -> int:
        """Return how many ranks of a job with `workers` ranks must take part."""
        return max(1, math.ceil(self.quorum * workers - 1e-9))

    def __str__(self) -> str:
        """Return the terms as a program writes them in a call."""
        which = f" ({self.model})" if self.model else ""
        model = f", a model for ranks that are too late{which}" if self.gives_model else ""
        return f"quorum={self.quorum:g}, patience_s={self.patience_s:g}, keep={self.keep}{model}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreeRequest:
    """Who takes part in the next operation?  The call returns after `wait_s` at the latest, to be repeated."""

    job: str
    nonce: int
    after: int
    """Number of the operation whose result this member has, 0 before the first: it asks for a later one."""
    quorum: float
    patience_s: float
    keep: int = KEEP
    gives_model: bool = False
    model: str = ""
    """As in `Terms`."""
    begun: int = 0
    """Collectives of the job that this member has begun: see `Agreement.elsewhere`."""
    is_whole: bool = False
    """Wait for all members that are not gone, however long it takes."""
    wait_s: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreeReply:
    """What was decided; the same for all who take part, however often they ask."""

    number: int = 0
    """Number of the operation, from 1 on; 0: nothing is decided yet."""
    absent: list[int] = field(default_factory=list)
    """Ranks that do not take part."""
    behind: list[list[int]] = field(default_factory=list)
    """Ranks that take part and lack results of operations before this one, each with the latest that it has.  A rank
    that lacks more results than are kept is given the model.
    """
    group: str = ""
    """Name of the job of the ranks that take part; empty: all ranks take part, in the job itself."""
    groups: list[str] = field(default_factory=list)
    """Names of all jobs of this kind that exist; members leave any other one."""
    is_whole: bool = False
    """A member has asked to wait for all members: no array is added, so that all have the same results."""
    missing: list[int] = field(default_factory=list)
    """While nothing is decided, the ranks that have not asked."""
    held_up: str = ""
    """Why the decision cannot stand yet although it could be made, in words."""
    lost: int = -1
    """Rank for which nothing will be decided any more: it is gone, or it is the asking rank, too late.  -1: none."""
    why: str = ""
    """Why nothing will be decided for the rank `lost`, in words."""
